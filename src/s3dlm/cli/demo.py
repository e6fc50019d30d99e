"""`s3dlm demo`: parse, call, print. It speaks before anything heavy is imported."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from s3dlm.cli import evaluate as commands
from s3dlm.cli.loading import load_model

COLUMNS = 79


def register(app: typer.Typer) -> None:
    """Add the command to the package's command line."""
    app.command("demo")(demo_command)


def demo_command(
    model: commands.ModelName = "tiny",
    seconds: Annotated[float, typer.Option(min=0, help="Time for the comparison.")] = 90.0,
    workers: commands.Workers = None,
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/demo"),
) -> None:
    """Show one search live, then compare methods: two minutes on two cores.

    s3dlm demo
    """
    typer.echo("One search live, then methods compared on the same problems; about two minutes.")
    loaded = load_model(model)
    from s3dlm.evaluation import demo, processes
    from s3dlm.evaluation import plan as plans

    defaults = plans.defaults_of(loaded)
    size = plans.settings_for("best_of_k", defaults).size
    with processes.runner(loaded, workers or processes.workers_for(loaded)) as runner:
        typer.echo("\n1. One search, step by step\n")
        result = demo.show(loaded, defaults)
        typer.echo(f"{result.text}\nanswer: {result.answer}\n")
        typer.echo(f"2. {', '.join(demo.METHODS)} (K = {size}): {seconds:.0f} s at most\n")
        demo.clear(out)
        runner.wait()
        asked = demo.compare(runner, demo.rounds(loaded, defaults), out, seconds)
    typer.echo(f"3. Results on {asked} problems per task\n")
    _print_results(out, demo.REFERENCE)


def _print_results(folder: Path, reference: str) -> None:
    """Tables, chart, the verdict's first sentence, and where the report is that begins with it."""
    from s3dlm.evaluation import report
    from s3dlm.evaluation.accuracy_chart import chart

    made = report.write(folder, reference=reference, show=commands.viewer())
    for grid in made.short:
        commands.print_table(grid.columns, grid.rows, grid.title)
    points = {n: (made.run.mean_nfe(n), made.run.mean_accuracy(n)) for n in made.run.labels()}
    typer.echo(f"Accuracy over forward passes per problem (NFE)\n\n{chart(points)}\n")
    typer.echo(f"4. In one sentence\n\n{textwrap.fill(made.verdict[0], COLUMNS)}\n")
    typer.echo(f"report: {made.html.resolve()}")
