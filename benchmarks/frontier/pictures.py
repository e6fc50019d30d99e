"""The frontier's figures: curves on the mean of the tasks, per task, and accuracy over chain length.

Painters get matplotlib from figures.py, which alone imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.frontier.entries import ENTRIES
from s3dlm.evaluation.figures import Painter
from s3dlm.evaluation.series import Table

# Okabe and Ito's colours; ours and the controls first, others share the quieter ones.
STRONG = {
    "best": ("#D55E00", "o", "-"),
    "restarts": ("#0072B2", "s", "--"),
    "verified_best_of_k": ("#009E73", "^", "--"),
    "moves": ("#56B4E9", "P", "--"),
    "with_search": ("#CC79A7", "v", ":"),
    "greedy": ("#000000", "x", "-"),
    "plain": ("#7F7F7F", "+", "-"),
    "best_of_k": ("#8C564B", "d", "-."),
    "s3": ("#E69F00", "D", "-."),
}
QUIET = ("#B2A600", "#999999", "#A6761D", "#7570B3", "#66A61E")
MARKERS = ("X", "<", ">", "h", "*", "p", "8", "1", "2", "3", "4")


def look(label: str) -> tuple[str, str, str]:
    """Colour, marker and line style of an entry."""
    if label in STRONG:
        return STRONG[label]
    rest = [name for name in ENTRIES if name not in STRONG]
    at = rest.index(label) if label in rest else 0
    return QUIET[at % len(QUIET)], MARKERS[at % len(MARKERS)], ":"


def shown(table: Table) -> list[str]:
    """The entries of a figure: all but the leave-one-out ones, which have a table."""
    return [
        str(row["label"])
        for row in table.where(scope=table.values("scope")[0], point=0)
        if row["kind"] != "leave-one-out"
    ]


def mean_curves(plt: Any, table: Table, _: Mapping[str, str]) -> Any:
    """One panel: the mean of the tasks, the controls with their intervals."""
    figure, axis = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    scope = str(table.values("scope")[0])
    for label in shown(table):
        _line(axis, table, scope, label, bars=label in STRONG)
    _axes(axis, scope)
    axis.set_ylabel("accuracy (%)")
    figure.legend(loc="outside right upper", fontsize=8, handlelength=2.6)
    return figure


def task_curves(plt: Any, table: Table, _: Mapping[str, str]) -> Any:
    """A panel per task, with the entries that have a strong colour."""
    scopes = [str(scope) for scope in table.values("scope")][1:] or [str(table.values("scope")[0])]
    columns = min(3, len(scopes))
    rows = -(-len(scopes) // columns)
    size = (2.9 * columns + 0.4, 2.5 * rows + 0.5)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis, scope in zip(np.ravel(axes), scopes, strict=False):
        for label in shown(table):
            if label in STRONG:
                _line(axis, table, scope, label, bars=True)
        _axes(axis, scope)
    for axis in np.ravel(axes)[len(scopes) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel("accuracy (%)")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8)
    return figure


def length_curves(plt: Any, table: Table, _: Mapping[str, str]) -> Any:
    """Accuracy over the number of steps of a chain, at equal NFE."""
    figure, axis = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    for label in map(str, table.values("label")):
        rows = table.where(label=label)
        colour, marker, line = look(label)
        x = [float(str(row["n"])) for row in rows]
        y = [100 * float(str(row["accuracy"])) for row in rows]
        axis.plot(x, y, label=label, color=colour, marker=marker, linestyle=line, markersize=4.5)
    axis.set_xlabel("steps of the chain")
    axis.set_ylabel("accuracy (%)")
    axis.set_ylim(0, 101)
    figure.legend(loc="outside right upper", fontsize=8)
    return figure


def _line(axis: Any, table: Table, scope: str, label: str, *, bars: bool) -> None:
    rows = sorted(table.where(scope=scope, label=label), key=lambda row: float(str(row["nfe"])))
    colour, marker, line = look(label)
    columns = ("nfe", "accuracy", "low", "high")
    nfe, *rest = (np.array([float(str(row[name])) for row in rows]) for name in columns)
    value, low, high = (100 * one for one in rest)
    strong = label in STRONG
    axis.errorbar(
        nfe, value, yerr=np.vstack([value - low, high - value]) if bars else None, label=label,
        color=colour, marker=marker, linestyle=line, markersize=5 if strong else 4,
        linewidth=2.0 if label == "best" else 1.3 if strong else 0.9, elinewidth=0.6, capsize=1.5,
        alpha=1.0 if strong else 0.75, zorder=3 if label == "best" else 2 if strong else 1,
    )  # fmt: skip


def _axes(axis: Any, scope: str) -> None:
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_title(scope[0].upper() + scope[1:], fontweight="bold")
    axis.set_xlabel("mean NFE per problem")


PICTURES: Mapping[str, tuple[Painter, str]] = {
    "frontier": (
        mean_curves,
        "Accuracy over mean NFE, the mean of the tasks; bars are 95 % bootstrap intervals over problems "
        "with all their seeds. All entries use the same adaptive reveal but `plain`.",
    ),
    "frontier_tasks": (task_curves, "The same on every task, for the main entries."),
    "frontier_length": (
        length_curves,
        "Accuracy on `chain` over its number of steps, every entry at the NFE that `best` spends there.",
    ),
}
