"""What a run depends on besides its plan: versions, machine, weights, tokenizer and batch size."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import s3dlm
from s3dlm.models.base import Model, Tokenizer

_PACKAGES = ("torch", "transformers", "numpy", "math-verify", "tiktoken")
_CL100K = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"

BATCH_SIZES = (8, 16, 32, 64, 128, 256, 512)
GAIN = 1.1  # a batch size must give this much more throughput than the one before
SLOW = 2.0  # seconds per forward pass after which larger batches are not tried


def versions() -> dict[str, str]:
    """Versions of the packages that decide a result."""
    found = {"python": platform.python_version(), "s3dlm": s3dlm.__version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine(model: Model) -> dict[str, Any]:
    """The hardware that times were measured on, without anything that identifies it."""
    import torch

    device = device_of(model)
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }


def device_of(model: Model) -> Any:
    import torch

    return getattr(model.denoiser, "device", torch.device("cpu"))


def fingerprint(model: Model) -> str:
    """A hash of the weights: name, shape and every value of every tensor."""
    import torch

    digest = hashlib.sha256(type(model.denoiser).__name__.encode())
    for name, tensor in tensors(model):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        flat = tensor.detach().contiguous().flatten().cpu()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()[:12]


def tensors(model: Model) -> Iterator[tuple[str, Any]]:
    """Every tensor of a denoiser, whether it is a module or holds one."""
    import torch

    for holder in (model.denoiser, *getattr(model.denoiser, "__dict__", {}).values()):
        if isinstance(holder, torch.nn.Module):
            yield from holder.state_dict().items()
            return


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """A way to count tokens, and its name."""

    name: str
    count: Callable[[str], int]


def token_counter(tokenizer: Tokenizer) -> TokenCounter:
    """The paper's cl100k_base if tiktoken and its file are installed, else the model's tokenizer.

    The file is never downloaded: two runs must not differ because one of them had a network.
    """
    if _cached():
        try:
            import tiktoken
        except ImportError:
            pass
        else:
            encoding = tiktoken.get_encoding("cl100k_base")
            return TokenCounter(
                "cl100k_base", lambda text: len(encoding.encode(text, disallowed_special=()))
            )
    return TokenCounter("the model's tokenizer", lambda text: len(tokenizer.encode(text)))


def _cached() -> bool:
    """Whether tiktoken finds its file without the network: it is named by the URL's SHA-1."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    path = Path(folder) if folder else Path(tempfile.gettempdir()) / "data-gym-cache"
    return (path / hashlib.sha1(_CL100K.encode()).hexdigest()).is_file()


def best_batch_size(model: Model, prompt: Sequence[int], gen_length: int) -> int:
    """The smallest batch size after which doubling gives less than a tenth more throughput.

    Results do not depend on the batch, so this decides speed alone.
    """
    canvas = [*prompt, *[model.denoiser.mask_id] * gen_length]
    best, best_rate = BATCH_SIZES[0], 0.0
    for size in BATCH_SIZES:
        seconds = _time_forward(model, canvas, size)
        if seconds is None or size / seconds < GAIN * best_rate:
            break
        best, best_rate = size, size / seconds
        if seconds > SLOW:
            break
    return best


def _time_forward(model: Model, canvas: Sequence[int], size: int) -> float | None:
    """Seconds of one forward pass (the better of two); None if memory does not suffice."""
    import torch

    device = device_of(model)
    tokens = torch.tensor([list(canvas)] * size, dtype=torch.int64, device=device)
    taken = []
    try:
        with torch.inference_mode():
            for _ in range(2):
                started = time.perf_counter()
                model.denoiser.encode(tokens)
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
                taken.append(time.perf_counter() - started)
    except torch.OutOfMemoryError:
        return None
    return max(min(taken), 1e-9)
