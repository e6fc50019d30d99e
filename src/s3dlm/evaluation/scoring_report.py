"""The report of `s3dlm score`: as data, and as tables on the terminal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s3dlm.evaluation.ranking import Estimate
from s3dlm.evaluation.statistics import CalibrationReport, ReliabilityBin


@dataclass(frozen=True, slots=True)
class ComponentReport:
    """What one part of the verifier, or the total, is worth on one set of outputs."""

    name: str
    weight: float | None
    mean: float
    constant: bool
    auc: Estimate
    pair_accuracy: Estimate


@dataclass(frozen=True, slots=True)
class Section:
    """A set of outputs: all of them, or those of one group."""

    name: str
    outputs: int
    questions: int
    pairs: int
    decided: int  # the smaller of the counts of right and of wrong outputs
    accuracy: dict[str, float]  # by grading
    components: list[ComponentReport]


@dataclass(frozen=True, slots=True)
class Change:
    """An output that the gradings `d1` and `fixed` judge differently, and why."""

    line: int
    question: str
    gold: object
    d1: float
    fixed: float
    d1_answer: str | None
    fixed_answer: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that `s3dlm score` prints, as plain data."""

    file: str
    task: str
    verifier: str
    grading: str
    graded: int
    skipped: int
    sections: list[Section]
    calibration: list[ReliabilityBin]  # of the total
    certainty: CalibrationReport | None  # None when there are too few graded outputs
    changes: list[Change]
    warnings: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The report as data that `json.dumps` takes."""
        return asdict(self)


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
        console.print(_bins("calibration of the total", "total", report.calibration))
    if report.certainty:
        console.print(_certainty(report.certainty))
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


def _bins(title: str, value: str, bins: list[ReliabilityBin]) -> Table:
    table = Table(title=title)
    for heading in (value, "outputs", f"mean {value}", "accuracy"):
        table.add_column(heading, justify="right")
    for row in bins:
        table.add_row(
            f"{row.low:.1f}–{row.high:.1f}",
            str(row.count),
            f"{row.mean:.3f}",
            f"{100 * row.accuracy:.1f} %",
        )
    return table


def _certainty(certainty: CalibrationReport) -> Table:
    table = _bins("p_correct, cross-fitted over questions", "p_correct", certainty.bins)
    surest = ", ".join(
        f"surest {share}: {100 * accuracy:.1f} %" for share, accuracy in certainty.coverage.items()
    )
    table.caption = (
        f"Brier score {certainty.brier:.3f} (mean accuracy alone: {certainty.brier_of_mean:.3f}); "
        f"accuracy on the {surest}"
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
