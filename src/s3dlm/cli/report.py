"""Commands that read runs, their report and probabilities fitted to them, and outputs of any model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from s3dlm.cli import options
from s3dlm.cli.options import print_table
from s3dlm.errors import SettingsError

if TYPE_CHECKING:
    from s3dlm.evaluation.score import ScoreReport
    from s3dlm.evaluation.statistics import Estimate


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


def print_report(folders: Sequence[Path], as_json: bool, **how: Any) -> None:
    from s3dlm.evaluation.report import write

    made = write(*folders, **how)
    if as_json:
        tables = [table.to_json() for table in made.tables]
        plain = {"verdict": made.verdict, "tables": tables, "html": str(made.html)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return
    for table in made.short:
        print_table(table.columns, table.rows, table.title, marked=True)
    for line in made.verdict:
        options.say(line)
    typer.echo(f"\nreport: {made.html.resolve()}\n        {made.markdown.resolve()}")


def calibrate(
    folder: Annotated[Path, Argument(help="Folder of `s3dlm eval`.")],
    out: Annotated[Path | None, Option(help="Default: beside the model's weights.")] = None,
    verifier: Annotated[str, Option(help="Verifier for methods that never score.")] = "checker",
    as_json: options.AsJson = False,
) -> None:
    """Fit `p_correct`, the probability that an answer is right.

    \b
    s3dlm eval --split validation --method s3,revise --limit 300 --out runs/fit
    s3dlm calibrate runs/fit
    """
    from s3dlm.evaluation import calibrate as fits

    read = fits.read_answers(folder, options.own_verifier(verifier))
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


def score(
    file: Annotated[Path, Argument(help="JSON lines, lm-eval's samples or d1's generations.")],
    task: Annotated[str, Option(help="The task of these outputs, for example gsm8k.")],
    verifier: options.VerifierName = "paper",
    grading: Annotated[
        str, Option(help="How answers are graded: fixed, d1 or d1_whole.")
    ] = "fixed",
    as_json: options.AsJson = False,
) -> None:
    """Measure how well a verifier tells right from wrong. Any model's outputs will do.

    \b
    s3dlm score outputs.jsonl --task gsm8k
    s3dlm score samples_gsm8k_2026-01-01.jsonl --task gsm8k --verifier checker
    """
    from rich.console import Console
    from rich.progress import Progress

    from s3dlm.evaluation.score import score_file

    shown = Console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as bar:
        outputs = bar.add_task("outputs", total=None, visible=False)
        scored = score_file(
            file, task, verifier=options.own_verifier(verifier), grading=grading,
            progress=lambda done, total: bar.update(outputs, completed=done, total=total, visible=True),
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(scored), ensure_ascii=False))
    else:
        _print_score(scored)


def _print_score(report: ScoreReport) -> None:
    skipped = f", {report.skipped} lines of other tasks skipped" if report.skipped else ""
    typer.echo(f"{report.task}, verifier {report.verifier}, grading {report.grading}{skipped}")
    if report.agreement is not None:
        typer.echo(f"agrees with the file's own verdicts on {100 * report.agreement:.2f} %")
    typer.echo()
    shares = ", ".join(f"{name} {100 * share:.2f} %" for name, share in report.accuracy.items())
    counts = f"outputs {report.outputs}, questions {report.questions}, pairs {report.pairs}"
    rows = [
        (part.name, "" if part.weight is None else f"{part.weight:.2f}", f"{part.mean:.3f}",
         _cell(part.auc), _cell(part.pair_accuracy))
        for part in report.components
    ]  # fmt: skip
    columns = ("part", "weight", "mean", "AUC (95 %)", "pair accuracy (95 %)")
    print_table(columns, rows, counts, f"accuracy: {shares}" if shares else "")
    if report.selection:
        chosen = [(rule, _cell(share, 100)) for rule, share in report.selection.items()]
        note = f"{report.distinct:.1f} different texts per question"
        print_table(("rule", "accuracy, % (95 %)"), chosen, "one answer per question", note)
    if calibrated := report.reliability:
        surest = ", ".join(f"surest {k}: {100 * v:.1f} %" for k, v in calibrated.coverage.items())
        brier = f"{calibrated.brier:.3f} (mean accuracy alone: {calibrated.brier_of_mean:.3f})"
        note = f"Brier score {brier}; accuracy on the {surest}"
        head = ("p_correct", "outputs", "mean p_correct", "accuracy (%)")
        bins = [each.to_row() for each in calibrated.bins]
        print_table(head, bins, "p_correct, cross-fitted over questions", note)
    for warning in report.warnings:
        typer.echo(f"warning: {warning}")
    for note in report.notes:
        typer.echo(f"note: {note}")


def _cell(estimate: Estimate, scale: float = 1) -> str:
    if estimate.value is None:
        return "–"
    digits = 3 if scale == 1 else 1
    value = f"{scale * estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({scale * estimate.low:.{digits}f}–{scale * estimate.high:.{digits}f})"
