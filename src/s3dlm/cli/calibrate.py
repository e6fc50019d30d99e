"""The command `s3dlm calibrate`: parse, call, print. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3dlm.evaluation.calibrate import Calibrated


def register(app: typer.Typer) -> None:
    """Add the command to the package's command line."""
    app.command("calibrate")(calibrate_command)


def calibrate_command(
    source: Annotated[
        Path, typer.Argument(help="A folder that `s3dlm eval` wrote, or JSON lines of outputs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="File to write. Default: calibration.json beside the model's weights."),
    ] = None,
    verifier: Annotated[
        str, typer.Option(help="Verifier for the answers of methods that never score.")
    ] = "plus",
    task: Annotated[
        str | None, typer.Option(help="Tasks of a file of outputs, separated by commas.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model of a file of outputs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fit the probability that an answer is right, `p_correct`, on graded answers.

    s3dlm eval --split validation --method baseline,best_of_k,s3,best --limit 300 --out runs/fit

    s3dlm calibrate runs/fit
    """
    from s3dlm.evaluation import calibrate

    read = calibrate.read(source, verifier, task, model)
    made, skipped = calibrate.calibrate(read.groups)
    path = calibrate.write(read, made, out) if made else None
    if as_json:
        _print_json(made, skipped, path)
    else:
        _print(made, skipped, path)


def _print_json(made: Sequence[Calibrated], skipped: Sequence[str], path: Path | None) -> None:
    import dataclasses
    import json

    rows = [{**dataclasses.asdict(one.fit), **dataclasses.asdict(one.report)} for one in made]
    plain = {"fits": rows, "skipped": skipped, "file": None if path is None else str(path)}
    typer.echo(json.dumps(plain, ensure_ascii=False))


def _print(made: Sequence[Calibrated], skipped: Sequence[str], path: Path | None) -> None:
    from s3dlm.cli.evaluate import print_table
    from s3dlm.evaluation.calibrate import tables

    for columns, rows, title in tables(made) if made else ():
        print_table(columns, rows, title)
    for line in skipped:
        typer.echo(f"no fit for {line}", err=True)
    typer.echo("nothing was written" if path is None else f"written to {path}")
