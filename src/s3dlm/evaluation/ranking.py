"""How well a score tells right outputs from wrong ones, with intervals.

AUC asks it of any two outputs; *pair accuracy* only of two outputs to the same question, which is
what a search feeds on: a score can have a fine AUC by knowing easy questions from hard ones, and be
of no use in choosing among the answers to one of them. Ties count half in both. Intervals are
percentiles of a bootstrap over questions, since outputs to one question are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % bootstrap interval; None when there is nothing to estimate it from."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Resamples:
    """How often each bootstrap draw holds each question; shared by all figures of one report."""

    counts: Floats  # [draws, questions]

    @classmethod
    def draw(cls, questions: int, draws: int, seed: int) -> Resamples:
        """The multinomial counts of `draws` resamples of the questions."""
        rng = np.random.default_rng(seed)
        share = np.full(questions, 1 / max(questions, 1))
        return cls(rng.multinomial(questions, share, size=draws).astype(np.float64))


def auc(
    scores: Sequence[float], right: Sequence[bool], question: Sequence[int], resamples: Resamples
) -> Estimate:
    """The chance that a right output scores above a wrong one."""
    order = np.argsort(np.asarray(scores, dtype=np.float64), kind="stable")
    values = np.asarray(scores, dtype=np.float64)[order]
    truth = np.asarray(right, dtype=np.float64)[order]
    if not 0 < truth.sum() < len(truth):
        return Estimate(None)
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    whole = _auc(np.ones((1, len(values))), truth, starts)
    drawn = _auc(resamples.counts[:, np.asarray(question)[order]], truth, starts)
    return _interval(float(whole[0]), drawn)


def _auc(weights: Floats, truth: Floats, starts: NDArray[np.intp]) -> Floats:
    """One AUC for each row of weights; outputs of equal score form one group from each start on."""
    right = np.add.reduceat(weights * truth, starts, axis=1)
    wrong = np.add.reduceat(weights * (1 - truth), starts, axis=1)
    below = np.cumsum(wrong, axis=1) - wrong
    total = right.sum(axis=1) * wrong.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((right * (below + wrong / 2)).sum(axis=1) / total, dtype=np.float64)


def pair_accuracy(
    scores: Sequence[float], right: Sequence[bool], question: Sequence[int], resamples: Resamples
) -> tuple[Estimate, int]:
    """The chance that the right one of two outputs to one question scores higher; and the pairs."""
    questions = resamples.counts.shape[1]
    wins, pairs = np.zeros(questions), np.zeros(questions)
    for number, outputs in _by_question(scores, right, question).items():
        good = [score for score, is_right in outputs if is_right]
        bad = [score for score, is_right in outputs if not is_right]
        pairs[number] = len(good) * len(bad)
        wins[number] = sum((g > b) + 0.5 * (g == b) for g in good for b in bad)
    if not pairs.sum():
        return Estimate(None), 0
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (resamples.counts @ wins) / (resamples.counts @ pairs)
    return _interval(float(wins.sum() / pairs.sum()), drawn), int(pairs.sum())


def _by_question(
    scores: Sequence[float], right: Sequence[bool], question: Sequence[int]
) -> dict[int, list[tuple[float, bool]]]:
    groups: dict[int, list[tuple[float, bool]]] = {}
    for score, is_right, number in zip(scores, right, question, strict=True):
        groups.setdefault(number, []).append((score, is_right))
    return groups


def _interval(value: float, drawn: Floats) -> Estimate:
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn):
        return Estimate(value)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(value, float(low), float(high))
