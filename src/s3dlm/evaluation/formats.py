"""How figures are written: a table as Markdown and JSON, accuracies, differences and p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from s3dlm.evaluation.statistics import Interval

LEVEL = 0.05  # of significance
ABSENT = "–"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, shown as Markdown, HTML, JSON and on a terminal; `*` begins an emphasised cell."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    @property
    def named(self) -> list[bool]:
        """Which columns hold names: they are aligned left, columns of numbers right."""
        return [all(c[:1].isalpha() for c in column) for column in zip(*self.rows, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {"title": self.title, "columns": self.columns, "rows": self.rows, "note": self.note}

    def to_markdown(self) -> str:
        """Title, table and note."""

        def line(cells: Sequence[str]) -> str:
            safe = [cell.replace("|", "\\|") for cell in cells]
            return f"| {' | '.join(f'**{c[1:]}**' if c[:1] == '*' else c for c in safe)} |"

        head = [line(self.columns), f"|{'|'.join('---' for _ in self.columns)}|"]
        note = f"\n\n{self.note}" if self.note else ""
        return f"## {self.title}\n\n" + "\n".join([*head, *map(line, self.rows)]) + note


def percent(interval: Interval) -> str:
    """An accuracy with its bounds."""
    if math.isnan(interval.value):
        return ABSENT
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.value:.1f} [{low:.1f}, {high:.1f}]"


def decimal(value: float, digits: int = 1) -> str:
    return ABSENT if math.isnan(value) else f"{value:,.{digits}f}"


def points(difference: Interval, p: float) -> str:
    """A difference of accuracies in points with its interval, emphasised if it is significant."""
    if math.isnan(difference.value):
        return ABSENT
    low, high = 100 * difference.low, 100 * difference.high
    text = f"{100 * difference.value:+.1f} [{low:+.1f}, {high:+.1f}]"
    return f"*{text}" if p < LEVEL else text


def p_value(value: float) -> str:
    if math.isnan(value):
        return ABSENT
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
