"""From scores to log-potentials (Eq. 8): how much a step multiplies each child's weight by.

`tilt` is the paper's exp(λ·s), anew at every step. `twist` divides by the parent's own exp(λ·s), so
that along a lineage the factors telescope and the population targets p·exp(λ·f) (Eq. 3); it is also
the difference potential of Feynman–Kac steering, whose max and sum potentials pay back in the last
step what they overpaid. `confidence` needs no verifier: the model's own probability of what it just
revealed. `rank` only orders.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from s3dlm.search.expand import Children
from s3dlm.search.particles import Floats, Memory
from s3dlm.search.resample import effective_sample_size, normalise

LARGEST_LAM = 100.0  # the cap of an adaptive tilt: one per cent of score then weighs e

Weigh = Callable[[Children, Memory, Floats, float, bool], Floats]
"""(children, memory with this step in it, scores, λ, is it the last step) → log-potentials."""


def _none(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return np.zeros_like(score)


def _tilt(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return lam * score


def _rank(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return score


def _twist(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return lam * (score - children.parent_score)


def _fk_max(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return lam * score - children.memory.paid if last else lam * now.peak


def _fk_sum(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return lam * score - children.memory.paid if last else lam * now.total


def _confidence(children: Children, now: Memory, score: Floats, lam: float, last: bool) -> Floats:
    return children.gained


WEIGHTS: dict[str, Weigh] = {
    "none": _none,
    "tilt": _tilt,
    "rank": _rank,
    "twist": _twist,
    "fk_max": _fk_max,
    "fk_sum": _fk_sum,
    "confidence": _confidence,
}

Tilt = Callable[[Floats, float, float, float], tuple[Floats, float]]
"""(scores, λ, progress in (0, 1], ESS target as a share) → scores and λ to tilt with."""


def _fixed(score: Floats, lam: float, progress: float, target: float) -> tuple[Floats, float]:
    return score, lam


def _annealed(score: Floats, lam: float, progress: float, target: float) -> tuple[Floats, float]:
    """Weak while the look-ahead is mostly noise, full at the end."""
    return score, lam * progress


def _standardised(
    score: Floats, lam: float, progress: float, target: float
) -> tuple[Floats, float]:
    """Scores in units of the frontier's own spread."""
    spread = float(score.std())
    return (score - score.mean()) / spread if spread > 1e-6 else np.zeros_like(score), lam


def _adaptive(score: Floats, lam: float, progress: float, target: float) -> tuple[Floats, float]:
    """The λ that leaves the children an ESS of the target share, up to a cap; the given one is not
    used."""
    wanted = target * score.size
    if effective_sample_size(normalise(LARGEST_LAM * score)) >= wanted:
        return score, LARGEST_LAM
    low, high = 0.0, LARGEST_LAM
    for _ in range(30):
        middle = (low + high) / 2
        if effective_sample_size(normalise(middle * score)) >= wanted:
            low = middle
        else:
            high = middle
    return score, low


TILTS: dict[str, Tilt] = {
    "fixed": _fixed,
    "annealed": _annealed,
    "standardised": _standardised,
    "adaptive": _adaptive,
}
