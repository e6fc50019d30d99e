"""From scores to log-weights (Eq. 8), before they are normalised over a prompt's children.

`tilt` is the paper's: exp(λ·s) at every step, on top of whatever weight the parent still carries.
`twist` divides by the parent's own exp(λ·s), so that along a lineage the factors telescope and the
population targets p·exp(λ·f) (Eq. 3). `rank` only orders.
"""

from __future__ import annotations

from collections.abc import Callable

from s3dlm.search.particles import Floats

Weigh = Callable[[Floats, Floats, Floats, float], Floats]


def none(log_weight: Floats, parent: Floats, score: Floats, lam: float) -> Floats:
    return log_weight


def tilt(log_weight: Floats, parent: Floats, score: Floats, lam: float) -> Floats:
    return log_weight + lam * score


def rank(log_weight: Floats, parent: Floats, score: Floats, lam: float) -> Floats:
    return score


def twist(log_weight: Floats, parent: Floats, score: Floats, lam: float) -> Floats:
    return log_weight + lam * (score - parent)


WEIGHTS: dict[str, Weigh] = {"none": none, "tilt": tilt, "rank": rank, "twist": twist}
