"""The frontier's tables: curves, differences at equal NFE, leave-one-out, other methods, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.frontier.curves import (
    Curve,
    Gap,
    Point,
    gap,
    nfe_to_reach,
    rising,
    same_budget,
)
from benchmarks.frontier.entries import CONTROLS, ENTRIES, OURS, Entry
from benchmarks.frontier.stages import Chosen
from s3dlm.evaluation.comparisons import LEVEL, MEAN, p_value
from s3dlm.evaluation.series import Table
from s3dlm.evaluation.summary import Evaluation
from s3dlm.evaluation.tables import Grid, percent, title_of

BY_LENGTH = "chain"  # its problems have groups n=2 … n=10; it is no part of the mean


@dataclass(frozen=True, slots=True)
class Frontier:
    """All curves of a run, and the tasks that their mean is over."""

    run: Evaluation
    curves: Mapping[str, Curve]
    chosen: Chosen | None

    @property
    def tasks(self) -> list[str]:
        """Tasks that every point of every curve has records of."""
        points = [point for curve in self.curves.values() for point in curve.points]
        return [task for task in self.run.tasks if all(task in point.tasks for point in points)]

    @property
    def averaged(self) -> list[str]:
        return [task for task in self.tasks if task != BY_LENGTH] or self.tasks

    def entry(self, name: str) -> Entry:
        return ENTRIES[name]

    def of_kind(self, *kinds: str) -> list[Curve]:
        return [curve for name, curve in self.curves.items() if ENTRIES[name].kind in kinds]

    def scopes(self) -> dict[str, list[str]]:
        """The mean of the tasks, then each task."""
        one_by_one = {title_of(task): [task] for task in self.tasks}
        return {MEAN: self.averaged, **one_by_one} if len(self.tasks) > 1 else one_by_one


def series(frontier: Frontier) -> Table:
    """Every point of every curve, in every scope: the data of the figures."""
    rows = []
    for scope, tasks in frontier.scopes().items():
        for name, curve in frontier.curves.items():
            for number, point in enumerate(curve.points):
                value = point.accuracy(tasks)
                where = (scope, name, frontier.entry(name).kind, number)
                rows.append((*where, point.nfe(tasks), value.value, value.low, value.high))
    columns = ("scope", "label", "kind", "point", "nfe", "accuracy", "low", "high")
    return Table("frontier", columns, tuple(rows))


def curves(table: Table) -> Grid:
    """Mean of the tasks: accuracy and NFE of every entry at each of its points."""
    scope = table.values("scope")[0]
    labels = [str(label) for label in table.values("label")]
    width = max((len(table.where(scope=scope, label=label)) for label in labels), default=0)
    rows = []
    for label in labels:
        found = table.where(scope=scope, label=label)
        cells = [_at(row) for row in found] + ["–"] * (width - len(found))
        rows.append((f"`{label}`", ENTRIES[label].kind, *cells))
    columns = ("Entry", "Kind", *(f"Point {number + 1}" for number in range(width)))
    note = (
        f"Accuracy in per cent [95 % bootstrap interval over problems with all their seeds] @ mean "
        f"NFE, {scope}, from each entry's cheapest point to its dearest. "
        f"`{BY_LENGTH}` is no part of a mean."
    )
    return Grid("curves", "Accuracy over NFE", columns, tuple(rows), note)


def _at(row: Mapping[str, object]) -> str:
    value, low, high = (100 * float(str(row[name])) for name in ("accuracy", "low", "high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}] @ {float(str(row['nfe'])):.1f}"


def per_task(table: Table) -> Grid:
    """Accuracy and NFE on every task at the point where each entry was tuned."""
    scopes = [str(scope) for scope in table.values("scope")]
    rows = []
    for label in map(str, table.values("label")):
        point = ENTRIES[label].tuned_at
        found = [table.where(scope=scope, label=label, point=point) for scope in scopes]
        rows.append((f"`{label}`", *(short(some[0]) if some else "–" for some in found)))
    note = "Accuracy in per cent @ mean NFE at the point where each entry was tuned."
    return Grid(
        "per_task",
        "Every task, at the point where each entry was tuned",
        ("Entry", *scopes),
        tuple(rows),
        note,
    )


def short(row: Mapping[str, object]) -> str:
    return f"{100 * float(str(row['accuracy'])):.1f} @ {float(str(row['nfe'])):.1f}"


def _lead(found: Gap | None) -> tuple[str, str]:
    if found is None:
        return "–", "–"
    low, high = 100 * found.difference.low, 100 * found.difference.high
    text = f"{100 * found.difference.value:+.1f} [{low:+.1f}, {high:+.1f}]"
    return (f"*{text}" if found.p < LEVEL else text), p_value(found.p)


def against_controls(frontier: Frontier) -> Grid:
    """Our method at each of its budgets against the controls' curves at the same NFE."""
    controls = [name for name in CONTROLS if name in frontier.curves]
    ours = frontier.curves.get(OURS)
    rows = []
    for scope, tasks in frontier.scopes().items() if ours and controls else ():
        for point in ours.points if ours else ():
            gaps = [_lead(gap(point, frontier.curves[name], tasks)) for name in controls]
            first = percent(point.accuracy(tasks)).split(" ")[0]
            rows.append((scope, f"{first} @ {point.nfe(tasks):.1f}", *(t for g in gaps for t in g)))
    columns = ("Scope", f"`{OURS}`", *(t for name in controls for t in (f"Δ vs `{name}`", "p")))
    note = (
        f"Lead of `{OURS}` in points at equal NFE: the control's curve is interpolated over log NFE at "
        f"`{OURS}`'s mean NFE, problem by problem. 95 % interval and p from a bootstrap over problems "
        "with all their seeds; emphasised where p < 0.05. –: outside the control's curve."
    )
    return Grid("controls", "Against the controls", columns, tuple(rows), note)


