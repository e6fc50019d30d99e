"""Accuracy over NFE as a chart of characters, for a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from s3dlm.evaluation.compute_figure import MARKS, log_bounds, log_ticks
from s3dlm.evaluation.statistics import Interval
from s3dlm.evaluation.summary import Evaluation, mean_accuracy, mean_nfe

WIDTH, HEIGHT = 66, 13  # of the plot, in characters
MARGIN = 7  # for the labels of the vertical axis


@dataclass(frozen=True, slots=True)
class Point:
    """One method: what it spent and what it got."""

    label: str
    nfe: float
    accuracy: Interval


def points_of(run: Evaluation) -> list[Point]:
    """Every method of the main comparison, on the mean of the tasks."""
    return [Point(one, mean_nfe(run, one), mean_accuracy(run, one)) for one in run.labels()]


def chart(points: Sequence[Point]) -> str:
    """Marks with 95 % intervals over a logarithmic axis, and a legend."""
    left, right = log_bounds([point.nfe for point in points])
    low = math.floor(20 * min(point.accuracy.low for point in points)) / 20
    high = math.ceil(20 * max(point.accuracy.high for point in points)) / 20
    high = max(high, low + 0.05)
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]

    def row(accuracy: float) -> int:
        return round((high - accuracy) / (high - low) * (HEIGHT - 1))

    def column(nfe: float) -> int:
        return round(math.log(nfe / left) / math.log(right / left) * (WIDTH - 1))

    taken: set[int] = set()
    for mark, point in zip(MARKS, points, strict=False):
        at = column(point.nfe)
        while at in taken and at < WIDTH - 1:  # two methods of the same cost stand side by side
            at += 1
        taken.add(at)
        for line in range(row(point.accuracy.high), row(point.accuracy.low) + 1):
            canvas[line][at] = "│"
        canvas[row(point.accuracy.value)][at] = mark
    labels = {row(value): f"{100 * value:.0f} %" for value in (high, (high + low) / 2, low)}
    lines = [f"{labels.get(i, ''):>{MARGIN - 2}} ┤{''.join(c)}" for i, c in enumerate(canvas)]
    axis, below = _axis([(column(tick), f"{tick:g}") for tick in log_ticks(left, right)])
    legend = "   ".join(f"{m} {p.label}" for m, p in zip(MARKS, points, strict=False))
    return "\n".join(line.rstrip() for line in (*lines, axis, below, "", legend))


def _axis(ticks: Sequence[tuple[int, str]]) -> tuple[str, str]:
    """The horizontal axis and the line with its numbers."""
    axis, below = ["─"] * WIDTH, [" "] * (WIDTH + 6)
    for at, text in ticks:
        axis[at] = "┴"
        start = max(0, at - len(text) // 2)
        below[start : start + len(text)] = text
    pad = " " * (MARGIN - 1)
    return f"{pad}└{''.join(axis)}", f"{pad} {''.join(below).rstrip()}   NFE"
