"""The frontier's tables: curves, differences at equal NFE, leave-one-out, other methods, chains, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from benchmarks.frontier.curves import (
    Gap,
    accuracy,
    accuracy_at,
    gap,
    nfe,
    nfe_to_reach,
    points,
    rising,
    same_budget,
)
from benchmarks.frontier.entries import CONTROLS, ENTRIES, OURS
from benchmarks.frontier.stages import Chosen
from s3dlm.evaluation import formats
from s3dlm.evaluation.formats import Table, decimal, p_value, percent
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import title_of

MEAN = "mean of tasks"
BY_LENGTH = "chain"  # its problems have groups n=2 … n=10; it is no part of the mean
RESTARTS = "restarts"
SHOWN = ("greedy", "best_of_k", RESTARTS, "s3", OURS)  # over the length of a chain


@dataclass(frozen=True, slots=True)
class Frontier:
    """All curves of a run, and the tasks that their mean is over."""

    run: RecordedRun
    curves: Mapping[str, pd.DataFrame]
    chosen: Chosen | None

    @property
    def tasks(self) -> list[str]:
        """Tasks that every point of every curve has records of."""
        known = [set(point.task) for curve in self.curves.values() for point in points(curve)]
        return [task for task in self.run.tasks if all(task in tasks for tasks in known)]

    @property
    def averaged(self) -> list[str]:
        return [task for task in self.tasks if task != BY_LENGTH] or self.tasks

    def of_kind(self, *kinds: str) -> list[str]:
        return [name for name in self.curves if ENTRIES[name].kind in kinds]

    def scopes(self) -> dict[str, list[str]]:
        """The mean of the tasks, then each task."""
        one_by_one = {title_of(task): [task] for task in self.tasks}
        return {MEAN: self.averaged, **one_by_one} if len(self.tasks) > 1 else one_by_one


def all_points(frontier: Frontier) -> pd.DataFrame:
    """Every point of every curve, in every scope: the data of the figures."""
    rows = []
    for scope, tasks in frontier.scopes().items():
        for name, curve in frontier.curves.items():
            for at, point in enumerate(points(curve)):
                value = accuracy(point, tasks)
                both = (nfe(point, tasks), nfe(point, tasks, "nfe_logical"))
                spent = (*both, value.value, value.low, value.high)
                rows.append((scope, name, ENTRIES[name].kind, at, *spent))
    columns = ("scope", "label", "kind", "point", "nfe", "nfe_logical", "accuracy", "low", "high")
    return pd.DataFrame(rows, columns=columns)


def _table(key: str, title: str, frame: pd.DataFrame, note: str) -> Table:
    return Table(key, title, tuple(frame), list(frame.itertuples(index=False, name=None)), note)


def curves(frame: pd.DataFrame) -> Table:
    """Mean of the tasks: accuracy and NFE of every entry at each of its points."""
    scope = frame.scope[0]
    rows = [
        (f"`{row.label}`", row.kind, f"Point {row.point + 1}",
         f"{100 * row.accuracy:.1f} [{100 * row.low:.1f}, {100 * row.high:.1f}] @ {row.nfe:.1f} ({row.nfe_logical:.0f})")
        for row in frame[frame.scope == scope].itertuples()
    ]  # fmt: skip
    long = pd.DataFrame(rows, columns=("Entry", "Kind", "point", "text"))
    wide = long.pivot(index=["Entry", "Kind"], columns="point", values="text")
    wide = wide.reindex(list(dict.fromkeys(zip(long.Entry, long.Kind, strict=True))))
    note = (
        f"Accuracy in per cent [95 % bootstrap interval over problems with all their seeds] @ mean "
        f"NFE (without sharing), {scope}, from each entry's cheapest point to its dearest. "
        f"`{BY_LENGTH}` is no part of a mean."
    )
    return _table("curves", "Accuracy over NFE", wide.fillna("–").reset_index(), note)


def per_task(frame: pd.DataFrame) -> Table:
    """Accuracy and NFE on every task at the point where each entry was tuned."""
    tuned = frame[frame.point == frame.label.map(lambda label: ENTRIES[label].tuned_at)]
    wide = _wide(tuned, "scope")
    note = "Accuracy in per cent @ mean NFE at the point where each entry was tuned."
    return _table("per_task", "Every task, at the point where each entry was tuned", wide, note)


def _wide(frame: pd.DataFrame, columns: str) -> pd.DataFrame:
    """A row per entry: accuracy @ NFE, in the order in which entries and columns come."""
    text = [f"{100 * row.accuracy:.1f} @ {row.nfe:.1f}" for row in frame.itertuples()]
    wide = frame.assign(text=text).pivot(index="label", columns=columns, values="text")
    wide = wide.reindex(index=frame.label.unique(), columns=frame[columns].unique()).fillna("–")
    wide.insert(0, "Entry", [f"`{label}`" for label in wide.index])
    return wide


def _lead(found: Gap | None) -> tuple[str, str]:
    return (
        ("–", "–")
        if found is None
        else (formats.points(found.difference, found.p), p_value(found.p))
    )


def against_controls(frontier: Frontier) -> Table:
    """Our method at each of its budgets against the controls' curves at the same NFE."""
    controls = [name for name in CONTROLS if name in frontier.curves]
    rows = []
    for scope, tasks in frontier.scopes().items() if controls else ():
        for point in points(frontier.curves[OURS]) if OURS in frontier.curves else ():
            gaps = [_lead(gap(point, frontier.curves[name], tasks)) for name in controls]
            rows.append((scope, _at(point, tasks), *(text for pair in gaps for text in pair)))
    columns = ("Scope", f"`{OURS}`", *(t for name in controls for t in (f"Δ vs `{name}`", "p")))
    note = (
        f"Lead of `{OURS}` in points at equal NFE: the control's curve is interpolated over log NFE at "
        f"`{OURS}`'s mean NFE. 95 % interval and p from a bootstrap over problems with all their seeds "
        "and what was spent on them; emphasised where p < 0.05. –: outside the control's curve."
    )
    return Table("controls", "Against the controls", columns, rows, note)


