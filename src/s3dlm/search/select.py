"""From survivors to one answer: votes count equal answers together, ties go to the lowest NLL.

Particles without an answer do not vote. When nobody has one, the highest-scoring text is returned
(the most probable one where nothing was scored), with no answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SHARPNESS = 20.0  # of verified votes: weight exp(SHARPNESS · score)


@dataclass(frozen=True, slots=True)
class Survivor:
    """One finished particle."""

    text: str
    answer: str | None  # normalised, so that equal answers are equal strings
    tokens: int  # of the text, its end token not counted
    score: float | None  # the verifier's; None where the method never scored
    parts: Mapping[str, float]
    log_weight: float
    nll: float
    confidence: float


Survivors = Sequence[Survivor]
Select = Callable[[Survivors, Survivors], Survivor]
"""(survivors, every complete text that was scored on the way) → the one that stands for the answer."""


def _first(survivors: Survivors, pool: Survivors) -> Survivor:
    return survivors[0]


def _heaviest(survivors: Survivors, pool: Survivors) -> Survivor:
    return max(survivors, key=lambda one: (one.log_weight, -one.nll))


def _majority(survivors: Survivors, pool: Survivors) -> Survivor:
    return _vote(survivors, [1.0] * len(survivors))


def _weighted(survivors: Survivors, pool: Survivors) -> Survivor:
    top = max(one.log_weight for one in survivors)
    return _vote(survivors, [math.exp(one.log_weight - top) for one in survivors])


def _verified(survivors: Survivors, pool: Survivors) -> Survivor:
    """The best score; a text with an answer before one without."""
    return max(survivors, key=lambda one: (one.answer is not None, one.score or 0.0, -one.nll))


def _verified_vote(survivors: Survivors, pool: Survivors) -> Survivor:
    return _vote(survivors, _sharpened(survivors))


def _pool_best(survivors: Survivors, pool: Survivors) -> Survivor:
    return _verified([*survivors, *pool], ())


def _pool_vote(survivors: Survivors, pool: Survivors) -> Survivor:
    everyone = [*survivors, *pool]
    return _vote(everyone, _sharpened(everyone))


SELECTIONS: dict[str, Select] = {
    "first": _first,
    "heaviest": _heaviest,
    "majority": _majority,
    "weighted": _weighted,
    "verified": _verified,
    "verified_vote": _verified_vote,
    "pool_best": _pool_best,
    "pool_vote": _pool_vote,
}


def _sharpened(survivors: Survivors) -> list[float]:
    """Votes that count by score: a tenth of score outvotes almost eight to one."""
    top = max(one.score or 0.0 for one in survivors)
    return [math.exp(SHARPNESS * ((one.score or 0.0) - top)) for one in survivors]


def _vote(survivors: Sequence[Survivor], weights: Sequence[float]) -> Survivor:
    """The answer with most weight; of its holders, and between tied answers, the lowest NLL."""
    votes: dict[str, float] = {}
    best: dict[str, Survivor] = {}
    for one, weight in zip(survivors, weights, strict=True):
        if one.answer is None:
            continue
        votes[one.answer] = votes.get(one.answer, 0.0) + weight
        if one.answer not in best or one.nll < best[one.answer].nll:
            best[one.answer] = one
    if not votes:
        return max(survivors, key=lambda one: (one.score or 0.0, -one.nll))
    # Sums of equal weights in another order differ in their last bits; that is still a tie.
    top = max(votes.values()) * (1 - 1e-9)
    return min((best[answer] for answer, vote in votes.items() if vote >= top), key=lambda s: s.nll)
