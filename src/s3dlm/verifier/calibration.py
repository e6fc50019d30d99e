"""From a score to a probability, and how far such probabilities can be trusted.

A calibration is fitted on answers whose correctness is known. `Logistic` needs few of them and stays
smooth; `Isotonic` only assumes that a higher score is never worse. `fit_answers` combines what a
search knows about its chosen answer (score, agreement among survivors, confidence) into one
probability. Brier score, reliability bins and accuracy at coverage say what the result is worth.
Pure numpy: nothing here knows models or searches.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3dlm.errors import SettingsError

ENOUGH = 20  # a fit on fewer answers, or on fewer than two right and two wrong ones, says nothing


Calibration = Callable[[float], float]
"""Maps a raw score to a probability."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """p = 1 / (1 + exp(−(slope · x + intercept))); the default is the plain sigmoid."""

    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, value: float) -> float:
        """The probability for one raw score."""
        return sigmoid(self.slope * value + self.intercept)


@dataclass(frozen=True, slots=True)
class Isotonic:
    """A rising staircase: from each threshold on, the probability beside it."""

    thresholds: tuple[float, ...]
    levels: tuple[float, ...]

    def __call__(self, value: float) -> float:
        """The probability for one raw score."""
        return self.levels[max(bisect_right(self.thresholds, value) - 1, 0)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search knows about the answer it chose, and whether it was right."""

    score: float
    agreement: float  # the share of survivors that gave this answer
    confidence: float | None = None
    right: bool | None = None
    question: str = ""
    found: bool = True  # False: the text has no answer, so its probability is 0


@dataclass(frozen=True, slots=True)
class AnswerCalibration:
    """The probability that a chosen answer is right: logistic in score, agreement and confidence."""

    intercept: float
    score: float
    agreement: float
    confidence: float
    typical_confidence: float = 0.5  # stands in where a model gives none

    def p_correct(self, score: float, agreement: float, confidence: float | None = None) -> float:
        """The probability for one answer."""
        sure = self.typical_confidence if confidence is None else confidence
        return sigmoid(
            self.intercept
            + self.score * score
            + self.agreement * agreement
            + self.confidence * sure
        )

    def to_dict(self) -> dict[str, float]:
        """As data that `json.dumps` takes."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AnswerCalibration:
        """Read back what `to_dict` gave."""
        try:
            return cls(**{name: float(value) for name, value in data.items()})
        except (TypeError, ValueError) as error:
            raise SettingsError(f"this is not a calibration: {error}; fit one anew") from error


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Answers whose probability lies in [low, high): what was promised, and what came."""

    low: float
    high: float
    count: int
    mean: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Certainty:
    """How far p_correct can be trusted, on answers that it was not fitted on."""

    brier: float
    brier_of_mean: float  # of saying the mean accuracy every time
    coverage: dict[str, float]  # accuracy on the surest share of the answers, by that share
    bins: list[ReliabilityBin]


