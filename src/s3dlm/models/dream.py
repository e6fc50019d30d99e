"""Dream's own decoding rules, as plain functions: how many positions a step reveals, and which.

Dream lowers the share of masked positions along evenly spaced times, and may draw the revealed
positions from a softmax over their confidences instead of taking the most confident ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LAST_TIME = 1e-3  # times run from 1 to this

Floats = NDArray[np.float64]


def reveal_counts(length: int, steps: int, last_time: float = LAST_TIME) -> list[int]:
    """How many of the remaining masked positions each step reveals; the last reveals the rest.

    A step may reveal none: a share of few positions rounds down.
    """
    times = np.linspace(1.0, last_time, steps + 1, dtype=np.float32)
    counts, masked = [], length
    for step in range(steps):
        share = np.float32(1.0) - times[step + 1] / times[step]
        count = masked if step == steps - 1 else int(np.float32(masked) * share)
        counts.append(count)
        masked -= count
    return counts


def draw_positions(
    confidence: Floats,
    masked: NDArray[np.bool_],
    count: int,
    temperature: float,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """`count` masked positions of every row, drawn without replacement from
    softmax(confidence / temperature); `alg_temp` in Dream's code."""
    # The largest of log-probability plus Gumbel noise are such a draw.
    noise = rng.gumbel(size=confidence.shape)
    keys = np.where(masked, confidence / temperature + noise, -np.inf)
    ranked = np.argsort(-keys, axis=1, kind="stable")[:, :count]
    chosen = np.zeros(masked.shape, dtype=np.bool_)
    np.put_along_axis(chosen, ranked, True, axis=1)
    return chosen & masked
