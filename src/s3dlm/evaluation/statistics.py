"""The statistics that a comparison of methods needs.

Methods are compared on the same problems, so differences are paired. Several seeds of one problem are
not independent: everything here counts problems, and the bootstrap draws problems with all their
seeds. Over several tasks the figure is the mean of the tasks, and problems are drawn within each.

How well a score tells right outputs from wrong ones: AUC asks it of any two outputs, *pair accuracy*
only of two outputs to one question, as a search does: a score that only knows easy questions from hard
ones has a fine AUC. Ties count half in both. Intervals are percentiles of a bootstrap over questions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Failure, Record

Floats = NDArray[np.float64]
Z95 = 1.959963984540054  # the normal quantile of a two-sided 95 % interval
AVERAGED = ("nfe", "nfe_logical", "tokens", "answer_tokens")  # in a record and a cell
LEAST_PROBLEMS = 10  # problems, with fewer of which there is no p-value


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % bounds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Method a against method b on the same problems: positive differences favour a."""

    problems: int
    wins: int  # problems on which a is better, as the mean over the seeds
    losses: int
    difference: Interval  # of accuracies, bootstrap over problems
    p: float  # the larger of the bootstrap's and the exact sign test's; NaN below ten problems


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition, summarised over its problems and seeds."""

    condition: Condition
    problems: int
    seeds: int
    failed: int  # samples without a result, which count as wrong
    accuracy: Interval
    unanswered: float  # share of results without an answer
    nfe: float
    nfe_logical: float  # without sharing: what Algorithm 1 needs
    seconds: float  # wall-clock time per sample, batched
    latency: float  # total wall-clock time
    wall: float  # the paper's wall time: mean of the times at which samples finish
    tokens: float
    answer_tokens: float
    ess: float
    distinct: float  # different texts among the survivors


def summarise(condition: Condition, rows: Sequence[Record | Failure]) -> Cell:
    """The figures of one condition; a failed sample counts as a wrong answer."""
    records = [row for row in rows if isinstance(row, Record)]
    problems = len({row.sample for row in rows})
    right = sum(row.correct for row in rows)
    latency = max((record.at for record in records), default=math.nan)
    return Cell(
        condition=condition,
        problems=problems,
        seeds=len({row.seed for row in rows}),
        failed=len(rows) - len(records),
        accuracy=wilson(right / len(rows) if rows else math.nan, problems),
        unanswered=mean(float(r.answer is None) for r in records),
        seconds=latency / len(records) if records else math.nan,
        latency=latency,
        wall=mean(record.at for record in records),
        ess=mean(math.nan if r.ess is None else r.ess for r in records),
        distinct=mean(len({survivor.text for survivor in r.survivors}) for r in records),
        **{name: mean(getattr(r, name) for r in records) for name in AVERAGED},
    )


def mean_cell(cells: Sequence[Cell]) -> Cell:
    """The mean of several tasks, each of which counts once; problems and samples are added up."""
    made: dict[str, Any] = {"accuracy": mean_of(cell.accuracy for cell in cells)}
    for name in {each.name for each in fields(Cell)} - {"condition", "seeds", *made}:
        values = [getattr(cell, name) for cell in cells]
        made[name] = sum(values) if name in ("problems", "failed") else mean(values)
    return replace(cells[0], **made) if len(cells) > 1 else cells[0]


def mean(values: Iterable[float]) -> float:
    """The mean of the values that are known; NaN if none is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def wilson(share: float, n: int) -> Interval:
    """Wilson's score interval of a share among n independent trials; scipy's takes a whole number of
    successes, and a mean over seeds is none."""
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    z2 = Z95 * Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At shares of 0 and 1 rounding would put the bound on the wrong side of the estimate.
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def mean_of(intervals: Iterable[Interval]) -> Interval:
    """The mean of independent estimates. Its bounds combine theirs (Zou and Donner's MOVER), so that
    it keeps a width where all answers are right, and a bootstrap has none."""
    known = [interval for interval in intervals if not math.isnan(interval.value)]
    if not known:
        return Interval(math.nan, math.nan, math.nan)
    value = sum(each.value for each in known) / len(known)
    below = math.sqrt(sum((each.value - each.low) ** 2 for each in known)) / len(known)
    above = math.sqrt(sum((each.high - each.value) ** 2 for each in known)) / len(known)
    return Interval(value, max(0.0, value - below), min(1.0, value + above))


def sign_test(wins: int, losses: int) -> float:
    """McNemar's exact two-sided test; a win or loss is a problem, never a problem and seed."""
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**n)))


def bootstrap(tasks: Sequence[Sequence[float]], draws: int = 10_000) -> tuple[Interval, float]:
    """The mean over tasks of one value per problem, its percentile interval, a two-sided p-value."""
    groups = [np.asarray(values, dtype=np.float64) for values in tasks if len(values)]
    if not groups:
        return Interval(math.nan, math.nan, math.nan), 1.0
    rng = np.random.default_rng(0)  # the same records give the same interval
    means = np.zeros(draws)
    for values in groups:
        for part in np.split(means, range(500, draws, 500)):  # so that memory stays small
            index = rng.integers(0, values.size, size=(part.size, values.size))
            part += values[index].mean(axis=1) / len(groups)
    return percentiles(float(np.mean([values.mean() for values in groups])), means)


