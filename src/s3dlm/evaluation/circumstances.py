"""What a run ran on: versions, machine, and a fingerprint of the weights."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from typing import Any

from s3dlm.models.base import Model

_PACKAGES = ("s3dlm", "torch", "transformers", "numpy", "math-verify", "tiktoken")


def versions() -> dict[str, str]:
    """Versions of what decides a result."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine(model: Model) -> dict[str, Any]:
    """What the clocks were measured on; says nothing about whose machine it is."""
    import torch

    device = getattr(model.denoiser, "device", torch.device("cpu"))
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }


def fingerprint(model: Model) -> str:
    """A hash of the weights: names, shapes, and the first and last values of every tensor."""
    digest = hashlib.sha256(type(model.denoiser).__name__.encode())
    for name, tensor in _tensors(model):
        flat = tensor.detach().flatten()
        ends = [*flat[:512].tolist(), *flat[-512:].tolist()]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {ends}".encode())
    return digest.hexdigest()[:12]


def _tensors(model: Model) -> Iterator[tuple[str, Any]]:
    """Every tensor of a denoiser, whether it is a module or holds some."""
    import torch

    held = [model.denoiser, *getattr(model.denoiser, "__dict__", {}).values()]
    for holder in held:
        if isinstance(holder, torch.nn.Module):
            yield from holder.state_dict().items()
            return
