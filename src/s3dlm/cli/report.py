"""Commands that read runs: their report, and probabilities fitted to them."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from s3dlm.cli import options
from s3dlm.cli.options import print_table
from s3dlm.errors import SettingsError


def report(
    folders: Annotated[list[Path], Argument(help="Folders of `eval`; several are compared.")],
    reference: Annotated[
        str | None, Option(help="Method to compare with. Default: best_of_k.")
    ] = None,
    grading: Annotated[
        str | None, Option(help="Grade the texts again: fixed, d1 or d1_whole.")
    ] = None,
    out: Annotated[Path | None, Option(help="Default: the run's; needed for several.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the report of runs: Markdown, HTML, figures. Needs no model.

    \b
    s3dlm report runs/first
    s3dlm report runs/small runs/large --reference greedy --out runs/both
    """
    if len(folders) > 1 and out is None:
        raise SettingsError("a report on several runs needs a folder of its own; give --out")
    print_report(folders, as_json, grading=grading, reference=reference, out=out)


def print_report(folders: Sequence[Path], as_json: bool, **how: Any) -> Any:
    from s3dlm.evaluation.report import write

    made = write(*folders, **how)
    if as_json:
        tables = [table.to_json() for table in made.tables]
        plain = {"verdict": made.verdict, "tables": tables, "html": str(made.html)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return made
    for table in made.short:
        print_table(table.columns, table.rows, table.title, marked=True)
    for line in made.verdict:
        typer.echo(textwrap.fill(line, 80))
    typer.echo(f"\nreport: {made.html.resolve()}\n        {made.markdown.resolve()}")
    return made


def calibrate(
    source: Annotated[Path, Argument(help="A folder of `s3dlm eval`, or JSON lines of outputs.")],
    out: Annotated[Path | None, Option(help="Default: beside the model's weights.")] = None,
    verifier: Annotated[str, Option(help="Verifier for methods that never score.")] = "checker",
    task: Annotated[options.Repeated, Option(help="Tasks of a file of outputs.")] = None,
    model: Annotated[str | None, Option(help="Model of a file of outputs.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit `p_correct`, the probability that an answer is right.

    \b
    s3dlm eval --split validation --method s3,revise --limit 300 --out runs/fit
    s3dlm calibrate runs/fit
    """
    from s3dlm.evaluation import calibrate as fits

    read = fits.read_answers(source, options.own_verifier(verifier), options.split(task), model)
    made, skipped = fits.fit_groups(read.groups)
    path = fits.write_fits(read, made, out) if made else None
    if as_json:
        rows = [dataclasses.asdict(row.fit) | dataclasses.asdict(row.report) for row in made]
        plain = {"fits": rows, "skipped": skipped, "file": path and str(path)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
    else:
        for table in fits.tables(made) if made else ():
            print_table(table.columns, table.rows, table.title)
        for line in skipped:
            typer.echo(f"no fit for {line}", err=True)
        typer.echo("nothing was written" if path is None else f"written to {path}")
    if path is None:
        raise typer.Exit(1)
