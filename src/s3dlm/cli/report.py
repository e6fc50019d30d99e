"""Commands that read a run: `report`, `calibrate`, and `demo`, which makes a short one first."""

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
    folders: Annotated[
        list[Path], Argument(help="Folders that `s3dlm eval` wrote; several are compared.")
    ],
    reference: Annotated[
        str | None, Option(help="Method to compare the others with. Default: best_of_k.")
    ] = None,
    grading: Annotated[str | None, Option(help="Grade the texts again: fixed, d1 or hex.")] = None,
    out: Annotated[
        Path | None, Option(help="Output folder. Default: the run's; needed for several.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Write the report of one run or several: Markdown, an HTML page, figures. Needs no model.

    \b
    s3dlm report runs/first
    s3dlm report runs/small runs/large --reference greedy --out runs/both
    """
    if len(folders) > 1 and out is None:
        raise SettingsError("a report on several runs needs a folder of its own; give --out")
    show_report(folders, as_json, grading=grading, reference=reference, out=out)


def calibrate(
    source: Annotated[Path, Argument(help="A folder of `s3dlm eval`, or JSON lines of outputs.")],
    out: Annotated[
        Path | None, Option(help="File to write. Default: beside the model's weights.")
    ] = None,
    verifier: Annotated[str, Option(help="Verifier for methods that never score.")] = "plus",
    task: Annotated[list[str] | None, Option(help="Tasks of a file of outputs.")] = None,
    model: Annotated[str | None, Option(help="Model of a file of outputs.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Fit the probability that an answer is right, `p_correct`, on graded answers.

    \b
    s3dlm eval --split validation --method baseline,best_of_k,s3,best --limit 300 --out runs/fit
    s3dlm calibrate runs/fit
    """
    from s3dlm.evaluation import calibrate as fits

    read = fits.read(source, verifier, ",".join(options.split(task)) or None, model)
    made, skipped = fits.calibrate(read.groups)
    path = fits.write(read, made, out) if made else None
    if as_json:
        rows = [
            {**dataclasses.asdict(calibrated.fit), **dataclasses.asdict(calibrated.report)}
            for calibrated in made
        ]
        plain = {"fits": rows, "skipped": skipped, "file": None if path is None else str(path)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return
    for columns, table, title in fits.tables(made) if made else ():
        print_table(columns, table, title)
    for line in skipped:
        typer.echo(f"no fit for {line}", err=True)
    typer.echo("nothing was written" if path is None else f"written to {path}")


def demo(
    model: options.ModelName = "tiny",
    seconds: Annotated[float, Option(min=0, help="Time for the comparison.")] = 90.0,
    workers: options.Workers = None,
    out: Annotated[Path, Option(help="Folder of the comparison.")] = Path("runs/demo"),
) -> None:
    """Show one search live, then compare methods: two minutes on two cores.

    s3dlm demo
    """
    typer.echo("One search live, then methods compared on the same problems; about two minutes.")
    loaded = options.load_model(model)
    from s3dlm.evaluation import demo as demos
    from s3dlm.evaluation import plan as plans
    from s3dlm.evaluation import processes
    from s3dlm.evaluation.accuracy_chart import chart
    from s3dlm.evaluation.report import write
    from s3dlm.viewer.page import standalone

    defaults = plans.defaults_of(loaded)
    size = plans.settings_for("best_of_k", defaults).size
    with processes.runner(loaded, workers or processes.workers_for(loaded)) as runner:
        typer.echo("\n1. One search, step by step\n")
        result = demos.show(loaded, defaults)
        typer.echo(f"{result.text}\nanswer: {result.answer}\n")
        typer.echo(f"2. {', '.join(demos.METHODS)} (K = {size}): {seconds:.0f} s at most\n")
        demos.clear(out)
        runner.wait()
        asked = demos.compare(runner, demos.rounds(loaded, defaults), out, seconds)
    typer.echo(f"3. Results on {asked} problems per task\n")
    made = write(out, reference=demos.REFERENCE, show=lambda trace: standalone([trace]))
    for grid in made.short:
        print_table(grid.columns, grid.rows, grid.title)
    points = {n: (made.run.mean_nfe(n), made.run.mean_accuracy(n)) for n in made.run.labels()}
    typer.echo(f"Accuracy over forward passes per problem (NFE)\n\n{chart(points)}\n")
    typer.echo(f"4. In one sentence\n\n{textwrap.fill(made.verdict[0], 79)}\n")
    typer.echo(f"report: {made.html.resolve()}")


def show_report(folders: Sequence[Path], as_json: bool, **how: Any) -> Any:
    """Write the report of runs, print its tables, and return it."""
    from s3dlm.evaluation.report import write
    from s3dlm.viewer.page import standalone

    made = write(*folders, show=lambda trace: standalone([trace]), **how)
    if as_json:
        tables = [table.to_json() for table in made.tables]
        plain = {"verdict": made.verdict, "tables": tables, "html": str(made.html)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return made
    for table in made.short:
        print_table(table.columns, table.rows, table.title)
    for line in made.verdict:
        typer.echo(textwrap.fill(line, 80))
    typer.echo(f"\nreport: {made.html.resolve()}\n        {made.markdown.resolve()}")
    return made
