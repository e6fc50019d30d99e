"""Records as curves of accuracy over NFE, and differences between curves at equal NFE.

Between two points of a curve accuracy is interpolated linearly over log NFE, problem by problem, so a
difference at equal NFE is still one number per problem and can be bootstrapped over problems with all
their seeds. Nothing is extrapolated: outside the other curve's range there is no comparison.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from s3dlm.evaluation.records import Record
from s3dlm.evaluation.statistics import Interval, bootstrap
from s3dlm.evaluation.summary import Evaluation

DRAWS = 2000  # of the bootstrap for a single accuracy; differences use the full number
Key = tuple[str, int]  # a problem and a seed
Keep = Callable[[str, str], bool]  # (task, problem) → whether it counts


@dataclass(frozen=True, slots=True)
class Point:
    """One budget of one entry: what was recorded, by task."""

    records: Mapping[str, Mapping[Key, Record]]

    @property
    def tasks(self) -> list[str]:
        return [task for task, some in self.records.items() if some]

    def nfe(self, tasks: Sequence[str]) -> float:
        """Mean over the tasks of the mean NFE of a problem."""
        means = [_mean([r.nfe for r in self.records[task].values()]) for task in tasks]
        return _mean(means)

    def total_nfe(self) -> int:
        return sum(r.nfe for some in self.records.values() for r in some.values())

    def samples(self) -> int:
        return sum(len(some) for some in self.records.values())

    def grades(self, task: str) -> dict[str, float]:
        """Each problem's grade, the mean over its seeds."""
        found: dict[str, list[float]] = {}
        for (sample, _), record in self.records[task].items():
            found.setdefault(sample, []).append(record.correct)
        return {sample: _mean(grades) for sample, grades in found.items()}

    def accuracy(self, tasks: Sequence[str]) -> Interval:
        """The mean of the tasks, with its bootstrap interval over problems."""
        return bootstrap([list(self.grades(task).values()) for task in tasks], DRAWS)[0]

    def only(self, keys: Mapping[str, set[Key]]) -> Point:
        return Point(
            {
                task: {key: r for key, r in some.items() if key in keys.get(task, ())}
                for task, some in self.records.items()
            }
        )


@dataclass(frozen=True, slots=True)
class Curve:
    """All points of one entry, cheapest first."""

    name: str
    points: tuple[Point, ...]

    def where(self, keep: Keep) -> Curve:
        """The curve on some of its problems."""
        kept = [
            Point(
                {
                    task: {key: r for key, r in some.items() if keep(task, key[0])}
                    for task, some in point.records.items()
                }
            )
            for point in self.points
        ]
        return Curve(self.name, tuple(kept))


@dataclass(frozen=True, slots=True)
class Gap:
    """A point's lead over another curve at equal NFE."""

    nfe: float
    difference: Interval
    p: float


def curves_of(run: Evaluation) -> dict[str, Curve]:
    """One curve per label; the conditions of a task are its points in the plan's order."""
    by_label: dict[str, dict[str, list[Mapping[Key, Record]]]] = {}
    for condition in run.manifest.conditions:
        records = {(r.sample, r.seed): r for r in run.records[condition]}
        by_label.setdefault(condition.label, {}).setdefault(condition.task, []).append(records)
    found = {}
    for label, tasks in by_label.items():
        count = min(len(points) for points in tasks.values())
        points = [Point({task: some[at] for task, some in tasks.items()}) for at in range(count)]
        found[label] = Curve(label, tuple(point for point in points if point.tasks))
    return found


def place(nfes: Sequence[float], at: float) -> tuple[int, float] | None:
    """Where `at` lies among rising NFEs: the point before it, and the share of the point after it,
    over log NFE; None outside."""
    if not nfes or at < nfes[0] * (1 - 1e-9) or at > nfes[-1] * (1 + 1e-9):
        return None
    for index in range(len(nfes) - 1):
        low, high = nfes[index], nfes[index + 1]
        if at <= high:
            share = math.log(at / low) / math.log(high / low) if high > low else 0.0
            return index, min(1.0, max(0.0, share))
    return len(nfes) - 1, 0.0


def rising(points: Sequence[Point], tasks: Sequence[str]) -> list[Point]:
    """The points in the order of their NFE."""
    return sorted(points, key=lambda point: point.nfe(tasks))


def gap(point: Point, other: Curve, tasks: Sequence[str]) -> Gap | None:
    """A point against another curve at the point's NFE, on the problems and seeds that both have."""
    keys = {task: _shared(task, [point, *other.points]) for task in tasks}
    if not other.points or not all(keys.values()):
        return None
    ours = point.only(keys)
    theirs = rising([one.only(keys) for one in other.points], tasks)
    found = place([one.nfe(tasks) for one in theirs], ours.nfe(tasks))
    if found is None:
        return None
    before, share = found
    after = theirs[min(before + 1, len(theirs) - 1)]
    return _gap(ours, theirs[before], after, share, tasks)


def same_budget(point: Point, other: Point, tasks: Sequence[str]) -> Gap | None:
    """Two points, whatever each of them spent, on the problems and seeds that both have."""
    keys = {task: _shared(task, [point, other]) for task in tasks}
    if not all(keys.values()):
        return None
    return _gap(point.only(keys), other.only(keys), other.only(keys), 0.0, tasks)


def _gap(ours: Point, before: Point, after: Point, share: float, tasks: Sequence[str]) -> Gap:
    gaps = []
    for task in tasks:
        mine, low, high = (one.grades(task) for one in (ours, before, after))
        gaps.append([mine[s] - (1 - share) * low[s] - share * high[s] for s in mine])
    difference, p = bootstrap(gaps)
    return Gap(ours.nfe(tasks), difference, p)


def _shared(task: str, points: Sequence[Point]) -> set[Key]:
    return set.intersection(*(set(point.records.get(task, ())) for point in points))


def accuracy_at(curve: Curve, tasks: Sequence[str], nfe: float) -> float:
    """Accuracy at an NFE; beyond an end of the curve, that end's."""
    points = rising(curve.points, tasks)
    nfes = [point.nfe(tasks) for point in points]
    values = [_mean([_mean(list(p.grades(t).values())) for t in tasks]) for p in points]
    before, share = place(nfes, min(max(nfe, nfes[0]), nfes[-1])) or (0, 0.0)
    after = min(before + 1, len(values) - 1)
    return (1 - share) * values[before] + share * values[after]


def nfe_to_reach(curve: Curve, tasks: Sequence[str], accuracy: float) -> float | None:
    """The least NFE at which a curve has this accuracy; None if it never has."""
    points = rising(curve.points, tasks)
    known = [
        (p.nfe(tasks), _mean([_mean(list(p.grades(t).values())) for t in tasks])) for p in points
    ]
    if known and known[0][1] >= accuracy - 1e-12:
        return known[0][0]
    for (low, worse), (high, better) in itertools.pairwise(known):
        if better >= accuracy - 1e-12:
            share = (accuracy - worse) / (better - worse)
            return math.exp(math.log(low) + share * math.log(high / low))
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