def percentiles(value: float, drawn: Floats) -> tuple[Interval, float]:
    """A figure with the percentile interval of its bootstrap draws, and a two-sided p-value."""
    low, high = np.quantile(drawn, [0.025, 0.975])
    tail = min(int((drawn <= 1e-12).sum()), int((drawn >= -1e-12).sum()))
    return Interval(value, float(low), float(high)), min(1.0, 2 * (tail + 1) / (len(drawn) + 1))


def compare(tasks: Sequence[Sequence[float]]) -> Comparison:
    """A paired comparison: per task, each problem's difference of grades, the mean over its seeds."""
    return judged([gap for task in tasks for gap in task], *bootstrap(tasks))


def judged(gaps: Sequence[float], difference: Interval, p_bootstrap: float) -> Comparison:
    """With the larger of the bootstrap's p-value and the exact sign test's, and none if problems are
    few: where all gaps agree, no bootstrap draw disagrees, however few they are."""
    wins, losses = sum(gap > 1e-12 for gap in gaps), sum(gap < -1e-12 for gap in gaps)
    p = max(p_bootstrap, sign_test(wins, losses)) if len(gaps) >= LEAST_PROBLEMS else math.nan
    return Comparison(len(gaps), wins, losses, difference, p)


COVERAGES = (0.1, 0.25, 0.5, 0.75, 1.0)  # shares of the answers, surest first
BINS = 10  # of the reliability diagram


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Answers whose probability lies in [low, high): what was promised, and what came."""

    low: float
    high: float
    count: int
    mean: float
    accuracy: float

    def to_row(self) -> tuple[str, ...]:
        """Bounds, count, mean and accuracy in per cent, as a table shows them."""
        bounds = f"{self.low:.1f}–{self.high:.1f}"
        return bounds, str(self.count), f"{self.mean:.3f}", f"{100 * self.accuracy:.1f}"


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """How far probabilities can be trusted."""

    brier: float  # mean squared distance to the truth: 0 is perfect, 0.25 says 1/2 every time
    brier_of_mean: float  # of saying the mean accuracy every time
    coverage: dict[str, float]  # accuracy on the surest share of the answers, by that share
    bins: list[ReliabilityBin]  # without empty ones

    @classmethod
    def of(cls, probabilities: Sequence[float], right: Sequence[bool]) -> CalibrationReport:
        values, truth = np.asarray(probabilities), np.asarray(right, dtype=np.float64)
        numbers, bins = np.clip((values * BINS).astype(int), 0, BINS - 1), []
        for number in np.unique(numbers).tolist():
            inside = numbers == number
            means = float(values[inside].mean()), float(truth[inside].mean())
            bounds = number / BINS, (number + 1) / BINS
            bins.append(ReliabilityBin(*bounds, int(inside.sum()), *means))
        _, index = np.unique(-values, return_inverse=True)
        counts = np.bincount(index)
        # From the surest answer down; ties share their accuracy.
        ranked = np.repeat(np.bincount(index, weights=truth) / counts, counts)
        return cls(
            brier=float(np.mean((values - truth) ** 2)),
            brier_of_mean=float(truth.var()),
            coverage={
                f"{share:.0%}": float(ranked[: max(1, round(share * len(truth)))].mean())
                for share in COVERAGES
            },
            bins=bins,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % bootstrap interval; None when there is nothing to estimate it from."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def resamples(questions: int, draws: int, seed: int) -> Floats:
    """How often each bootstrap draw holds each question, [draws, questions]; one question has none."""
    share, draws = np.full(questions, 1 / max(questions, 1)), draws if questions > 1 else 0
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
    drawn = counts[:, np.asarray(question)[order]]
    weights = np.vstack([np.ones(len(values)), drawn])  # first each output once
    good = np.add.reduceat(weights * truth, starts, axis=1)
    bad = np.add.reduceat(weights * (1 - truth), starts, axis=1)
    wins = (good * (np.cumsum(bad, axis=1) - bad / 2)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = wins / (good.sum(axis=1) * bad.sum(axis=1))
    return _interval(float(shares[0]), shares[1:])


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


def over_questions(values: Sequence[float], question: Sequence[int], counts: Floats) -> Estimate:
    """The mean over questions of each question's mean."""
    means = np.bincount(question, values) / np.bincount(question)
    return _interval(float(means.mean()), counts @ means / len(means))


def _interval(value: float, drawn: Floats) -> Estimate:
    drawn = drawn[np.isfinite(drawn)]
    bounds = map(float, np.percentile(drawn, [2.5, 97.5])) if len(drawn) else ()
    return Estimate(value, *bounds)
