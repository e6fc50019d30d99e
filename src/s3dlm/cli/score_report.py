"""The report of `s3dlm score` in the terminal."""

from __future__ import annotations

import typer

from s3dlm.cli.options import print_table
from s3dlm.evaluation.score import ScoreReport
from s3dlm.evaluation.statistics import Estimate


def render(report: ScoreReport) -> None:
    """Print a report."""
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
