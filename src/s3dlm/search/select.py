"""From survivors to one answer: votes count equal answers together, ties go to the lowest NLL.

Particles without an answer do not vote. When nobody has one, the highest-scoring text is returned
(the most probable one where nothing was scored), with no answer.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from s3dlm.inputs import Registry
from s3dlm.verifier.base import CHECKABLE


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
    logp: float = 0.0  # Σ log p of its tokens, each when it was revealed

    @property
    def checkable(self) -> bool | None:
        """Whether the verifier found a step to check; None if it does not say."""
        return None if CHECKABLE not in self.parts else self.parts[CHECKABLE] > 0


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice among survivors, and what it needs to be a choice at all."""

    choose: Callable[[Sequence[Survivor]], Survivor]
    needs_scores: bool = False
    from_all_seen: bool = False  # also among every complete text that was scored on the way
    from_steps: bool = False  # among the look-ahead texts of every step, later ones heavier


TEMPORAL_GROWTH = 5.0  # the last step's vote counts e⁵ times as much as one before the first


def temporal_log_weight(step: int, steps: int) -> float:
    """How much the look-ahead of a step, counted from 0, counts in the vote over all steps."""
    return TEMPORAL_GROWTH * (step + 1) / steps


def _weighted(survivors: Sequence[Survivor]) -> Survivor:
    top = max(survivor.log_weight for survivor in survivors)
    return _vote(survivors, [math.exp(survivor.log_weight - top) for survivor in survivors])


SCORE_WEIGHT = 40.0  # twice the votes are worth log(2) / 40 = 0.017 of a score


def _agreed(survivors: Sequence[Survivor]) -> Survivor:
    """The answer with the highest log(votes) + 40 · (its best score): the verifier decides, votes decide
    where it sees little difference (docs/verifier.md says how the number was fitted)."""
    answered = [survivor for survivor in survivors if survivor.answer is not None]
    votes = Counter(survivor.answer for survivor in answered)

    def value(survivor: Survivor) -> tuple[float, float]:
        score = SCORE_WEIGHT * (survivor.score or 0.0)
        return round(math.log(votes[survivor.answer]) + score, 9), -survivor.nll

    return max(answered, key=value) if answered else _verified(survivors)


def _verified(survivors: Sequence[Survivor]) -> Survivor:
    """The best score; a text with an answer before one without."""
    return max(survivors, key=lambda s: (s.answer is not None, s.score or 0.0, -s.nll))


SELECTIONS: Registry[Selection] = Registry("selection", "s3dlm.selections", Selection)
for _name, _selection in {
    "first": Selection(lambda survivors: survivors[0]),
    "majority": Selection(lambda survivors: _vote(survivors, [1.0] * len(survivors))),
    "weighted": Selection(_weighted),
    "agreement": Selection(_agreed, needs_scores=True),
    "verified": Selection(_verified, needs_scores=True),
    "likeliest": Selection(lambda survivors: max(survivors, key=lambda one: one.logp)),
    "temporal": Selection(_weighted, from_steps=True),
    "best_seen": Selection(_verified, needs_scores=True, from_all_seen=True),
}.items():
    SELECTIONS.register(_name, _selection)


def _vote(survivors: Sequence[Survivor], weights: Sequence[float]) -> Survivor:
    """The answer with most weight; of its holders, and between tied answers, the lowest NLL."""
    votes: defaultdict[str, float] = defaultdict(float)
    best: dict[str, Survivor] = {}
    for survivor, weight in zip(survivors, weights, strict=True):
        if (answer := survivor.answer) is not None:
            votes[answer] += weight
            best[answer] = min(best.get(answer, survivor), survivor, key=lambda s: s.nll)
    if not votes:
        return _verified(survivors)
    # Sums of equal weights in another order differ in their last bits; that is still a tie.
    top = max(votes.values()) * (1 - 1e-9)
    return min((best[answer] for answer, vote in votes.items() if vote >= top), key=lambda s: s.nll)