def leave_one_out(frontier: Frontier) -> Grid:
    """What is lost without each piece, at the same budget and at the same NFE."""
    ours, tasks = frontier.curves.get(OURS), frontier.averaged
    others = frontier.of_kind("leave-one-out")
    others += [frontier.curves[one] for one in ("moves", "with_search") if one in frontier.curves]
    rows = []
    for curve in others if ours else ():
        entry = frontier.entry(curve.name)
        if ours is None or len(curve.points) <= entry.tuned_at:
            continue
        point, full = curve.points[entry.tuned_at], ours.points[entry.tuned_at]
        budget = _lead(same_budget(point, full, tasks))
        each = [_lead(same_budget(point, full, [task]))[0] for task in tasks]
        accuracy = f"{100 * point.accuracy(tasks).value:.1f} @ {point.nfe(tasks):.1f}"
        equal = _lead(gap(point, ours, tasks))
        rows.append((entry.what, accuracy, *budget, *equal, *(one.split(" ")[0] for one in each)))
    columns = (
        "Variant", "Accuracy @ NFE", "Δ at the same budget", "p", "Δ at equal NFE", "p",
        *(f"{title_of(task)}" for task in tasks),
    )  # fmt: skip
    note = (
        f"Change in points against `{OURS}` at the budget where it was tuned, on the problems and seeds that both "
        "have. The last columns are Δ at the same budget on each task."
    )
    return Grid("leave_one_out", "What each piece is worth", columns, tuple(rows), note)


def others(frontier: Frontier) -> Grid:
    """Every other method at its best point against our curve at the same NFE."""
    ours, tasks = frontier.curves.get(OURS), frontier.averaged
    rows = []
    for curve in frontier.of_kind("other", "control"):
        best = max(curve.points, key=lambda point: point.accuracy(tasks).value)
        accuracy = f"{percent(best.accuracy(tasks))} @ {best.nfe(tasks):.1f}"
        what = frontier.entry(curve.name).what
        needed, lead = _reached(ours, best, tasks), _lead_at_most(best, ours, tasks)
        rows.append((f"`{curve.name}`", what, accuracy, needed, *lead))
    columns = (
        "Entry", "What it is", "Best point", f"NFE of `{OURS}` for that", f"Δ vs `{OURS}`", "p",
    )  # fmt: skip
    note = (
        f"The highest point of each curve on the mean of the tasks, the NFE at which `{OURS}` reaches "
        f"the same accuracy, and the difference to `{OURS}` at equal NFE. †: even the dearest point of "
        f"`{OURS}` spends less and is compared as it is; –: its cheapest point spends more."
    )
    return Grid("others", "Other methods and controls", columns, tuple(rows), note)


def _lead_at_most(point: Point, ours: Curve | None, tasks: Sequence[str]) -> tuple[str, str]:
    """A point's lead over our curve at its NFE, or over our dearest point if that spends less."""
    found = gap(point, ours, tasks) if ours else None
    if found is not None or ours is None:
        return _lead(found)
    dearest = rising(ours.points, tasks)[-1]
    if dearest.nfe(tasks) > point.nfe(tasks):
        return _lead(None)
    text, p = _lead(same_budget(point, dearest, tasks))
    return f"{text} †", p


def _reached(ours: Curve | None, point: Point, tasks: Sequence[str]) -> str:
    if ours is None:
        return "–"
    found = nfe_to_reach(ours, tasks, point.accuracy(tasks).value)
    if found is None:
        return "not reached"
    first = rising(ours.points, tasks)[0].nfe(tasks)
    return f"≤ {found:.1f}" if found <= first else f"{found:.1f}"


def cost(frontier: Frontier) -> Grid:
    """What every entry cost in this run, and what was chosen for it."""
    rows = []
    for name, curve in frontier.curves.items():
        values = (frontier.chosen or {}).get(frontier.entry(name).tuned_as, {})
        text = ", ".join(f"{'λ' if k == 'lam' else k} {v:g}" for k, v in values.items()) or "–"
        samples = sum(point.samples() for point in curve.points)
        total = sum(point.total_nfe() for point in curve.points)
        rows.append((f"`{name}`", text, f"{samples:,}", f"{total:,}"))
    all_samples = sum(point.samples() for c in frontier.curves.values() for point in c.points)
    all_nfe = sum(point.total_nfe() for c in frontier.curves.values() for point in c.points)
    rows.append(("all", "", f"{all_samples:,}", f"{all_nfe:,}"))
    columns = ("Entry", "Chosen on validation", "Samples", "NFE in all")
    note = "NFE as each search needs them by itself; canvases that several searches share are computed once."
    return Grid("cost", "Settings and cost", columns, tuple(rows), note)
