"""One knob instead of two: from a number of forwards to particles and branching.

A search of T steps forwards at most 1 + T·N·b rows. A budget therefore pays for
K = (budget − 1) // T rows a step. Two children a particle is the paper's choice (N=4, b=2), so
b = 2 and N = K // 2 as soon as two particles can have two children; below that b = 1 and N = K.
"""

from __future__ import annotations

from s3dlm.errors import SettingsError


def allot(budget: int, steps: int, *, most: int) -> tuple[int, int]:
    """(particles, branching) whose search costs at most `budget` rows, and `most` rows a step."""
    rows = min((budget - 1) // steps, most)
    if rows < 1:
        raise SettingsError(
            f"budget={budget} does not pay for {steps} steps; give at least {steps + 1} "
            "for every choice, or fewer steps"
        )
    branching = 2 if rows >= 4 else 1
    return rows // branching, branching