def sigmoid(value: float) -> float:
    """1 / (1 + exp(−value)), for any size of value."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    small = math.exp(value)
    return small / (1 + small)


def fit_logistic(values: Sequence[float], right: Sequence[bool]) -> Logistic:
    """The logistic curve that fits raw scores to what was right."""
    _check(right)
    slope, intercept = _logistic(np.asarray(values, dtype=np.float64)[:, None], right)
    return Logistic(float(slope), float(intercept))


def fit_isotonic(values: Sequence[float], right: Sequence[bool]) -> Isotonic:
    """The rising staircase nearest to what was right: pool neighbours until none falls."""
    _check(right)
    blocks: list[list[float]] = []  # threshold, sum of rights, count
    for value, good in sorted(zip(values, right, strict=True)):
        if blocks and blocks[-1][0] == value:
            blocks[-1][1] += good
            blocks[-1][2] += 1
        else:
            blocks.append([value, float(good), 1.0])
    merged: list[list[float]] = []
    for block in blocks:
        merged.append(block)
        while len(merged) > 1 and merged[-2][1] * merged[-1][2] >= merged[-1][1] * merged[-2][2]:
            _, rights, count = merged.pop()
            merged[-1][1] += rights
            merged[-1][2] += count
    return Isotonic(tuple(b[0] for b in merged), tuple(b[1] / b[2] for b in merged))


def fit_answers(answers: Iterable[Answer]) -> AnswerCalibration:
    """The calibration of chosen answers; those without a verdict or without an answer are left out."""
    known = [answer for answer in answers if answer.right is not None and answer.found]
    right = [bool(answer.right) for answer in known]
    _check(right)
    given = [answer.confidence for answer in known if answer.confidence is not None]
    typical = float(np.mean(given)) if given else 0.5
    features = np.array(
        [(a.score, a.agreement, typical if a.confidence is None else a.confidence) for a in known]
    )
    score, agreement, confidence, intercept = map(float, _rising(features, right))
    return AnswerCalibration(intercept, score, agreement, confidence, typical)


def cross_fitted(answers: Sequence[Answer], folds: int = 5) -> list[float]:
    """The probability of each answer by a calibration that never saw its question."""
    known = [answer for answer in answers if answer.right is not None]
    number = {question: at for at, question in enumerate(sorted({a.question for a in known}))}
    made = [
        fit_answers(a for a in known if number[a.question] % folds != fold) for fold in range(folds)
    ]
    return [
        made[number[a.question] % folds].p_correct(a.score, a.agreement, a.confidence)
        if a.found
        else 0.0
        for a in known
    ]


def _rising(features: NDArray[np.float64], right: Sequence[bool]) -> NDArray[np.float64]:
    """As `_logistic`, without negative weights: more of a feature is never worse. With few answers a
    negative weight is chance, so the feature with the lowest one is left out until none is left."""
    spread = features.std(axis=0)
    weights, kept = np.zeros(features.shape[1] + 1), list(range(features.shape[1]))
    while True:
        found = _logistic(features[:, kept], right)
        strength = found[:-1] * spread[kept]
        if not kept or strength.min() >= 0:
            weights[[*kept, -1]] = found
            return weights
        del kept[int(strength.argmin())]


def _logistic(
    features: NDArray[np.float64], right: Sequence[bool], penalty: float = 1e-2
) -> NDArray[np.float64]:
    """Newton's method on the log loss with a light L2 penalty; the last weight is the intercept.

    Features are standardised, so that the penalty means the same for all; one that never varies
    gets the weight 0.
    """
    centre, spread = features.mean(axis=0), features.std(axis=0)
    safe = np.where(spread > 0, spread, 1.0)
    points = np.column_stack([(features - centre) / safe, np.ones(len(features))])
    truth = np.asarray(right, dtype=np.float64)
    ridge = np.diag([penalty * len(truth)] * features.shape[1] + [1e-9])
    weights = np.zeros(points.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-np.clip(points @ weights, -30, 30)))
        gradient = points.T @ (chance - truth) + ridge @ weights
        curvature = (points * (chance * (1 - chance))[:, None]).T @ points + ridge
        step = np.linalg.solve(curvature + 1e-9 * np.eye(len(weights)), gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-10:
            break
    slopes = weights[:-1] / safe
    return np.append(slopes, weights[-1] - slopes @ centre)


def _check(right: Sequence[bool]) -> None:
    good = sum(map(bool, right))
    if len(right) < ENOUGH or min(good, len(right) - good) < 2:
        raise SettingsError(
            f"{len(right)} answers, {good} of them right, are too few to fit a calibration; give at "
            f"least {ENOUGH}, with two right and two wrong ones among them"
        )


def brier(probabilities: Sequence[float], right: Sequence[bool]) -> float:
    """The mean squared distance between probability and truth: 0 is perfect, 0.25 says 1/2 always."""
    return float(np.mean((np.asarray(probabilities) - np.asarray(right, dtype=np.float64)) ** 2))


def reliability(
    probabilities: Sequence[float], right: Sequence[bool], bins: int = 10
) -> list[ReliabilityBin]:
    """The reliability diagram as a table; empty bins are left out."""
    groups: dict[int, list[tuple[float, bool]]] = {}
    for value, good in zip(probabilities, right, strict=True):
        inside = min(max(value, 0.0), 1.0)
        groups.setdefault(min(int(inside * bins), bins - 1), []).append((value, good))
    return [
        ReliabilityBin(
            low=number / bins,
            high=(number + 1) / bins,
            count=len(items),
            mean=sum(value for value, _ in items) / len(items),
            accuracy=sum(good for _, good in items) / len(items),
        )
        for number, items in sorted(groups.items())
    ]


def accuracy_at_coverage(
    probabilities: Sequence[float],
    right: Sequence[bool],
    coverages: Sequence[float] = (0.1, 0.25, 0.5, 0.75, 1.0),
) -> dict[float, float]:
    """The accuracy on the surest share of answers, for each share; ties share their accuracy."""
    order = np.argsort(-np.asarray(probabilities, dtype=np.float64), kind="stable")
    values, truth = np.asarray(probabilities)[order], np.asarray(right, dtype=np.float64)[order]
    if not len(values):
        return {}
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    counts = np.diff(np.r_[starts, len(values)])
    truth = np.repeat(np.add.reduceat(truth, starts) / counts, counts)
    return {share: float(truth[: max(1, round(share * len(truth)))].mean()) for share in coverages}


def certainty(answers: Sequence[Answer]) -> Certainty | None:
    """What cross-fitted probabilities of answers are worth; None when there are too few to fit."""
    right = [bool(answer.right) for answer in answers if answer.right is not None]
    try:
        return measured(cross_fitted(answers), right)
    except SettingsError:
        return None


def measured(chances: Sequence[float], right: Sequence[bool]) -> Certainty:
    """What given probabilities are worth."""
    return Certainty(
        brier(chances, right),
        brier([sum(right) / len(right)] * len(right), right),
        {f"{share:.0%}": value for share, value in accuracy_at_coverage(chances, right).items()},
        reliability(chances, right),
    )
