"""Accuracy against compute as inline SVG: the report's first picture, which fits a phone and the dark.

Drawn here and not by matplotlib, because it is to take its colours from the page and to wrap: one
panel per task.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from s3dlm.evaluation.series import Table

WIDTH, HEIGHT = 330, 240
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 30, 42
# What each method looks like, here and in figures.py; colours are the classes .c0 to .c9 of report.css.
STYLED = {
    "greedy": "✕", "baseline": "■", "best_of_k": "▲", "tilting": "▼", "look_ahead": "◆",
    "s3": "●", "twisted": "✚", "best": "★", "s3_paper": "⬟", "verified_best_of_k": "⬢",
}  # fmt: skip
MARKS = tuple(STYLED.values())
Row = Mapping[str, Any]


def accuracy_over_nfe(table: Table, titles: Mapping[str, str]) -> str:
    """A panel per task and one legend; empty if there is nothing to draw."""
    if not table.rows:
        return ""
    styles = _styles([str(label) for label in table.values("label")])
    panels = "".join(
        _panel(table.where(task=task), styles, titles.get(str(task), str(task)))
        for task in table.values("task")
    )
    legend = "".join(
        f'<li><span class="c{number}">{MARKS[number]}</span> {escape(label)}</li>'
        for label, number in styles.items()
    )
    return f'<div class="panels">{panels}</div><ul class="legend">{legend}</ul>'


def _styles(labels: Sequence[str]) -> dict[str, int]:
    """A number for every label: a method's own, else one that no method of the figure has."""
    own = list(STYLED)
    spare = [number for number, name in enumerate(own) if name not in labels] or [0]
    others = [label for label in labels if label not in STYLED]
    return {
        label: own.index(label) if label in STYLED else spare[others.index(label) % len(spare)]
        for label in labels
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers between two bounds: as few per decade as still give three."""
    ticks: list[float] = []
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)):
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        decades = range(first, last + 1)
        ticks = [s * 10.0**d for d in decades for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) >= 3:
            break
    return ticks


def _panel(rows: Sequence[Row], styles: Mapping[str, int], title: str) -> str:
    low, high = log_bounds([float(row["nfe"]) for row in rows])
    floor = 10 * math.floor(min(10 * float(row["low"]) for row in rows))
    ceiling = 10 * math.ceil(max(10 * float(row["high"]) for row in rows))
    ceiling = max(ceiling, floor + 10)

    def x(nfe: float) -> float:
        share = math.log(nfe / low) / math.log(high / low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(accuracy: float) -> float:
        share = (100 * accuracy - floor) / (ceiling - floor)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<text class="title" x="{LEFT}" y="16">{escape(title)}</text>',
        *_axes(x, y, log_ticks(low, high), floor, ceiling),
    ]
    for label, number in styles.items():
        parts.append(_series([row for row in rows if row["label"] == label], number, x, y))
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Accuracy against NFE on '
        f'{escape(title, quote=True)}">{"".join(parts)}</svg>'
    )


def log_bounds(values: Sequence[float]) -> tuple[float, float]:
    """Bounds with some room; at least a factor of two."""
    low, high = max(min(values), 0.5), max(values)
    room = max((high / low) ** 0.06, (2 / min(high / low, 2)) ** 0.5, 1.06)
    return low / room, high * room


def _axes(x: Any, y: Any, ticks: Sequence[float], floor: int, ceiling: int) -> list[str]:
    step = 10 if ceiling - floor <= 50 else 20
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    across = [
        f'<line x1="{LEFT}" x2="{right}" y1="{y(value / 100):.1f}" y2="{y(value / 100):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(value / 100) + 4:.1f}" class="end">{value}</text>'
        for value in range(-(-floor // step) * step, ceiling + 1, step)  # so that 100 is one
    ]
    up = [
        f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{bottom}"/>'
        f'<text x="{x(tick):.1f}" y="{bottom + 16}" class="middle">{tick:,.4g}</text>'
        for tick in ticks
    ]
    names = (
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" class="middle">NFE per problem</text>'
        f'<text x="{right}" y="16" class="end">accuracy, %</text>'
    )
    return [f'<g class="axis">{"".join([*across, *up])}{names}</g>']


def _series(rows: Sequence[Row], number: int, x: Any, y: Any) -> str:
    """The points of a method with their intervals; points of one branching are joined."""
    drawn = [f'<g class="c{number}">']
    for branching in sorted({int(row["branching"]) for row in rows}):
        line = sorted(
            (r for r in rows if r["branching"] == branching), key=lambda r: float(r["nfe"])
        )
        at = [(x(float(row["nfe"])), y(float(row["accuracy"]))) for row in line]
        if len(at) > 1:
            path = "L".join(f"{px:.1f} {py:.1f}" for px, py in at)
            drawn.append(f'<path d="M{path}"/>')
        for row, (px, py) in zip(line, at, strict=True):
            drawn.append(
                f'<line x1="{px:.1f}" x2="{px:.1f}" y1="{y(float(row["low"])):.1f}" '
                f'y2="{y(float(row["high"])):.1f}"/><text x="{px:.1f}" y="{py + 4:.1f}" '
                f'class="middle mark">{MARKS[number]}<title>{_words(row)}</title></text>'
            )
    return "".join(drawn) + "</g>"


def _words(row: Row) -> str:
    low, value, high = (100 * float(row[name]) for name in ("low", "accuracy", "high"))
    return escape(
        f"{row['label']}, N = {row['particles']}, b = {row['branching']}: {value:.1f} % "
        f"[{low:.1f}, {high:.1f}] at NFE {float(row['nfe']):.0f}"
    )
