"""What differs between a CPU and a GPU: clocks, memory, and how results reach the host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CPU_LOGITS = 1 << 26  # bytes of logits at once
GPU_LOGITS = 1 << 30


def logits_room(device: torch.device) -> int:
    """Bytes of logits that may exist at once: on a GPU by memory, and not by cache."""
    if device.type == "cpu":
        return CPU_LOGITS
    if device.type != "cuda":
        return GPU_LOGITS
    free, _ = torch.cuda.mem_get_info(device)
    return max(CPU_LOGITS, min(GPU_LOGITS, free // 8))


def free_memory(device: torch.device) -> None:
    """Give back what PyTorch keeps, so that a smaller batch finds one piece of it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def to_host(groups: Sequence[Sequence[Tensor]]) -> list[list[NDArray[Any]]]:
    """Integer and float tensors as arrays; from a GPU all of them in one transfer."""
    flat = [tensor for group in groups for tensor in group]
    if not flat:
        return []
    if flat[0].device.type == "cpu":
        return [[tensor.numpy() for tensor in group] for group in groups]
    words = torch.cat([_words(tensor) for tensor in flat]).cpu().numpy()
    ends = np.cumsum([tensor.numel() for tensor in flat])
    pieces = iter(np.split(words, ends[:-1]))
    return [[_array(next(pieces), tensor) for tensor in group] for group in groups]


def _words(tensor: Tensor) -> Tensor:
    """A tensor as 32-bit words: token ids fit, and floats keep their bits."""
    flat = tensor.reshape(-1)
    return flat.view(torch.int32) if flat.is_floating_point() else flat.to(torch.int32)


def _array(words: NDArray[np.int32], tensor: Tensor) -> NDArray[Any]:
    kept = words.view(np.float32) if tensor.is_floating_point() else words.astype(np.int64)
    return kept.reshape(tuple(tensor.shape))


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