def _at(point: pd.DataFrame, tasks: Sequence[str]) -> str:
    return f"{100 * accuracy(point, tasks).value:.1f} @ {nfe(point, tasks):.1f}"


def leave_one_out(frontier: Frontier) -> Table:
    """What is lost without each piece, at the same budget and at the same NFE."""
    tasks = frontier.averaged
    names = frontier.of_kind("leave-one-out")
    names += [name for name in ("moves", "with_search") if name in frontier.curves]
    rows = []
    for name in names if OURS in frontier.curves else ():
        entry, many = ENTRIES[name], points(frontier.curves[name])
        if len(many) <= entry.tuned_at:
            continue
        point, full = many[entry.tuned_at], points(frontier.curves[OURS])[entry.tuned_at]
        budget = _lead(same_budget(point, full, tasks))
        each = [_lead(same_budget(point, full, [task]))[0].split(" ")[0] for task in tasks]
        equal = _lead(gap(point, frontier.curves[OURS], tasks))
        rows.append((entry.what, _at(point, tasks), *budget, *equal, *each))
    columns = (
        "Variant", "Accuracy @ NFE", "Δ at the same budget", "p", "Δ at equal NFE", "p",
        *(title_of(task) for task in tasks),
    )  # fmt: skip
    note = (
        f"Change in points against `{OURS}` at the budget where it was tuned, on the problems and seeds that both "
        "have. The last columns are Δ at the same budget on each task."
    )
    return Table("leave_one_out", "What each piece is worth", columns, rows, note)


def others(frontier: Frontier) -> Table:
    """Every other method at its best point against our curve at the same NFE."""
    ours, tasks = frontier.curves.get(OURS), frontier.averaged
    rows = []
    for name in frontier.of_kind("other", "control"):
        best = max(points(frontier.curves[name]), key=lambda point: accuracy(point, tasks).value)
        value = accuracy(best, tasks)
        needed, lead = "–", ("–", "–")
        if ours is not None:
            reached = nfe_to_reach(ours, tasks, value.value)
            first = nfe(rising(points(ours), tasks)[0], tasks)
            needed = (
                "not reached"
                if reached is None
                else f"{'≤ ' if reached <= first else ''}{reached:.1f}"
            )
            lead = lead_at_most(best, ours, tasks)
        what = (f"`{name}`", ENTRIES[name].what, f"{percent(value)} @ {nfe(best, tasks):.1f}")
        rows.append((*what, needed, *lead))
    columns = (
        "Entry", "What it is", "Best point", f"NFE of `{OURS}` for that", f"Δ vs `{OURS}`", "p",
    )  # fmt: skip
    note = (
        f"The highest point of each curve on the mean of the tasks, the NFE at which `{OURS}` reaches "
        f"the same accuracy, and the difference to `{OURS}` at equal NFE. †: even the dearest point of "
        f"`{OURS}` spends less and is compared as it is; –: its cheapest point spends more."
    )
    return Table("others", "Other methods and controls", columns, rows, note)


def lead_at_most(point: pd.DataFrame, ours: pd.DataFrame, tasks: Sequence[str]) -> tuple[str, str]:
    """A point's lead over our curve at its NFE, or over our dearest point if that spends less."""
    found = gap(point, ours, tasks)
    dearest = rising(points(ours), tasks)[-1]
    if found is not None or nfe(dearest, tasks) > nfe(point, tasks):
        return _lead(found)
    text, p = _lead(same_budget(point, dearest, tasks))
    return f"{text} †", p


