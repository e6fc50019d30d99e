"""What screening samples, on a model small enough to enumerate.

With K candidates a lone particle's child is drawn from p(child | parent)·exp(λ·s(child)), as K grows. If exp(λ·s)
is the value function h, which looks ahead exactly, every path then has the probability p·exp(λ·f)/h₀:
screening alone, without weights, samples the tilted target.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from s3dlm.diffusion.blocks import reveals
from s3dlm.verifier import Score, Verifier
from tests.laws.test_target import total_variation
from tests.laws.toy import (
    LENGTH,
    MASK,
    STEPS,
    Canvas,
    base_distribution,
    canvas_of,
    children_of,
    mean_reward,
    reward,
    survivors,
    tilted_distribution,
)

LAM = 3.0


@cache
def value(canvas: Canvas, step: int) -> float:
    """h(canvas) = E[exp(λ·f) | canvas], with this many steps made."""
    if MASK not in canvas:
        return math.exp(LAM * reward(canvas))
    reveal = reveals(LENGTH, STEPS, LENGTH)[step]
    places = range(reveal.start, reveal.stop)
    return sum(p * value(c, step + 1) for c, p in children_of(canvas, places, reveal.count))


class Exact(Verifier):
    """Knows the value function: log h / λ, which lies in [0, 1] as f does."""

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(reward(canvas_of(text)))

    def score_partial(self, prompt: str, text: str) -> Score:
        canvas = canvas_of(text)
        known = LENGTH - canvas.count(MASK)
        made = [sum(r.count for r in reveals(LENGTH, STEPS, LENGTH)[:t]) for t in range(STEPS + 1)]
        total = math.log(value(canvas, made.index(known))) / LAM
        return Score(min(max(total, 0.0), 1.0))


def test_screening_by_the_exact_value_samples_the_tilted_target_by_itself() -> None:
    options = {"rounds": 0, "lam": LAM, "look_aheads": 1, "screen": 64}
    runs = survivors("mend", 1000, Exact(), **options)
    exact, base = tilted_distribution(LAM), base_distribution()
    rewards = np.array([mean_reward(run) for run in runs])
    target = sum(reward(x) * p for x, p in exact.items())
    assert abs(rewards.mean() - target) < 4 * rewards.std() / math.sqrt(len(runs)) + 4e-3
    assert total_variation(runs, exact) < 0.13 < total_variation(runs, base)
