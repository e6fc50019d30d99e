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

    value: float | None = None
    low: float | None = None
    high: float | None = None


def resamples(questions: int, draws: int, seed: int) -> Floats:
    """How often each bootstrap draw holds each question, [draws, questions]; all figures share it."""
    share = np.full(questions, 1 / max(questions, 1))
    return np.random.default_rng(seed).multinomial(questions, share, size=draws).astype(np.float64)


def auc(
    scores: Sequence[float], right: Sequence[bool], question: Sequence[int], counts: Floats
) -> Estimate:
    """The chance that a right output scores above a wrong one."""
    order = np.argsort(scores, kind="stable")
    values, truth = np.asarray(scores)[order], np.asarray(right, dtype=np.float64)[order]
    if not 0 < truth.sum() < len(truth):
        return Estimate()
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])  # of groups of equal score

    def of(weights: Floats) -> Floats:
        good = np.add.reduceat(weights * truth, starts, axis=1)
        bad = np.add.reduceat(weights * (1 - truth), starts, axis=1)
        wins = (good * (np.cumsum(bad, axis=1) - bad / 2)).sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(wins / (good.sum(axis=1) * bad.sum(axis=1)))

    whole = of(np.ones((1, len(values))))[0]
    return _interval(float(whole), of(counts[:, np.asarray(question)[order]]))


def pair_accuracy(
    scores: Sequence[float], right: Sequence[bool], question: Sequence[int], counts: Floats
) -> tuple[Estimate, int]:
    """The chance that the right one of two outputs to one question scores higher; and the pairs."""
    wins, pairs = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    values, truth, numbers = np.asarray(scores), np.asarray(right, dtype=bool), np.asarray(question)
    for number in np.unique(numbers):
        ours = numbers == number
        gaps = np.subtract.outer(values[ours & truth], values[ours & ~truth])
        pairs[number], wins[number] = gaps.size, (gaps > 0).sum() + 0.5 * (gaps == 0).sum()
    if not pairs.sum():
        return Estimate(), 0
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (counts @ wins) / (counts @ pairs)
    return _interval(float(wins.sum() / pairs.sum()), drawn), int(pairs.sum())


def _interval(value: float, drawn: Floats) -> Estimate:
    drawn = drawn[np.isfinite(drawn)]
    bounds = map(float, np.percentile(drawn, [2.5, 97.5])) if len(drawn) else ()
    return Estimate(value, *bounds)
