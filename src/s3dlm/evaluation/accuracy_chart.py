"""Accuracy over NFE, drawn on matplotlib's axes for every figure that shows it, and in characters.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; every method also has its own
marker and line style.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from s3dlm.evaluation.statistics import Interval

LOOKS = {  # colour, marker, line style
    "greedy": ("#999999", "x", ":"),
    "baseline": ("#0072B2", "s", "--"),
    "best_of_k": ("#009E73", "^", "-."),
    "tilting": ("#CC79A7", "v", "-"),
    "top_n": ("#56B4E9", "D", "-"),
    "s3": ("#D55E00", "o", "-"),
    "twisted": ("#E69F00", "P", "-"),
    "revise": ("#5B4FC9", "*", "-"),
    "s3_paper": ("#B8A600", "p", "-"),
    "verified_best_of_k": ("#8C564B", "h", "-"),
}
OTHER = ("#000000", "o", "-")
DRAWN = {"markersize": 4.5, "linewidth": 1.2, "elinewidth": 0.5, "capsize": 1.5}
WIDTH, HEIGHT = 66, 13  # of the plot, in characters
MARGIN = 7  # for the labels of the vertical axis
FINE = (*(n / 10 for n in range(10, 30)), *(n / 2 for n in range(6, 20)))
TICKS = ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0), FINE)
MARKS = "✕■▲▼◆●✚★⬟⬢"

Styles = Mapping[str, Mapping[str, Any]]  # how matplotlib draws each label


def styles_of(labels: Iterable[str]) -> Styles:
    """Colour, marker and line style: a method's own, else one that no method of the figure has."""
    distinct = list(dict.fromkeys(labels))
    spare = itertools.cycle([LOOKS[name] for name in LOOKS if name not in distinct] or [OTHER])
    looks = {label: LOOKS.get(label) or next(spare) for label in distinct}
    names = ("color", "marker", "linestyle")
    return {label: dict(zip(names, look, strict=True)) for label, look in looks.items()}


def accuracy_over_nfe(axis: Any, rows: pd.DataFrame, styles: Styles, bars: bool = True) -> None:
    """The one drawing of accuracy over NFE: a line per label, and per branching if there are several."""
    for label, ours in rows.groupby("label", sort=False):
        lines = list(ours.groupby("branching")) if "branching" in ours else [(1, ours)]
        for number, (branching, line) in enumerate(lines):
            line = line.sort_values("nfe")
            how = {**DRAWN, **styles[label]}
            if number:  # lines of one method differ in marker and dashes
                how |= {"marker": "os^D"[number % 4], "markerfacecolor": "white"}
                how["linestyle"] = ("-", "--", ":", "-.")[number % 4]
            if len(line) == 1:
                how["linestyle"] = "none"
            value, errors = in_per_cent(line)
            name = f"{label}, b = {branching}" if len(lines) > 1 else label
            axis.errorbar(line.nfe, value, yerr=errors if bars else None, label=name, **how)
    axis.set_xscale("log")
    axis.set_xticks(log_ticks(*axis.get_xlim()))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()


def in_per_cent(rows: pd.DataFrame) -> tuple[pd.Series, np.ndarray]:
    """Accuracy, and the lengths of its error bars."""
    value, low, high = (100 * rows[column] for column in ("accuracy", "low", "high"))
    return value, np.vstack([value - low, high - value])


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two bounds: as few per decade as still give three."""
    ticks: list[float] = []
    for steps in TICKS:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) >= 3:
            break
    return ticks


def chart(points: Mapping[str, tuple[float, Interval]]) -> str:
    """NFE and accuracy by method: marks with 95 % intervals over a logarithmic axis, and a legend."""
    spent = [max(nfe, 0.5) for nfe, _ in points.values()]
    room = max((max(spent) / min(spent)) ** 0.06, 2**0.5)  # the axis spans a factor of two at least
    left, right = min(spent) / room, max(spent) * room
    low = math.floor(20 * min(accuracy.low for _, accuracy in points.values())) / 20
    high = math.ceil(20 * max(accuracy.high for _, accuracy in points.values())) / 20
    high = max(high, low + 0.05)
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]

    def row(accuracy: float) -> int:
        return round((high - accuracy) / (high - low) * (HEIGHT - 1))

    def column(nfe: float) -> int:
        return round(math.log(nfe / left) / math.log(right / left) * (WIDTH - 1))

    for mark, nfe, (_, accuracy) in zip(MARKS, spent, points.values(), strict=False):
        at = column(nfe)
        while any(line[at] != " " for line in canvas) and at < WIDTH - 1:
            at += 1  # two methods of the same cost stand side by side
        for line in range(row(accuracy.high), row(accuracy.low) + 1):
            canvas[line][at] = "│"
        canvas[row(accuracy.value)][at] = mark
    labels = {row(value): f"{100 * value:.0f} %" for value in (high, (high + low) / 2, low)}
    lines = [f"{labels.get(i, ''):>{MARGIN - 2}} ┤{''.join(c)}" for i, c in enumerate(canvas)]
    axis, below = ["─"] * WIDTH, [" "] * (WIDTH + 6)
    for tick in log_ticks(left, right):
        text, at = f"{tick:g}", column(tick)
        axis[at] = "┴"
        start = max(0, at - len(text) // 2)
        below[start : start + len(text)] = text
    pad = " " * (MARGIN - 1)
    legend = "   ".join(f"{mark} {label}" for mark, label in zip(MARKS, points, strict=False))
    ends = (f"{pad}└{''.join(axis)}", f"{pad} {''.join(below).rstrip()} passes", "", legend)
    return "\n".join(line.rstrip() for line in (*lines, *ends))
