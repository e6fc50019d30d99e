"""LoRA adapters, merged into a model's weights when it is loaded: W + alpha / r · B · A.

Read are folders as peft writes them (`adapter_config.json`, `adapter_model.safetensors`), and those of
reward models for diffusion models (`config.json`, `adapter.safetensors`). Merging needs no other package
and costs nothing afterwards. What is stored whole (a classification head, say) replaces what is there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.folder import HUB_ID, download, read_json

FILES = ("adapter_model.safetensors", "adapter.safetensors")
CONFIGS = ("adapter_config.json", "config.json")
UNSUPPORTED = ("use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "layer_replication")
MOST_ALPHA = 10**6
_WRAPPERS = re.compile(r"^(?:backbone\.)?(?:base_model\.model\.)?|\.modules_to_save(?:\.default)?")
_FACTOR = re.compile(r"(.+)\.lora_([AB])(?:\.default)?\.weight")


@dataclass(frozen=True, slots=True)
class Adapter:
    """What an adapter adds to the weights of its base, by their stored names."""

    name: str
    base: str | None  # the model that it was trained on
    config: Mapping[str, Any]
    changes: Mapping[str, tuple[Tensor, Tensor]]  # scaled B, and A
    whole: Mapping[str, Tensor]

    @torch.no_grad()
    def merge(self, weights: Mapping[str, Tensor]) -> None:
        """Change weights in place; an adapter that does not fit them changes nothing."""
        shapes: dict[str, tuple[int, ...]] = {
            f"{n}.weight": (len(b), a.shape[1]) for n, (b, a) in self.changes.items()
        }
        shapes |= {name: tuple(tensor.shape) for name, tensor in self.whole.items()}
        wrong = [n for n, shape in shapes.items() if n not in weights or weights[n].shape != shape]
        if wrong:
            raise ModelError(
                f"the adapter {self.name} does not fit the model: {len(wrong)} of its {len(shapes)} "
                f"weights are not there or have another shape, first {short_repr(wrong[0])}; it was made "
                f"for {short_repr(self.base) if self.base else 'another model'}"
            )
        for n, (b, a) in self.changes.items():
            weight = weights[f"{n}.weight"]
            weight += (b.to(weight.device) @ a.to(weight.device)).to(weight.dtype)
            if not weight.isfinite().all():
                raise ModelError(f"with the adapter {self.name} {n}.weight is not finite any more")
        for name, tensor in self.whole.items():
            weights[name].copy_(tensor)


def read_adapter(name: str) -> Adapter:
    """The adapter in a folder or of a hub id."""
    folder, pinned = Path(name).expanduser(), name.partition("@")
    if not folder.is_dir():
        if not HUB_ID.fullmatch(pinned[0]):
            raise ModelError(f"adapter={name!r} is neither a folder nor a hub id; give one of them")
        folder = download(pinned[0], pinned[2] or None, (*FILES, *CONFIGS))
    path = next((folder / file for file in FILES if (folder / file).is_file()), None)
    if path is None:
        raise ModelError(f"the adapter {name} has no {' or '.join(FILES)}; pickles are not opened")
    configs = [folder / file for file in CONFIGS if (folder / file).is_file()]
    config = read_json(configs[0] if configs else folder / CONFIGS[0])
    settings = {**config, **(config["lora"] if isinstance(config.get("lora"), dict) else {})}
    if used := [key for key in UNSUPPORTED if settings.get(key)]:
        raise ModelError(
            f"the adapter {name} uses {used[0]}, which is not supported; merge it first"
        )
    alpha, kind = settings.get("lora_alpha", settings.get("alpha")), settings.get("peft_type")
    if kind not in (None, "LORA"):
        raise ModelError(f"the adapter {name} is of the kind {short_repr(kind)}; give one of LoRA")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha <= MOST_ALPHA:
        given = "no lora_alpha" if alpha is None else f"lora_alpha={short_repr(alpha)}"
        raise ModelError(
            f"the configuration of the adapter {name} states {given}; it needs a number above 0, at "
            f"most {MOST_ALPHA}"
        )
    try:
        loaded = load_file(path)
        stored = {_WRAPPERS.sub("", key): tensor for key, tensor in loaded.items()}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path} is not a readable safetensors file: {str(error)[:300]}"
        ) from error
    useless = [key for key, tensor in stored.items() if not _is_finite(tensor)]
    if useless or not stored or len(stored) < len(loaded):
        what = "two weights of one name" if loaded else "no weights"
        what = f"no finite numbers in {short_repr(useless[0])}" if useless else what
        raise ModelError(f"the adapter {name} has {what}; give another one")
    factors = {key: match for key in stored if (match := _FACTOR.fullmatch(key))}
    pairs: dict[str, dict[str, Tensor]] = {}
    for key, match in factors.items():
        pairs.setdefault(match[1], {})[match[2]] = stored[key].float()
    changes = {}
    for module, pair in pairs.items():
        matrices = pair.keys() == {"A", "B"} and pair["A"].ndim == pair["B"].ndim == 2
        if not matrices or len(pair["A"]) != pair["B"].shape[1] or f"{module}.weight" in stored:
            raise ModelError(
                f"the adapter {name} has no two factors of one rank, and nothing else, for "
                f"{short_repr(module)}"
            )
        rank = len(pair["A"])
        scale = alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        changes[module] = (scale * pair["B"], pair["A"])
    base = settings.get("base_model_name_or_path") or settings.get("base_model")
    whole = {key: tensor for key, tensor in stored.items() if key not in factors}
    if not whole and not any(b.any() and a.any() for b, a in changes.values()):
        raise ModelError(f"the adapter {name} changes nothing: all its weights are 0")
    return Adapter(name, base if isinstance(base, str) else None, config, changes, whole)


def _is_finite(tensor: Tensor) -> bool:
    """Whether there are numbers in it, and nothing else."""
    there = tensor.is_floating_point() and tensor.numel() > 0
    return there and bool(tensor.float().isfinite().all())
