"""How many rows a forward should have: found by trying, never changing a result.

Packing is exact, so this decides speed alone. More rows pay until the machine is busy; beyond that
they only delay the first answer. Out of memory while running halves the batch inside the engine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from s3dlm.models.base import Model

SIZES = (8, 16, 32, 64, 128, 256, 512)
GAIN = 1.1  # a size must bring this much more throughput than the one before to be worth it
PATIENCE = 2.0  # seconds: a probe that takes longer shows enough


def rows_that_pay(
    model: Model, prompt: Sequence[int], gen_length: int, sizes: Sequence[int] = SIZES
) -> int:
    """The smallest number of rows after which doubling no longer brings a tenth more rows a second."""
    row = [*prompt, *[model.denoiser.mask_id] * gen_length]
    best, best_rate = sizes[0], 0.0
    for rows in sizes:
        seconds = _probe(model, row, rows)
        if seconds is None or rows / seconds < GAIN * best_rate:
            break
        best, best_rate = rows, rows / seconds
        if seconds > PATIENCE:
            break
    return best


def _probe(model: Model, row: Sequence[int], rows: int) -> float | None:
    """Seconds of one forward of equal rows (the better of two); None when memory is too small."""
    import torch

    device = getattr(model.denoiser, "device", torch.device("cpu"))
    tokens = torch.tensor([list(row)] * rows, dtype=torch.int64, device=device)
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
