"""The frontier as one Markdown page with its figures; a page of the docs can take it in as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.frontier import tables
from benchmarks.frontier.entries import ENTRIES
from benchmarks.frontier.tables import Frontier
from s3dlm.errors import RecordError
from s3dlm.evaluation import figures
from s3dlm.evaluation.figures import accuracy_over_nfe
from s3dlm.evaluation.formats import Table
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.records import write_atomic

FILE = "frontier.md"
BEGIN, END = "<!-- frontier: begin -->", "<!-- frontier: end -->"

# Okabe and Ito's colours; ours and the controls first, others share the quieter ones.
STRONG = {
    "revise": ("#D55E00", "o", "-"),
    "restarts": ("#0072B2", "s", "--"),
    "verified_best_of_k": ("#009E73", "^", "--"),
    "moves": ("#56B4E9", "P", "--"),
    "s3_rounds": ("#CC79A7", "v", ":"),
    "greedy": ("#000000", "x", "-"),
    "plain": ("#7F7F7F", "+", "-"),
    "best_of_k": ("#8C564B", "d", "-."),
    "s3": ("#E69F00", "D", "-."),
}
QUIET = ("#B2A600", "#999999", "#A6761D", "#7570B3", "#66A61E")
MARKERS = ("X", "<", ">", "h", "*", "p", "8", "1", "2", "3", "4")


@dataclass(frozen=True, slots=True)
class Page:
    """What was written, and its tables."""

    path: Path
    tables: Sequence[Table]


def look(label: str) -> dict[str, Any]:
    """How an entry's line is drawn."""
    rest = [name for name in ENTRIES if name not in STRONG]
    at = rest.index(label) if label in rest else 0
    quiet = (QUIET[at % len(QUIET)], MARKERS[at % len(MARKERS)], ":")
    style = zip(("color", "marker", "linestyle"), STRONG.get(label, quiet), strict=True)
    strong = label in STRONG
    width = 2.0 if label == "revise" else 1.3 if strong else 0.9
    more = {"linewidth": width, "markersize": 5 if strong else 4, "alpha": 1.0 if strong else 0.75}
    return {**dict(style), **more, "elinewidth": 0.6, "zorder": 1 + strong + (label == "revise")}


def _curves(axis: Any, frame: pd.DataFrame, scope: str, quiet: bool) -> None:
    """The curves of one scope; leave-one-out entries have a table instead."""
    rows = frame[(frame.scope == scope) & (frame.kind != "leave-one-out")]
    strong = rows.label.isin(list(STRONG))
    styles = {label: look(label) for label in rows.label}
    accuracy_over_nfe(axis, rows[strong], styles)
    if quiet:
        accuracy_over_nfe(axis, rows[~strong], styles, bars=False)
    axis.set_title(scope[0].upper() + scope[1:], fontweight="bold")
    axis.set_xlabel("mean NFE per problem")


def mean_curves(frame: pd.DataFrame) -> Figure:
    """One panel: the mean of the tasks, the main entries with their intervals."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axis = figure.subplots()
    _curves(axis, frame, frame.scope[0], quiet=True)
    axis.set_ylabel("accuracy (%)")
    figures.legend(figure, axis, 1, loc="outside right upper", fontsize=8, handlelength=2.6)
    return figure


def task_curves(frame: pd.DataFrame) -> Figure:
    """A panel per task, with the main entries."""
    scopes = list(frame.scope.unique())[1:] or list(frame.scope.unique())
    columns = min(3, len(scopes))
    rows = -(-len(scopes) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.4, 2.5 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, scope in zip(np.ravel(axes), scopes, strict=False):
        _curves(axis, frame, scope, quiet=False)
    for axis in np.ravel(axes)[len(scopes) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel("accuracy (%)")
    figures.legend(figure, axes, 4, fontsize=8)
    return figure


def length_curves(frame: pd.DataFrame) -> Figure:
    """Accuracy over the number of steps of a chain, at equal NFE."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axis = figure.subplots()
    for label, rows in frame.groupby("label", sort=False):
        how = {key: look(label)[key] for key in ("color", "marker", "linestyle")}
        axis.plot(rows.n, 100 * rows.accuracy, label=label, markersize=4.5, **how)
    axis.set(xlabel="steps of the chain", ylabel="accuracy (%)", ylim=(0, 101))
    figures.legend(figure, axis, 1, loc="outside right upper", fontsize=8)
    return figure


