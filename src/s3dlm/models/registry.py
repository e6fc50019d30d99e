"""How a name becomes a model.

A name is `tiny`, `sudoku9` or `noisy9` (bundled with the package), a local folder, or a hub id. Nothing heavy
is imported before `load` is called, so that listing names stays instant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s3dlm.errors import ModelError, SettingsError, short_repr, unknown_name
from s3dlm.inputs import Registry
from s3dlm.models.base import Loading, Model
from s3dlm.models.families import find_family
from s3dlm.models.folder import (
    BUNDLED,
    DEFAULTS_FILE,
    KNOWN,
    defaults_in,
    find_folder,
    read_json,
    revision_of,
)
from s3dlm.tasks.prompts import read as read_prompts
from s3dlm.verifier.calibration import calibrations_in

if TYPE_CHECKING:
    from s3dlm.models.lora import Adapter

# What loads checkpoints whose config.json has this model_type and that no family describes; it is called
# as (name, folder, how), `how` being a `Loading`, and returns a Model.
MODEL_TYPES: Registry[Callable[..., Model]] = Registry("model_type", "s3dlm.model_types", object)
# Other ways to hold weights (several devices, few bits), by the option of `load` that asks for them: each is
# called as (load, options) and returns a Model.
PLACEMENTS: Registry[Callable[..., Model]] = Registry("placement", "s3dlm.placements", object)


def check_model_name(name: str) -> None:
    """Refuse what can name no model, before anything is read or loaded."""
    if name not in KNOWN and "/" not in name and not Path(name).is_dir():
        wrong = unknown_name("model", name, KNOWN)
        raise ModelError(wrong if wrong.endswith("?") else f"{wrong}, a folder or a hub id")


def load(
    name: str,
    *,
    device: str | None = None,
    devices: str | Sequence[str] | None = None,
    tensor_parallel: bool = False,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    progress: bool = True,
    mask_id: int | None = None,
    block: int | None = None,
    adapter: str | Adapter | None = None,
    quantize: str | None = None,
    dual_cache: int | None = None,
    prompts: str | None = None,
) -> Model:
    """A model by name; by default on the GPU in bfloat16 if there is one, else on CPU in float32.

    Args:
        name: A bundled name, a folder, or a hub id; "owner/name@revision" pins a
            commit, tag or branch.
        device: Such as "cpu", "cuda" or "cuda:1".
        devices: Such as ["cuda:0", "cuda:1"]: rows of each forward pass are shared among copies.
        tensor_parallel: Split the network among the processes of torchrun; only the first returns.
        dtype: float32, bfloat16 or float16.
        trust_remote_code: Whether Python files of the model's own repository may run.
        progress: Show a bar on a terminal while large weights are read.
        mask_id: For models whose files do not state it.
        block: Blocks of this size are causal (bd3lm checkpoints of A2D do not state theirs); 0: none.
        adapter: A LoRA adapter, a folder or a hub id, that is merged into the weights.
        quantize: int8 or int4: a native network's weights in so many bits (`pip install
            s3dlm[quantize]`); int4 computes in bfloat16.
        dual_cache: An approximation for models that read both ways: only open blocks are run, and the
            whole row when a block opens and every so many passes (0: never).
        prompts: A TOML file with prompt templates by task.
    """
    options: dict[str, Any] = {**locals()}
    for way in ("tensor_parallel", "devices", "quantize"):
        if options[way] not in (None, False):
            return PLACEMENTS.find(way)(load, options)
    check_model_name(name)
    own = None if prompts is None else read_prompts(prompts)
    folder = BUNDLED.get(name) or find_folder(name, code=trust_remote_code)
    model = _load_folder(folder, options)
    if own is not None:
        model = replace(model, defaults=replace(model.defaults, prompts=own))
    return model if dual_cache is None else _with_dual_cache(model, dual_cache)


def _load_folder(folder: Path, given: Mapping[str, Any]) -> Model:
    """The model of a checkpoint folder, with what `load` was given."""
    from s3dlm.models.device import device_of, dtype_of

    name, adapter = given["name"], given["adapter"]
    if name in BUNDLED and not (folder / "model.safetensors").is_file():
        raise ModelError(
            f"this installation of s3dlm lacks the weights of {name!r}; reinstall the package, "
            f"or train them with tools/{name}"
        )
    config = read_json(folder / "config.json")
    family, model_type = find_family(config), str(config.get("model_type"))
    width = config.get("d_model", config.get("hidden_size"))
    kind = f"{family.name}-{width}".lower() if family else ""
    device = device_of(given["device"])
    if isinstance(adapter, str):
        from s3dlm.models.lora import read_adapter

        adapter = read_adapter(adapter)
    how = Loading(
        device, dtype_of(given["dtype"], device), given["mask_id"], given["trust_remote_code"], adapter,
        given["block"], given["progress"],
    )  # fmt: skip
    if model_type in MODEL_TYPES:
        model = MODEL_TYPES.find(model_type)(name, folder, how)
    elif family is not None:
        from s3dlm.models.checkpoint import load_native

        model = load_native(name, folder, family, how)
    else:
        from s3dlm.models.hf import load_with_transformers

        model = load_with_transformers(name, folder, how)
    return replace(
        model,
        defaults=defaults_in(folder) if (folder / DEFAULTS_FILE).is_file() else model.defaults,
        revision=revision_of(folder),
        calibrations=calibrations_in(folder, name.partition("@")[0], kind),
    )


def _with_dual_cache(model: Model, every: int) -> Model:
    network: Any = model.denoiser
    native = hasattr(network, "dual_cache")
    both_ways = native and network.causal_block is None and not network.whole
    if not (both_ways and type(every) is int and every >= 0):
        raise SettingsError(
            f"dual_cache={short_repr(every)} is not allowed: it is a whole number from 0 up, for "
            "native models that read both ways; leave it out"
        )
    network.dual_cache = every
    return model