def _lengths(frontier: Frontier) -> dict[int, dict[str, pd.DataFrame]]:
    """The curves on the chains of each length, shortest first; only those with all their points."""
    if BY_LENGTH not in frontier.tasks:
        return {}
    groups: dict[int, set[str]] = {}
    for sample in frontier.run.samples.get(BY_LENGTH, ()):
        groups.setdefault(int(sample.group.partition("=")[2] or 0), set()).add(sample.id)
    whole = {name: curve[curve.task == BY_LENGTH] for name, curve in frontier.curves.items()}
    parts = {
        length: {name: curve[curve["sample"].isin(ids)] for name, curve in whole.items()}
        for length, ids in sorted(groups.items())
    }
    counts = {name: curve.point.nunique() for name, curve in whole.items()}
    return {
        length: {n: part for n, part in named.items() if part.point.nunique() == counts[n]}
        for length, named in parts.items()
    }


def chain_points(frontier: Frontier) -> pd.DataFrame:
    """Accuracy over the number of steps, each curve at the NFE that our method spends there."""
    rows = []
    for length, parts in _lengths(frontier).items():
        if OURS not in parts or len(points(parts[OURS])) <= ENTRIES[OURS].tuned_at:
            continue
        ours = nfe(points(parts[OURS])[ENTRIES[OURS].tuned_at], [BY_LENGTH])
        for name in (name for name in SHOWN if name in parts):
            spent = [nfe(point, [BY_LENGTH]) for point in points(parts[name])]
            used = min(max(ours, min(spent)), max(spent))
            value = accuracy_at(parts[name], [BY_LENGTH], ours)
            rows.append((name, length, used, value, parts[name]["sample"].nunique()))
    return pd.DataFrame(rows, columns=("label", "n", "nfe", "accuracy", "problems"))


def by_length(frame: pd.DataFrame) -> Table:
    """Accuracy on chains of n steps at equal NFE."""
    order = [name for name in SHOWN if name in set(frame.label)]
    ordered = frame.sort_values("label", key=lambda labels: labels.map(order.index), kind="stable")
    wide = _wide(ordered.assign(n=[f"n = {n}" for n in ordered.n]), "n")
    note = (
        f"Accuracy in per cent @ NFE. Every curve is read at the NFE that `{OURS}` spends on that length "
        "at the budget where it was tuned, or at its own nearest end."
    )
    return _table("by_length", "Chains over their number of steps", wide, note)


def to_reach(frontier: Frontier) -> Table:
    """What our method needs for the restarts' best accuracy, by chain length."""
    rows, tasks = [], [BY_LENGTH]
    for length, parts in _lengths(frontier).items():
        if not {OURS, RESTARTS} <= set(parts):
            continue
        ends = [(accuracy(p, tasks).value, -nfe(p, tasks)) for p in points(parts[RESTARTS])]
        top, spent = max(ends)[0], -max(ends)[1]
        reached = nfe_to_reach(parts[OURS], tasks, top)
        cells = (
            ("not reached", "–")
            if reached is None
            else (decimal(reached), f"{reached / spent:.2f}")
        )
        problems = str(parts[OURS]["sample"].nunique())
        text = f"{100 * top:.1f} @ {spent:.1f}"
        rows.append((f"n={length}", problems, text, *(cells if top else ("–", "–"))))
    columns = ("Length", "Problems", f"`{RESTARTS}`, best point", f"NFE of `{OURS}`", "Ratio")
    note = f"NFE at which `{OURS}` reaches the restarts' highest accuracy, by linear interpolation over log NFE."
    return Table("to_reach", "NFE for the same accuracy on chains", columns, rows, note)


def cost(frontier: Frontier) -> Table:
    """What every entry cost in this run, and what was chosen for it."""
    rows = []
    for name, curve in frontier.curves.items():
        values = (frontier.chosen or {}).get(ENTRIES[name].tuned_as, {})
        text = ", ".join(f"{'λ' if k == 'lam' else k} {v:g}" for k, v in values.items()) or "–"
        rows.append((f"`{name}`", text, f"{len(curve):,}", f"{curve.nfe.sum():,.0f}"))
    every = frontier.run.frame
    rows.append(("all", "", f"{len(every):,}", f"{every.nfe.sum():,.0f}"))
    columns = ("Entry", "Chosen on validation", "Samples", "NFE in all")
    note = "NFE as each search needs them by itself; canvases that several searches share are computed once."
    return Table("cost", "Settings and cost", columns, rows, note)
