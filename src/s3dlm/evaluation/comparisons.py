"""Methods against each other: paired comparisons, one sentence, and a row per particles and branching."""

from __future__ import annotations

import math
from collections.abc import Mapping

from s3dlm.errors import RecordError, SettingsError, unknown_name
from s3dlm.evaluation.formats import LEVEL, Table, p_value, percent, points
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.statistics import Cell, Comparison
from s3dlm.evaluation.tables import TableRow, by_method, table

REFERENCES = ("best_of_k", "baseline", "greedy")  # what others are compared with, if it was run
HEADLINE = ("revise", "s3")  # methods that sentences are about, if they were run
# Pairs that differ in the search alone, or in how an answer is chosen at the end alone.
PAIRS = (
    ("s3", "best_of_k"),
    ("s3_verified", "verified_best_of_k"),
    ("verified_best_of_k", "best_of_k"),
    ("s3_verified", "s3"),
)


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
    if not rows[label].compared.problems:
        return ""

    def outcome(found: Comparison) -> str:
        if found.p < LEVEL:
            return "better than" if found.difference.value > 0 else "worse than"
        few = math.isnan(found.p)
        return "not yet distinguishable from" if few else "not significantly different from"

    def in_words(other: str, found: Comparison) -> str:
        """The difference with interval and p-value, and what both spent."""
        p = "too few problems to judge" if math.isnan(found.p) else f"p = {p_value(found.p)}"
        cells = [rows[each].cell for each in (label, other)]
        spent = " instead of ".join(f"{cell.nfe:.1f}" for cell in cells)
        logical = " instead of ".join(f"{cell.nfe_logical:.1f}" for cell in cells)
        return (
            f"{points(found.difference, 1.0)} points, {p.replace('= <', '<')}, for {spent} passes per problem, "
            f"or {logical} without sharing"
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


def sweep(run: RecordedRun) -> Table:
    """Methods over particles and branching."""
    found: dict[tuple[str, tuple[int, int]], dict[str, Cell]] = {}
    for cell in run.swept("particles", "branching"):
        condition = cell.condition
        found.setdefault((condition.label, condition.budget), {})[condition.task] = cell
    whole = {key: cells for key, cells in sorted(found.items()) if len(cells) == len(run.tasks)}
    labels = [label for label, _ in whole]
    rows = [
        TableRow(run, key[0], cells) for key, cells in whole.items() if labels.count(key[0]) > 1
    ]
    note = "On the problems and seeds that all points share."
    return table("sweep", "Over particles N and branching b", rows, note)
