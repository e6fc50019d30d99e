"""What the commands of evaluation share: reading their options, running a plan, printing its tables."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from s3dlm.errors import SettingsError

if TYPE_CHECKING:
    from s3dlm.evaluation.progress import Bars
    from s3dlm.evaluation.report import Report
    from s3dlm.evaluation.run import Plan
    from s3dlm.tasks import Loaded


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


def names(text: str | None) -> list[str]:
    """The parts of an option that takes several names with commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def numbers(what: str, text: str | None, kind: Callable[[str], Any]) -> list[Any]:
    """The same for numbers; `what` names the option in the error."""
    try:
        return [kind(part) for part in names(text)]
    except ValueError as error:
        raise SettingsError(
            f"{what}={text!r} is no list of numbers; write one or several with commas, as in 1,2,4"
        ) from error


def prepare(
    model: str,
    device: str | None,
    dtype: str | None,
    tasks: Sequence[str],
    ray: str | None = None,
    **which: Any,
) -> tuple[Any, dict[str, Loaded]]:
    """Model and problems; missing data is found out before a large model is loaded.

    With a cluster the model is loaded by its workers, and the cluster stands in its place.
    """
    from s3dlm.evaluation.protocol import problems
    from s3dlm.models.registry import load
    from s3dlm.tasks import default_preset

    preset = default_preset(model)
    found = problems(tasks, preset, **which)
    loaded: Any
    if ray is None:
        loaded = load(model, device=device, dtype=dtype)
        if loaded.preset != preset:  # a model of another package may have its own
            found = problems(tasks, loaded.preset, **which)
    else:
        from s3dlm.distributed import Cluster

        loaded = Cluster(model, address=ray, device=device, dtype=dtype)
    for name, some in found.items():
        total = "" if len(some.samples) == some.total else f" of {some.total}"
        typer.echo(f"{name}: {len(some.samples)}{total} problems ({some.origin})", err=True)
    return loaded, found


def bars(plan: Plan) -> Bars:
    """The progress display of a plan."""
    from s3dlm.evaluation.progress import Bars

    counts = {task: len(some.samples) for task, some in plan.problems.items()}
    return Bars(plan.conditions, counts, len(plan.seeds))


def evaluate(model: Any, plan: Plan, folder: Path, max_rows: int | None) -> None:
    """Run a plan on a model, or on a cluster that is closed afterwards."""
    from s3dlm.evaluation.run import Here, evaluate_with
    from s3dlm.models.base import Model

    here = isinstance(model, Model)
    try:
        with contextlib.nullcontext(Here(model)) if here else model as work, bars(plan) as shown:
            evaluate_with(work, plan, folder, observer=shown, max_rows=max_rows)
    except KeyboardInterrupt:
        typer.echo(f"the same command goes on where {folder} ends", err=True)
        raise


def finish(folder: Path, as_json: bool, results: Path | None = None) -> None:
    """Write the report of a run that is complete, and print its tables."""
    from s3dlm.evaluation import report

    made = report.write(folder, show=viewer())
    if results is not None:
        report.write_results(folder, results, sys.argv[1:])
    print_report(made, as_json)


def viewer() -> Callable[[Path], str]:
    """The server's viewer as a page of its own, for the traces of a run."""
    from s3dlm.viewer.page import standalone

    return lambda trace: standalone([trace])
