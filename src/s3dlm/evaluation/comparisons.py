"""Methods against each other: paired comparisons, one sentence, and differences at equal cost.

At equal cost, a point of one curve is compared with another curve. Between two of its points a curve is
interpolated linearly over log cost. A bootstrap draw takes problems with all their seeds, and with them
what each method spent on them: in every draw both curves have another cost, too, so that a difference is
not taken for certain because of where a point happens to lie. Nothing is extrapolated: outside the other
curve's range there is no comparison.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from s3dlm.errors import RecordError, SettingsError, unknown_name
from s3dlm.evaluation.formats import ABSENT, LEVEL, Table, p_value, percent, points
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import Condition, title_of
from s3dlm.evaluation.statistics import Cell, Comparison, Floats, judged, percentiles
from s3dlm.evaluation.tables import TableRow, by_method, table

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("revise", "s3")  # methods that sentences are about, if they were run
MEAN = "mean of tasks"
# Pairs that differ in the search alone, or in how an answer is chosen at the end alone.
PAIRS = (
    ("s3", "best_of_k"),
    ("s3_verified", "verified_best_of_k"),
    ("verified_best_of_k", "best_of_k"),
    ("s3_verified", "s3"),
)
OURS, CONTROL = "s3", "best_of_k"  # the curves that are compared at equal cost
DRAWS, AT_ONCE = 10_000, 500


def reference_of(run: RecordedRun, requested: str | None = None) -> str:
    """The method that all others are compared with."""
    labels = run.labels()
    if not labels:
        raise RecordError("the run has no main comparison, so there is nothing to report on")
    if requested is not None and requested not in labels:
        raise SettingsError(unknown_name("reference", requested, labels))
    defaults = (each for name in REFERENCES for each in labels if each.partition(" (")[0] == name)
    return requested or next(defaults, labels[0])


def comparisons(run: RecordedRun, reference: str) -> Table:
    """Every method against the reference, and pairs that differ in one thing."""
    pairs = [(label, reference) for label in run.labels()] + [*PAIRS]
    mean = {row.label: row.cells for row in by_method(run)}
    rows = []
    for label, other in dict.fromkeys(pairs):
        both = {t: cell for t, cell in mean.get(label, {}).items() if t in mean.get(other, {})}
        parts = [both] * (len(both) > 1) + [{task: cell} for task, cell in both.items()]
        rows += [TableRow(run, label, cells, other) for cells in parts if label != other]
    note = (
        "Points: difference in accuracy on the problems and seeds that both have, with a 95 % bootstrap "
        "interval over problems with all their seeds (10,000 draws). Better : worse counts problems, by "
        "the mean over seeds. p is the larger of the bootstrap's and the exact sign test's over "
        "problems; emphasised below 0.05."
    )
    return table("comparisons", f"Differences to {reference} and between methods", rows, note)


def sentences(run: RecordedRun, reference: str) -> list[str]:
    """What came out: one sentence per headline method, or on the only one."""
    rows = {row.label: row for row in by_method(run, reference)}
    others = [label for label in rows if label != reference]
    if not others:
        return [_alone(row) for row in rows.values()]
    chosen = [label for label in HEADLINE if label in others] or others
    return [text for label in chosen if (text := _sentence(run, rows, label, reference))]


def _alone(row: TableRow) -> str:
    cell, where = row.cell, row.task
    return (
        f"{row.label} answers {percent(cell.accuracy)} % of {cell.problems} problems right ({where}), "
        f"with {cell.nfe:.1f} passes per problem ({cell.nfe_logical:.1f} without sharing)."
    )


def _sentence(run: RecordedRun, rows: Mapping[str, TableRow], label: str, reference: str) -> str:
    """A method against the most accurate other one with the same tasks, then against the reference."""
    if rows[label].compared is None:
        return ""

    def outcome(found: Comparison) -> str:
        if found.p < LEVEL:
            return "better than" if found.difference.value > 0 else "worse than"
        few = math.isnan(found.p)
        return "not yet distinguishable from" if few else "not significantly different from"

    def in_words(other: str, found: Comparison) -> str:
        """The difference with interval and p-value, and what both spent."""
        p = "too few problems to judge" if math.isnan(found.p) else f"p = {p_value(found.p)}"
        pair = (label, other), (other, label)
        spent = " instead of ".join(f"{run.mean_nfe(*names):.1f}" for names in pair)
        cells = [rows[each].cell for each in (label, other) if each in rows]
        logical = " instead of ".join(f"{cell.nfe_logical:.1f}" for cell in cells)
        return (
            f"{points(found.difference, 1.0)} points, {p.replace('= <', '<')}, for {spent} passes per problem"
            f"{f', or {logical} without sharing' if cells[1:] else ''}"
        )

    rivals = [o for o in rows if o != label and rows[o].cells.keys() == rows[label].cells.keys()]
    top = max(rivals, key=lambda other: rows[other].cell.accuracy.value, default=reference)
    whole = run.compare(label, top)
    role = ", the most accurate other method," if len(rivals) > 1 else ""
    parts = [
        f"{label} is {outcome(whole)} {top}{role} in accuracy: {in_words(top, whole)} "
        f"({rows[label].task}, {whole.problems} problems)"
    ]
    if top != reference:
        found = run.compare(label, reference)
        parts.append(f"it is {outcome(found)} {reference}: {in_words(reference, found)}")
    alone = [(title_of(task), run.compare(label, reference, task)) for task in rows[label].cells]
    for word in ("better", "worse") if len(alone) > 1 else ():
        alike = [(t, c) for t, c in alone if outcome(c) == f"{word} than"]
        if alike:
            shifts = [f"{title} ({100 * found.difference.value:+.1f})" for title, found in alike]
            parts.append(f"significantly {word} than {reference} on {', '.join(shifts)}")
    return f"{'; '.join(parts)}."


def lead(tasks: Sequence[tuple[Floats, Floats]]) -> tuple[float, Comparison] | None:
    """A point's lead over another curve at equal cost, and that cost. Per task, grades and costs of shape
    (1 + points, problems), the first row ours; None outside the other curve's range. The figure is the
    mean of the tasks."""
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


def sweep(run: RecordedRun) -> Table:
    """Methods over particles and branching, and s3 against best_of_k at as many forward passes."""
    found: dict[tuple[str, tuple[int, int]], dict[str, Cell]] = {}
    for cell in run.swept("particles", "branching"):
        condition = cell.condition
        found.setdefault((condition.label, condition.budget), {})[condition.task] = cell
    whole = {key: cells for key, cells in sorted(found.items()) if len(cells) == len(run.tasks)}
    labels = [label for label, _ in whole]
    others = [cells for (label, _), cells in whole.items() if label == CONTROL]
    rows = []
    for (label, _), cells in whole.items():
        gap = _gap(run, [cells, *others]) if label == OURS else (ABSENT, ABSENT)
        rows += [TableRow(run, label, cells, gap=gap)] * (labels.count(label) > 1)
    note = (
        f"On the problems and seeds that all points share. At equal passes: accuracy of {OURS} minus that of "
        f"{CONTROL}, whose curve over K is interpolated over the logarithm of passes; 95 % bootstrap interval over "
        f"problems, their passes included. –: {CONTROL} never spends as much, or as little."
    )
    return table("sweep", "Over particles N and branching b", rows, note)


def _gap(run: RecordedRun, curve: Sequence[Mapping[str, Cell]]) -> tuple[str, str]:
    """The lead of the first point over the others at equal NFE."""
    if len(curve) < 3:
        return ABSENT, ABSENT
    ahead = lead([_matrices(run, [point[task].condition for point in curve]) for task in curve[0]])
    if ahead is None:
        return ABSENT, ABSENT
    return points(ahead[1].difference, ahead[1].p), p_value(ahead[1].p)


def _matrices(run: RecordedRun, conditions: Sequence[Condition]) -> tuple[Floats, Floats]:
    """Grades and NFE of some conditions of a task, [conditions, problems], on what all have."""
    numbers = [run.manifest.conditions.index(condition) for condition in conditions]
    rows = run.frame[run.frame.condition.isin(numbers)].astype({"correct": float, "nfe": float})
    wide = rows.pivot(index=["sample", "seed"], columns="condition", values=["correct", "nfe"])
    shared = wide[wide["correct"].notna().all(axis=1)].groupby(level="sample").mean()
    both = [shared[name][numbers].to_numpy().T for name in ("correct", "nfe")]
    return both[0], np.nan_to_num(both[1], nan=float(np.nanmean(both[1])))
