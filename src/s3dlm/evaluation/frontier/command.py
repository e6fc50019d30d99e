"""`s3dlm frontier`: parse, call, print. Nothing heavy is imported before it runs."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3dlm.cli import evaluate as commands

if TYPE_CHECKING:
    from s3dlm.evaluation.frontier.page import Page
    from s3dlm.evaluation.plan import Plan

QUICK = 20  # problems per task, with one seed
TUNING = 40


def register(app: typer.Typer) -> None:
    """Add the command to the package's command line."""
    app.command("frontier")(frontier_command)


def frontier_command(
    out: Annotated[Path, typer.Argument(help="Folder of the run; the same command resumes it.")],
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="First stage: choose temperature and λ of every entry on validation."
        ),
    ] = False,
    model: commands.ModelName = "tiny",
    tasks: Annotated[
        str | None, typer.Option(help="Tasks, separated by commas. Default: the model's own.")
    ] = None,
    entries: Annotated[
        str | None,
        typer.Option(help="Entries, separated by commas. Default: all; a wrong name lists them."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Problems per task. Default: all; with --tune 40."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per problem: 0, 1, …")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="20 problems per task, one seed.")] = False,
    split: Annotated[str, typer.Option(help="Split of the second stage.")] = "test",
    page: Annotated[
        Path | None,
        typer.Option(
            help="Also put tables and figures into this Markdown page, between its marks."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes, over Ray. Default: this one alone.")
    ] = None,
    device: commands.Device = None,
    dtype: commands.Dtype = None,
    as_json: commands.AsJson = False,
) -> None:
    """Curves of accuracy over forward passes for all methods, and differences at equal NFE.

    s3dlm frontier runs/frontier --tune --workers 2

    s3dlm frontier runs/frontier --workers 2 --page docs/frontier.md

    s3dlm frontier runs/look --quick --entries best,restarts,greedy
    """
    from s3dlm.evaluation import plan as plans
    from s3dlm.evaluation.frontier import entries as known
    from s3dlm.evaluation.frontier import stages

    chosen = known.chosen(commands.split_names(entries))
    part = stages.VALIDATION if tune else split
    limit = count or (QUICK if quick else TUNING if tune else None)
    runner, problems = commands.prepare(
        model, commands.task_names(tasks, model), device=device, dtype=dtype,
        ray=None if workers is None else "local", workers=workers, split=part, limit=limit,
    )  # fmt: skip
    defaults = plans.defaults_of(commands.model_of(runner, model))
    frame = stages.Frame(problems, defaults, 1 if quick or tune else seeds, part)
    with _running(runner) as run:
        if tune:
            _print_choice(stages.tune(chosen, frame, out, run), out, as_json)
            return
        values = stages.tuned(out)
        evaluation = stages.run_all(chosen, frame, values or {}, out, run)
    _print_page(_page(evaluation, values, out, page), as_json)


def _page(evaluation: Any, values: Any, out: Path, page: Path | None) -> Page:
    from s3dlm.evaluation.frontier import page as pages
    from s3dlm.evaluation.frontier.curves import curves_of
    from s3dlm.evaluation.frontier.tables import Frontier

    made = Frontier(evaluation, curves_of(evaluation), values)
    return pages.write(made, out, sys.argv[1:] or ["frontier", str(out)], page)


@contextlib.contextmanager
def _running(runner: Any) -> Any:
    """Evaluates plans one after another with one progress display; a cluster is closed at the end."""
    from s3dlm.evaluation.local import LocalRunner
    from s3dlm.evaluation.run import evaluate
    from s3dlm.models.base import Model

    local = isinstance(runner, Model)
    used = LocalRunner(runner) if local else runner  # one row cache for all entries

    def run(plans: Sequence[tuple[Plan, Path]]) -> None:
        with _bars([plan for plan, _ in plans]) as observer:
            for plan, folder in plans:
                evaluate(used, plan, folder, observer=observer)

    try:
        with contextlib.nullcontext() if local else runner:
            yield run
    except KeyboardInterrupt:
        typer.echo("the same command resumes the run", err=True)
        raise


def _bars(plans: Sequence[Plan]) -> Any:
    from s3dlm.evaluation.progress import Bars

    counts = {task: len(some.samples) for plan in plans for task, some in plan.problems.items()}
    seeds = max((len(plan.seeds) for plan in plans), default=1)
    return Bars([c for plan in plans for c in plan.conditions], counts, seeds)


def _print_choice(data: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(data["chosen"]))
        return
    rows = [
        (name, *(f"{values[key]:g}" if key in values else "–" for key in ("temperature", "lam")))
        for name, values in data["chosen"].items()
    ]
    commands.print_table(("entry", "temperature", "λ"), rows, "Chosen on validation")
    typer.echo(f"written to {out / 'tuned.json'}; the command without --tune uses them")


def _print_page(made: Page, as_json: bool) -> None:
    if as_json:
        plain = [
            {"title": g.title, "columns": g.columns, "rows": g.rows, "note": g.note}
            for g in made.grids
        ]
        typer.echo(json.dumps({"tables": plain, "page": str(made.path)}, ensure_ascii=False))
        return
    for grid in made.grids[:2]:  # a terminal has no room for intervals
        rows = [[re.sub(r" \[[^]]*\]", "", cell) for cell in row] for row in grid.rows]
        commands.print_table(grid.columns, rows, grid.title)
    for line in (*made.notes, f"page: {made.path.resolve()}"):
        typer.echo(line)
