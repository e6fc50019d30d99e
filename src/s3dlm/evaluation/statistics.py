"""The few statistics a comparison of methods needs, without a dependency.

Methods meet on the same problems, so differences are tested in pairs. Several seeds of one problem
are not independent: intervals count problems, and the bootstrap draws problems with all their seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Z95 = 1.959963984540054  # the normal quantile of a two-sided 95 % interval


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % bounds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Method a against method b on the same problems: positive differences favour a."""

    pairs: int
    wins: int  # a right, b wrong
    losses: int  # a wrong, b right
    difference: Interval  # of accuracies, bootstrap over problems
    p_mcnemar: float
    p_bootstrap: float


def wilson(share: float, n: int) -> Interval:
    """Wilson's score interval of a share among n independent trials."""
    if n == 0:
        return Interval(math.nan, 0.0, 1.0)
    z2 = Z95 * Z95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At shares of 0 and 1 rounding would put the bound on the wrong side of the estimate.
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def mcnemar(wins: int, losses: int) -> float:
    """Exact two-sided McNemar test: could a fair coin have split the disagreements so unevenly?"""
    n, k = wins + losses, min(wins, losses)
    if n == 0:
        return 1.0
    logs = [
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2)
        for i in range(k + 1)
    ]
    top = max(logs)
    return min(1.0, 2 * math.exp(top) * sum(math.exp(value - top) for value in logs))


def bootstrap(differences: Sequence[float], draws: int = 10_000) -> tuple[Interval, float]:
    """Mean of one difference a problem, its percentile interval and a two-sided p-value."""
    values = np.asarray(differences, dtype=np.float64)
    if values.size == 0:
        return Interval(math.nan, math.nan, math.nan), 1.0
    rng = np.random.default_rng(0)  # the same records give the same interval
    means = np.empty(draws)
    for start in range(0, draws, 500):  # in slices, so that memory stays small
        count = min(500, draws - start)
        index = rng.integers(0, values.size, size=(count, values.size))
        means[start : start + count] = values[index].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    tail = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p_value = min(1.0, 2 * (tail + 1) / (draws + 1))
    return Interval(float(values.mean()), float(low), float(high)), p_value


def compare(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Comparison:
    """Paired comparison; each problem brings one mark a seed, in the same order on both sides."""
    pairs = [
        (x, y)
        for first, second in zip(ours, theirs, strict=True)
        for x, y in zip(first, second, strict=True)
    ]
    wins = sum(x > y for x, y in pairs)
    losses = sum(x < y for x, y in pairs)
    per_problem = [
        float(np.mean(first) - np.mean(second)) for first, second in zip(ours, theirs, strict=True)
    ]
    difference, p_bootstrap = bootstrap(per_problem)
    return Comparison(len(pairs), wins, losses, difference, mcnemar(wins, losses), p_bootstrap)


def expected_maximum(values: Sequence[float], k: int) -> float:
    """Mean of the largest of k values drawn without replacement: exact, by order statistics."""
    ordered = sorted(values)
    n = len(ordered)
    total = math.comb(n, k)
    return sum(value * math.comb(i, k - 1) for i, value in enumerate(ordered)) / total


def best_of_k_bound(values: Sequence[float], k: int) -> float:
    """The paper's bound on the best of k: mean + σ·√(2 ln k)."""
    return float(np.mean(values) + np.std(values) * math.sqrt(2 * math.log(k)))
