"""What depends on where a network runs: its device and dtype, room for logits, and time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from s3dlm.errors import SettingsError, unknown_name

DTYPES = ("float32", "bfloat16", "float16")
CPU_LOGITS = 1 << 26  # bytes of logits at once
GPU_LOGITS = 1 << 30


def device_of(name: str | None) -> torch.device:
    """By default the GPU, if there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f"device={name!r} is unknown; use cpu, cuda, cuda:1, mps …") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(f"device={name!r}, but PyTorch sees no GPU here; use device='cpu'")
    return device


def dtype_of(name: str | None, device: torch.device) -> torch.dtype:
    """By default float32 on CPU, bfloat16 elsewhere."""
    if name is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    short = str(name).removeprefix("torch.")
    if short not in DTYPES:
        raise SettingsError(unknown_name("dtype", name, DTYPES))
    dtype: torch.dtype = getattr(torch, short)
    return dtype


def stored(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Weights as they lie in memory: quantised ones in their parts."""
    for name, tensor in tensors:
        parts: list[str] = getattr(tensor, "__tensor_flatten__", lambda: ([], None))()[0]
        yield from stored((f"{name}.{part}", getattr(tensor, part)) for part in parts)
        if not parts:
            yield name, tensor


def logits_room(device: torch.device) -> int:
    """Bytes of logits that may exist at once: on a GPU by memory, and not by cache."""
    if device.type == "cpu":
        return CPU_LOGITS
    if device.type != "cuda":
        return GPU_LOGITS
    free, _ = torch.cuda.mem_get_info(device)
    return max(CPU_LOGITS, min(GPU_LOGITS, free // 8))


class Clock:
    """Adds up the time spent inside `with`; on CUDA by events, since launches return at once."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.seconds = 0.0
        self._started: Any = None
        self._pairs: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        self._started = self._now()

    def __exit__(self, *_: object) -> None:
        if self.cuda:
            self._pairs.append((self._started, self._now()))
        else:
            self.seconds += time.perf_counter() - self._started

    def settle(self) -> None:
        """Read the events; call it after a transfer, when all of them have passed."""
        self.seconds += sum(begin.elapsed_time(end) for begin, end in self._pairs) / 1000
        self._pairs.clear()

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event
