"""What the commands of evaluation print: tables as text, or everything as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from s3dlm.evaluation.report import Report


def print_report(made: Report, as_json: bool) -> None:
    if as_json:
        tables = [
            {"title": g.title, "columns": g.columns, "rows": g.rows, "note": g.note}
            for g in made.grids
        ]
        plain = {"verdict": made.verdict, "tables": tables, "html": str(made.html)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return
    for grid in made.short:
        print_rows(grid.columns, grid.rows, grid.title)
    for line in (*made.verdict, *made.notes):
        typer.echo(line)
    typer.echo(f"\nreport: {made.html.resolve()}\n        {made.markdown.resolve()}")


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", header_style="bold")
    for row in rows:
        table.add_row(*(Text(c[1:], style="bold") if c[:1] == "*" else Text(c) for c in row))
    Console().print(table)
    typer.echo()
