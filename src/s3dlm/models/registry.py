"""Which models there are, and how a name becomes one.

A name is `tiny` (shipped with the package), a name another package registered under the entry point
group `s3dlm.models`, a local folder, or a hub id. Nothing heavy is imported before `load` is
called, so that listing names stays instant.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s3dlm.errors import ModelError, SettingsError, unknown_name
from s3dlm.models.base import Model
from s3dlm.models.defaults import TINY, defaults_in
from s3dlm.models.folder import read_json
from s3dlm.models.hub import cached_folder, find_folder

if TYPE_CHECKING:
    import torch

ENTRY_POINTS = "s3dlm.models"  # each a function (*, device, dtype) -> Model
NATIVE = {"llada": "s3dlm.models.llada", "dream": "s3dlm.models.dream"}  # by model_type
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Known:
    """One line of `s3dlm models`."""

    name: str
    family: str
    size: str
    notes: str
    support: str = "native"  # or: remote code, plugin
    cached: bool = False


KNOWN: dict[str, Known] = {
    row.name: row
    for row in (
        Known("tiny", "LLaDA", "1–3 M", "shipped with the package; four small tasks"),
        Known("GSAI-ML/LLaDA-8B-Instruct", "LLaDA", "8 B", "the paper's model"),
        Known("GSAI-ML/LLaDA-8B-Base", "LLaDA", "8 B", "no chat template"),
        Known("GSAI-ML/LLaDA-1.5", "LLaDA", "8 B", "LLaDA after preference optimisation"),
        Known("Dream-org/Dream-v0-Instruct-7B", "Dream", "7 B", "from Qwen2.5; shifted by one"),
        Known("Dream-org/Dream-v0-Base-7B", "Dream", "7 B", "from Qwen2.5; shifted by one"),
        Known("apple/DiffuCoder-7B-Instruct", "Dream", "7 B", "code"),
        Known("apple/DiffuCoder-7B-cpGRPO", "Dream", "7 B", "code, after reinforcement learning"),
        Known(
            "inclusionAI/LLaDA-MoE-7B-A1B-Instruct",
            "LLaDA-MoE",
            "7 B",
            "needs --trust-remote-code",
            support="remote code",
        ),
    )
}


def known() -> list[Known]:
    """The known models, what others have registered, and which of them are on this disk."""
    rows = [replace(row, cached=_cached(row.name)) for row in KNOWN.values()]
    for name, entry in sorted(_registered().items()):
        package = entry.dist.name if entry.dist else entry.value
        rows.append(Known(name, "", "", f"from {package}", support="plugin", cached=True))
    return rows


def load(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    attention: str | None = None,
    trust_remote_code: bool = False,
    compile: bool = False,
    prefix_cache: bool = False,
    progress: bool = True,
) -> Model:
    """A model by name; by default on the GPU in bfloat16 if there is one, else on CPU in float32.

    `attention` picks PyTorch's kernel: auto, math, flash, efficient or cudnn. `compile` hands the
    network's body to torch.compile: the first forwards are slow, and rows may differ in their last
    bits from those of the plain network. `prefix_cache` reads prompt and finished blocks once per
    block, which is exact for block-causal models only.
    """
    model = _load(name, device, dtype, attention, trust_remote_code, progress)
    if prefix_cache:
        _cache_prefixes(model, compile)
    return _compiled(model) if compile else model


def _cache_prefixes(model: Model, compile: bool) -> None:
    from s3dlm.models.transformer import Transformer

    network = model.denoiser
    # A subclass that encodes otherwise (Dream shifts by one) needs features from before the block.
    if compile or getattr(type(network), "encode", None) is not Transformer.encode:
        raise SettingsError(
            f"prefix_cache=True is not allowed for {model.name!r} with compile={compile}; it works "
            "with native LLaDA networks that are not compiled: leave one of the two out"
        )
    network.prefix_cache = True  # type: ignore[attr-defined]


def _compiled(model: Model) -> Model:
    import torch

    network: Any = model.denoiser
    network.encode = torch.compile(network.encode, dynamic=True)
    return model


def _load(
    name: str,
    device: str | None,
    dtype: str | None,
    attention: str | None,
    trust_remote_code: bool,
    progress: bool,
) -> Model:
    plugins = _registered()
    if name in plugins and name not in KNOWN:
        return _from_plugin(name, plugins[name], device, dtype)
    if name == "tiny":
        return _load_folder(name, _tiny(), device, dtype, attention, progress=progress)
    if "/" not in name and not Path(name).is_dir():
        raise ModelError(
            unknown_name("model", name, [*KNOWN, *plugins]) + "; or a folder, or a hub id"
        )
    folder = find_folder(name, code=trust_remote_code)
    return _load_folder(
        name, folder, device, dtype, attention, progress=progress, trusted=trust_remote_code
    )


def _load_folder(
    name: str,
    folder: Path,
    device: str | None,
    dtype: str | None,
    attention: str | None,
    *,
    progress: bool,
    trusted: bool = False,
) -> Model:
    from s3dlm.models.checkpoint import load_network
    from s3dlm.models.tokenizer import load_tokenizer

    config = read_json(folder / "config.json")
    where = _device(device)
    kind = _dtype(dtype, where)
    module = NATIVE.get(str(config.get("model_type")).lower())
    if module is None or "num_experts" in config:
        from s3dlm.models.hf import load_with_transformers

        return load_with_transformers(
            name, folder, device=where, dtype=kind, attention=attention, trust_remote_code=trusted
        )
    family = importlib.import_module(module).FAMILY
    tokenizer = load_tokenizer(folder, trust_remote_code=trusted)
    network = load_network(
        folder, family, device=where, dtype=kind, attention=attention or "auto", progress=progress
    )
    ends = tokenizer.end_ids(config.get("eos_token_id"), family.end_tokens)
    return Model(name, network, tokenizer, ends, defaults_in(folder))


def _tiny() -> Path:
    if not (TINY / "model.safetensors").is_file():
        raise ModelError(
            "this installation of s3dlm lacks the weights of 'tiny'; reinstall the package, "
            "or train them with tools/train_tiny.py"
        )
    return TINY


def _device(name: str | None) -> torch.device:
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f"device={name!r} is unknown; use cpu, cuda, cuda:1, mps …") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(f"device={name!r}, but PyTorch sees no GPU here; use device='cpu'")
    return device


def _dtype(name: str | None, device: torch.device) -> torch.dtype:
    import torch

    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    short = str(name).removeprefix("torch.")
    if short not in DTYPES:
        raise SettingsError(unknown_name("dtype", name, DTYPES))
    kind: torch.dtype = getattr(torch, short)
    return kind


def _cached(name: str) -> bool:
    if name == "tiny":
        return (TINY / "model.safetensors").is_file()
    return cached_folder(name) is not None


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}


def _from_plugin(name: str, entry: EntryPoint, device: str | None, dtype: str | None) -> Model:
    factory: Any = entry.load()
    model = factory(device=device, dtype=dtype)
    if not isinstance(model, Model):
        raise ModelError(f"the plugin for {name!r} returned a {type(model).__name__}, not a Model")
    return model
