"""`s3dlm ablate`: the comparison of everything beyond the paper. Heavy imports wait for the call."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

REMEMBER = 4.0  # GiB of rows: the variants meet mostly the same ones


def register(app: typer.Typer) -> None:
    """Add the command to the package's command line."""
    app.command("ablate")(ablate)


def ablate(
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command resumes it.")],
    model: Annotated[str, typer.Option(help="tiny, a folder or a hub id.")] = "tiny",
    task: Annotated[str | None, typer.Option(help="Names with commas; default: all.")] = None,
    variant: Annotated[
        str | None, typer.Option(help="Names with semicolons; default: all of them.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="The first so many problems a task.")] = 500,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of every problem.")] = 3,
    split: Annotated[str, typer.Option(help="Choose on validation, report on test.")] = "test",
    rivals: Annotated[
        int | None,
        typer.Option(
            help="Problems for what ours is held against, one seed; default: as for ours."
        ),
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the tables there as Markdown.")] = None,
) -> None:
    """Measure every piece beyond the paper, and every rival, on the same problems.

    s3dlm ablate --out runs/beyond --limit 100 --seeds 1 --split validation
    """
    from s3dlm.errors import SettingsError, unknown_name
    from s3dlm.evaluation import beyond, console, summary
    from s3dlm.evaluation.protocol import base_settings
    from s3dlm.evaluation.run import Plan
    from s3dlm.tasks import recommended

    wanted = [name.strip() for name in variant.split(";")] if variant else None
    for name in wanted or ():
        if name not in beyond.VARIANTS:
            raise SettingsError(unknown_name("variant", name, beyond.VARIANTS))
    names = console.names(task) or list(recommended.tasks(model))
    loaded, problems = console.prepare(model, None, None, names, split=split, limit=limit)
    base = base_settings(model)
    plan = Plan(
        beyond.conditions(names, base, recommended.tuned(model), wanted, rivals),
        base,
        problems,
        tuple(range(seeds)),
        split=split,
        remember=REMEMBER,
    )
    console.evaluate(loaded, plan, out, None)
    for grid in beyond.tables(summary.read(out)):
        console.print_rows(grid.columns, grid.rows, grid.title)
    if page is not None:
        beyond.write(out, page, sys.argv[1:])
