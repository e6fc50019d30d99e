"""A scoring report on the terminal: the tables of `s3dlm score`."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s3dlm.evaluation.scoring import Report, Section
from s3dlm.verifier.ranking import Estimate


def render(report: Report, console: Console, *, explain: bool = False) -> None:
    """Print a report; with `explain` also every output on which `d1` and `fixed` differ."""
    skipped = f", {report.skipped} lines of other tasks skipped" if report.skipped else ""
    console.print(
        f"[bold]{escape(report.task)}[/bold], verifier {escape(report.verifier)}, "
        f"grading {report.grading}{skipped}"
    )
    for section in report.sections:
        console.print(_components(section))
    if report.calibration:
        console.print(_calibration(report))
    if explain:
        console.print(_changes(report))
    for warning in report.warnings:
        console.print(f"[yellow]warning[/yellow] {escape(warning)}")
    for note in report.notes:
        console.print(f"note: {escape(note)}")


def _components(section: Section) -> Table:
    accuracy = ", ".join(
        f"{grading} {100 * share:.2f} %" for grading, share in section.accuracy.items()
    )
    title = f"{section.name}: {section.outputs} outputs, {section.questions} questions, {section.pairs} pairs"
    table = Table(title=title, caption=f"accuracy: {accuracy}" if accuracy else None)
    table.add_column("part")
    for heading in ("weight", "mean", "AUC", "95 %", "pair accuracy", "95 %"):
        table.add_column(heading, justify="right")
    for part in section.components:
        weight = "" if part.weight is None else f"{part.weight:.2f}"
        table.add_row(
            escape(part.name),
            weight,
            f"{part.mean:.3f}",
            *_cells(part.auc),
            *_cells(part.pair_accuracy),
        )
    return table


def _cells(estimate: Estimate) -> tuple[str, str]:
    if estimate.value is None:
        return "–", ""
    interval = "" if estimate.low is None else f"{estimate.low:.3f}–{estimate.high:.3f}"
    return f"{estimate.value:.3f}", interval


def _calibration(report: Report) -> Table:
    table = Table(title="calibration of the total")
    for heading in ("total", "outputs", "mean total", "accuracy"):
        table.add_column(heading, justify="right")
    for row in report.calibration:
        table.add_row(
            f"{row.low:.1f}–{row.high:.1f}",
            str(row.outputs),
            f"{row.mean_total:.3f}",
            f"{100 * row.accuracy:.1f} %",
        )
    return table


def _changes(report: Report) -> Table:
    table = Table(title=f"{len(report.changes)} outputs are judged differently by d1 and fixed")
    for heading in ("line", "gold", "d1", "fixed", "d1 reads", "fixed reads", "why"):
        table.add_column(heading)
    for change in report.changes:
        table.add_row(
            str(change.line),
            escape(str(change.gold)),
            f"{change.d1:.2f}",
            f"{change.fixed:.0f}",
            _short(change.d1_answer),
            _short(change.fixed_answer),
            change.reason,
        )
    return table


def _short(answer: str | None) -> str:
    if answer is None:
        return "–"
    return escape(answer if len(answer) <= 40 else f"…{answer[-39:]}")
