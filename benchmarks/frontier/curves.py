"""Records as curves of accuracy over NFE, and differences between curves at equal NFE.

A curve is a data frame with a row per record (`point`, `task`, `sample`, `seed`, `correct`, `nfe`); a
point is the part of it with one number of `point`.

At equal NFE, a point of one curve is compared with another curve. Between two of its points a curve is
interpolated linearly over log NFE. A bootstrap draw takes problems with all their seeds, and with them
what each method spent on them: in every draw both curves have another NFE, too, so that a difference is
not taken for certain because of where a point happens to lie. Nothing is extrapolated: outside the other
curve's range there is no comparison.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.statistics import (
    Comparison,
    Floats,
    Interval,
    bootstrap,
    compare,
    judged,
    mean,
    percentiles,
)

DRAWS = 2000  # of the bootstrap for a single accuracy
LEAD_DRAWS, AT_ONCE = 10_000, 500


@dataclass(frozen=True, slots=True)
class Gap:
    """A point's lead over another curve at equal NFE."""

    nfe: float
    difference: Interval
    p: float


def curves_of(run: RecordedRun) -> dict[str, pd.DataFrame]:
    """One curve per label; the conditions of a task are its points in the plan's order."""
    conditions = pd.DataFrame([(c.label, c.task) for c in run.manifest.conditions])
    point = conditions.groupby([0, 1]).cumcount()
    frame = run.frame.assign(point=run.frame.condition.map(point))
    return {label: frame[frame.label == label] for label in conditions[0].unique()}


def points(curve: pd.DataFrame) -> list[pd.DataFrame]:
    return [rows for _, rows in curve.groupby("point")]


def rising(many: Sequence[pd.DataFrame], tasks: Sequence[str]) -> list[pd.DataFrame]:
    """The points in the order of their NFE."""
    return sorted(many, key=lambda point: nfe(point, tasks))


def nfe(point: pd.DataFrame, tasks: Sequence[str], cost: str = "nfe") -> float:
    """Mean over the tasks of the mean NFE of a problem; `nfe_logical` is without sharing."""
    return mean(point[cost][point.task == task].mean() for task in tasks)


def grades(point: pd.DataFrame, task: str) -> pd.Series:
    """Each problem's grade, the mean over its seeds."""
    return point[point.task == task].groupby("sample", sort=False).correct.mean()


def accuracy(point: pd.DataFrame, tasks: Sequence[str]) -> Interval:
    """The mean of the tasks, with its bootstrap interval over problems."""
    return bootstrap([list(grades(point, task)) for task in tasks], DRAWS)[0]


def gap(point: pd.DataFrame, other: pd.DataFrame, tasks: Sequence[str]) -> Gap | None:
    """A point against another curve at the point's NFE, on the problems and seeds that both have."""
    both = _shared([point, *points(other)], tasks)
    if both is None or len(both) == 1:
        return None
    found = lead([_matrices(both, task) for task in tasks])
    return None if found is None else Gap(found[0], found[1].difference, found[1].p)


def _matrices(many: Sequence[pd.DataFrame], task: str) -> tuple[Floats, Floats]:
    """Grades and NFE of some points on the problems of a task."""
    frames = [point[point.task == task].groupby("sample") for point in many]
    grade, spent = ([list(each[name].mean()) for each in frames] for name in ("correct", "nfe"))
    return np.array(grade, dtype=float), np.array(spent, dtype=float)


def lead(tasks: Sequence[tuple[Floats, Floats]]) -> tuple[float, Comparison] | None:
    """A point's lead over another curve at equal NFE, and that cost. Per task, grades and costs of shape
    (1 + points, problems), the first row ours; None outside the other curve's range. The figure is the
    mean of the tasks."""
    grades, costs = (np.mean([part[i].mean(axis=1) for part in tasks], axis=0) for i in (0, 1))
    low, high = costs[1:].min() * (1 - 1e-9), costs[1:].max() * (1 + 1e-9)
    if not low <= costs[0] <= high:
        return None
    rng, drawn = np.random.default_rng(0), []  # the same records give the same interval
    for _ in range(LEAD_DRAWS // AT_ONCE):
        both = np.zeros((2, AT_ONCE, len(grades)))
        for task in tasks:
            size = task[0].shape[1]
            counts = rng.multinomial(size, np.full(size, 1 / size), size=AT_ONCE) / size
            both += np.stack([counts @ values.T for values in task]) / len(tasks)
        drawn.append(_ahead(both[0], both[1]))
    gaps = [_ahead(part[0].T, np.tile(costs, (part[0].shape[1], 1))) for part in tasks]
    difference = float(_ahead(grades[None], costs[None])[0])
    figure = percentiles(difference, np.concatenate(drawn))
    return float(costs[0]), judged(np.concatenate(gaps).tolist(), *figure)


def _ahead(grades: Floats, costs: Floats) -> Floats:
    """The first grade minus the others', interpolated at the first cost; both [cases, 1 + points]."""
    order = 1 + np.argsort(costs[:, 1:], axis=1, kind="stable")
    logs, others = np.log(costs), np.take_along_axis(grades, order, axis=1)
    at = np.take_along_axis(logs, order, axis=1)
    cases = zip(grades[:, 0], logs[:, 0], at, others, strict=True)
    return np.array([ours - np.interp(spent, *curve) for ours, spent, *curve in cases])


def same_budget(point: pd.DataFrame, other: pd.DataFrame, tasks: Sequence[str]) -> Gap | None:
    """Two points, whatever each of them spent, on the problems and seeds that both have."""
    both = _shared([point, other], tasks)
    if both is None:
        return None
    gaps = []
    for task in tasks:
        ours, theirs = grades(both[0], task), grades(both[1], task)
        gaps.append(list(ours - theirs.reindex(ours.index)))
    found = compare(gaps)
    return Gap(nfe(both[0], tasks), found.difference, found.p)


def _shared(many: Sequence[pd.DataFrame], tasks: Sequence[str]) -> list[pd.DataFrame] | None:
    """The points on the problems and seeds that all have; None if a task has none."""
    keys = [pd.MultiIndex.from_frame(point[["task", "sample", "seed"]]) for point in many]
    common = functools.reduce(lambda one, other: one.intersection(other), keys)
    if not set(tasks) <= set(common.get_level_values("task")):
        return None
    return [point[key.isin(common)] for point, key in zip(many, keys, strict=True)]


def _path(curve: pd.DataFrame, tasks: Sequence[str]) -> list[tuple[float, float]]:
    """NFE and accuracy of every point, cheapest first."""
    return [
        (nfe(point, tasks), mean(grades(point, task).mean() for task in tasks))
        for point in rising(points(curve), tasks)
    ]


def accuracy_at(curve: pd.DataFrame, tasks: Sequence[str], at: float) -> float:
    """Accuracy at an NFE, linear over its logarithm; beyond an end of the curve, that end's."""
    nfes, values = zip(*_path(curve, tasks), strict=True)
    return float(np.interp(math.log(at), np.log(nfes), values))


def nfe_to_reach(curve: pd.DataFrame, tasks: Sequence[str], goal: float) -> float | None:
    """The least NFE at which a curve has this accuracy; None if it never has."""
    path = _path(curve, tasks)
    if path and path[0][1] >= goal - 1e-12:
        return path[0][0]
    for (low, worse), (high, better) in itertools.pairwise(path):
        if better >= goal - 1e-12:
            share = (goal - worse) / (better - worse)
            return math.exp(math.log(low) + share * math.log(high / low))
    return None
