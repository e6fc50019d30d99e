"""Chains over their number of steps: where a search must show itself, since restarts must get every
step right at once.
"""

from __future__ import annotations

from benchmarks.frontier.curves import Curve, accuracy_at, nfe_to_reach
from benchmarks.frontier.entries import ENTRIES, OURS
from benchmarks.frontier.tables import BY_LENGTH, Frontier, short
from s3dlm.evaluation.series import Table
from s3dlm.evaluation.tables import Grid, number

RESTARTS = "restarts"
SHOWN = ("greedy", "best_of_k", RESTARTS, "s3", OURS)


def lengths(frontier: Frontier) -> dict[str, set[str]]:
    """The problems of each chain length, shortest first."""
    found: dict[str, set[str]] = {}
    for sample in frontier.run.samples.get(BY_LENGTH, ()):
        found.setdefault(sample.group, set()).add(sample.id)
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition("=")[2] or 0)))


def series(frontier: Frontier) -> Table:
    """Accuracy over the number of steps, each curve at the NFE that our method spends there."""
    rows: list[tuple[object, ...]] = []
    groups = lengths(frontier) if BY_LENGTH in frontier.tasks and OURS in frontier.curves else {}
    middle = ENTRIES[OURS].tuned_at
    for group, samples in groups.items():
        parts = {name: _within(c, samples) for name, c in frontier.curves.items()}
        ours = parts[OURS]
        if len(ours.points) <= middle or not ours.points[middle].tasks:
            continue
        nfe = ours.points[middle].nfe([BY_LENGTH])
        for name in SHOWN:
            part = parts.get(name)
            if part and all(BY_LENGTH in point.tasks for point in part.points):
                accuracy = accuracy_at(part, [BY_LENGTH], nfe)
                spent = [point.nfe([BY_LENGTH]) for point in part.points]
                used = min(max(nfe, min(spent)), max(spent))
                rows.append((name, int(group.partition("=")[2]), used, accuracy, len(samples)))
    return Table("by_length", ("label", "n", "nfe", "accuracy", "problems"), tuple(rows))


def _within(curve: Curve, samples: set[str]) -> Curve:
    return curve.where(lambda task, sample: task == BY_LENGTH and sample in samples)


def by_length(table: Table) -> Grid:
    """Accuracy on chains of n steps at equal NFE."""
    steps = sorted(int(str(n)) for n in table.values("n"))
    rows = []
    for label in map(str, table.values("label")):
        found = {int(str(row["n"])): row for row in table.where(label=label)}
        rows.append((f"`{label}`", *(short(found[n]) if n in found else "–" for n in steps)))
    note = (
        f"Accuracy in per cent @ NFE. Every curve is read at the NFE that `{OURS}` spends on that length "
        "at the budget where it was tuned, or at its own nearest end."
    )
    columns = ("Entry", *(f"n = {n}" for n in steps))
    return Grid("by_length", "Chains over their number of steps", columns, tuple(rows), note)


def to_reach(frontier: Frontier) -> Grid:
    """What our method needs for the restarts' best accuracy, by chain length."""
    rows = []
    names = {OURS, RESTARTS} <= set(frontier.curves) and BY_LENGTH in frontier.tasks
    for group, samples in lengths(frontier).items() if names else ():
        ours, theirs = (_within(frontier.curves[name], samples) for name in (OURS, RESTARTS))
        if not all(point.tasks for point in (*ours.points, *theirs.points)):
            continue
        tasks = [BY_LENGTH]
        top = max(theirs.points, key=lambda p: (p.accuracy(tasks).value, -p.nfe(tasks)))
        accuracy, spent = top.accuracy(tasks).value, top.nfe(tasks)
        reached = _needed(nfe_to_reach(ours, tasks, accuracy), spent) if accuracy else ("–", "–")
        cells = (f"{100 * accuracy:.1f} @ {spent:.1f}", *reached)
        rows.append((group, str(len(samples)), *cells))
    columns = ("Length", "Problems", f"`{RESTARTS}`, best point", f"NFE of `{OURS}`", "Ratio")
    note = f"NFE at which `{OURS}` reaches the restarts' highest accuracy, by linear interpolation over log NFE."
    return Grid("to_reach", "NFE for the same accuracy on chains", columns, tuple(rows), note)


def _needed(nfe: float | None, spent: float) -> tuple[str, str]:
    return ("not reached", "–") if nfe is None else (number(nfe), f"{nfe / spent:.2f}")