PICTURES: Mapping[str, tuple[Callable[[pd.DataFrame], Figure], str]] = {
    "frontier": (
        mean_curves,
        "Accuracy over mean NFE, the mean of the tasks; bars are 95 % bootstrap intervals over problems "
        "with all their seeds. All entries use the same adaptive reveal but `plain`.",
    ),
    "frontier_tasks": (task_curves, "The same on every task, for the main entries."),
    "frontier_length": (
        length_curves,
        "Accuracy on `chain` over its number of steps, every entry at the NFE that `revise` spends there.",
    ),
}


def unshared(frame: pd.DataFrame) -> pd.DataFrame:
    """The same points over the passes that they would take without sharing."""
    return frame.assign(nfe=frame.nfe_logical) if "nfe_logical" in frame else frame


def write(
    frontier: Frontier, folder: Path, command: str, into: Path | None, without_sharing: bool = False
) -> Page:
    """Write frontier.md and figures to the run's folder, and into a page of the docs if one is given."""
    if not frontier.tasks:
        raise RecordError(
            f"{folder} has no task on which every entry has records; run the same command again "
            "until it is finished"
        )
    points, chains = tables.all_points(frontier), tables.chain_points(frontier)
    every = [
        tables.curves(points),
        tables.against_controls(frontier),
        tables.leave_one_out(frontier),
        tables.others(frontier),
        tables.per_task(points),
        tables.by_length(chains),
        tables.to_reach(frontier),
        tables.cost(frontier),
    ]
    every = [table for table in every if table.rows]
    data = {"frontier": points, "frontier_tasks": points, "frontier_length": chains}
    drawn = [name for name, frame in data.items() if not frame.empty]

    shown = {n: unshared(each) if without_sharing else each for n, each in data.items()}

    def text(images: Path, drawn: Sequence[str] = drawn) -> str:
        for name in drawn:
            figures.save(partial(PICTURES[name][0], shown[name]), name, {name: data[name]}, images)
        pictures = [
            f"![{name.replace('_', ', by ')}]({images.name}/{name}.png)\n\n{PICTURES[name][1]}"
            for name in drawn
        ]
        written = [table.to_markdown() for table in every]
        return "\n\n".join([_introduction(frontier, command), *pictures, *written]) + "\n"

    write_atomic(folder / FILE, text(folder / "figures"))
    if into is not None:
        images = into.parent / "images"
        _insert(into, text(images, drawn if images.is_dir() else ()))
    return Page(folder / FILE, every)


def _introduction(frontier: Frontier, command: str) -> str:
    plan = frontier.run.manifest
    counts = ", ".join(f"{title_of(task)} {plan.counts[task]}" for task in frontier.tasks)
    return (
        f"Made by `{command}` on {plan.model} (weights {plan.fingerprint}), split "
        f"{plan.split}, seeds {', '.join(map(str, plan.seeds))}; problems: {counts}. Some entries use "
        f"fewer of them; the last table has the number of samples of each. {_tuning(frontier)} "
        "The verifier `checker` checks Countdown and Sudoku exactly, so accuracy there is coverage."
    )


def _tuning(frontier: Frontier) -> str:
    """Whose temperature and λ were chosen on validation, and whose were not."""
    known = frontier.chosen or {}
    left_out = [name for name in frontier.curves if ENTRIES[name].tuned_as not in known]
    if len(left_out) == len(frontier.curves):
        return "Temperature and λ are the model's recommendations; nothing was tuned for this run."
    text = (
        "Temperature and λ were chosen on the validation split, for every entry from the same grid."
    )
    names = ", ".join(f"`{name}`" for name in left_out)
    return f"{text} Not tuned, with the model's recommendations: {names}." if left_out else text


def _insert(path: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    page = path.read_text(encoding="utf-8") if path.is_file() else f"{BEGIN}\n{END}\n"
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise RecordError(
            f"{path} needs a line {BEGIN} and a line {END}; the tables go between them"
        )
    write_atomic(path, f"{before}{BEGIN}\n\n{text}\n{END}{after}")
