"""Differences between methods at equal cost: a point of one curve against another curve.

Between two of its points a curve is interpolated linearly over log cost. A bootstrap draw takes problems
with all their seeds, and with them what each method spent on them: in every draw both curves have another
cost, too, so that a difference is not taken for certain because of where a point happens to lie. Nothing
is extrapolated: outside the other curve's range there is no comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s3dlm.evaluation.comparisons import MEAN
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.statistics import Floats, Interval, mean, percentiles, summarise
from s3dlm.evaluation.tables import Table, number, p_value, points

DRAWS, AT_ONCE = 10_000, 500
OURS, OTHER = "s3", "best_of_k"  # the curves of a reproduction
Budget = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Lead:
    """A point's lead over another curve at equal cost."""

    cost: float
    difference: Interval
    p: float


def lead(tasks: Sequence[tuple[Floats, Floats]]) -> Lead | None:
    """Per task, grades and costs of shape (1 + points, problems), the first row ours; None outside
    the other curve's range. The figure is the mean of the tasks."""
    grades, costs = (np.mean([part[i].mean(axis=1) for part in tasks], axis=0) for i in (0, 1))
    low, high = costs[1:].min() * (1 - 1e-9), costs[1:].max() * (1 + 1e-9)
    if not low <= costs[0] <= high:
        return None
    rng, drawn = np.random.default_rng(0), []  # the same records give the same interval
    for _ in range(DRAWS // AT_ONCE):
        both = np.zeros((2, AT_ONCE, len(grades)))
        for task in tasks:
            size = task[0].shape[1]
            counts = rng.multinomial(size, np.full(size, 1 / size), size=AT_ONCE) / size
            both += np.stack([counts @ values.T for values in task]) / len(tasks)
        drawn += [_difference(*pair) for pair in zip(*both, strict=True)]
    return Lead(float(costs[0]), *percentiles(_difference(grades, costs), np.array(drawn)))


def _difference(grades: Floats, costs: Floats) -> float:
    order = 1 + np.argsort(costs[1:], kind="stable")
    there = np.interp(np.log(costs[0]), np.log(costs[order]), grades[order])
    return float(grades[0] - there)


def table(run: Run) -> Table:
    """s3 over N and b against best_of_k at as many forward passes, and in as many seconds."""
    swept = run.swept("particles", "branching")
    budgets = {label: _budgets(swept, label, len(run.tasks)) for label in (OURS, OTHER)}
    rows = []
    for budget, ours in budgets[OURS].items() if len(budgets[OTHER]) > 1 else ():
        curve = [ours, *budgets[OTHER].values()]
        cells = [summarise(c, records) for c, records in ours.items()]
        by_nfe, by_time = (
            [_matrices(curve, task, timed) for task in run.tasks] for timed in (False, True)
        )
        timed = all(np.isfinite(costs).all() and (costs > 0).all() for _, costs in by_time)
        leads = lead(by_nfe), lead(by_time) if timed else None
        rows.append((
            *map(str, budget), number(100 * mean(cell.accuracy.value for cell in cells)),
            number(mean(cell.nfe for cell in cells)), *_words(leads[0]),
            number(mean(cell.seconds for cell in cells), 3), *_words(leads[1]),
        ))  # fmt: skip
    problems = sorted({len({r.sample for r in records}) for records in swept.values()})
    columns = ("N", "b", "Accuracy", "NFE", "Δ at equal NFE", "p",
               "s per sample", "Δ at equal seconds", "p")  # fmt: skip
    note = (
        f"{MEAN.capitalize()}, {'–'.join(map(str, problems))} problems each. Δ: accuracy of {OURS} minus "
        f"that of {OTHER}, whose curve over K is interpolated over log NFE or log seconds; 95 % bootstrap "
        "interval over problems, their NFE included; seconds are those of the timed samples and not "
        f"resampled. –: {OTHER} never spends as much, or as little."
    )
    title = f"{OURS} against {OTHER} at equal cost"
    return Table("equal_cost", title, columns, rows, note, late=True)


def _budgets(
    swept: Mapping[Condition, list[Record]], label: str, tasks: int
) -> dict[Budget, dict[Condition, list[Record]]]:
    """The conditions of one method by N and b, where all tasks have them."""
    found: dict[Budget, dict[Condition, list[Record]]] = {}
    for condition, records in swept.items():
        if condition.label == label:
            found.setdefault(condition.budget, {})[condition] = records
    return {budget: some for budget, some in sorted(found.items()) if len(some) == tasks}


def _matrices(
    curve: Sequence[Mapping[Condition, list[Record]]], task: str, timed: bool
) -> tuple[Floats, Floats]:
    """Grades and costs of all points on one task, problems in the same order."""
    grades, costs = [], []
    for point in curve:
        condition, records = next((c, r) for c, r in point.items() if c.task == task)
        by_problem: dict[str, list[Record]] = {}
        for record in sorted(records, key=lambda record: record.sample):
            by_problem.setdefault(record.sample, []).append(record)
        grades.append([mean(r.correct for r in some) for some in by_problem.values()])
        seconds = summarise(condition, records).seconds
        costs.append(
            [seconds if timed else mean(r.nfe for r in some) for some in by_problem.values()]
        )
    return np.array(grades), np.array(costs)


def _words(found: Lead | None) -> tuple[str, str]:
    return ("–", "–") if found is None else (points(found.difference, found.p), p_value(found.p))
