"""The report of `s3dlm score` in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s3dlm.evaluation.score import ScoreReport, Section
from s3dlm.evaluation.statistics import Estimate, ReliabilityBin


def render(report: ScoreReport, console: Console, *, explain: bool = False) -> None:
    """Print a report; with `explain` also every output on which `d1` and `fixed` differ."""
    skipped = f", {report.skipped} lines of other tasks skipped" if report.skipped else ""
    head = f"verifier {escape(report.verifier)}, grading {report.grading}{skipped}"
    console.print(f"[bold]{escape(report.task)}[/bold], {head}")
    if report.agreement is not None:
        console.print(f"agrees with the file's own verdicts on {100 * report.agreement:.2f} %")
    tables = [table for section in report.sections for table in _section_tables(section)]
    if report.calibration:
        tables.append(_bins("calibration of the total", "total", report.calibration))
    if found := report.reliability:
        surest = ", ".join(f"surest {k}: {100 * v:.1f} %" for k, v in found.coverage.items())
        scores = f"Brier score {found.brier:.3f} (mean accuracy alone: {found.brier_of_mean:.3f})"
        caption = f"{scores}; accuracy on the {surest}"
        title = "p_correct, cross-fitted over questions"
        tables.append(_bins(title, "p_correct", found.bins, caption))
    if explain:
        listed = [
            (str(c.line), str(c.gold), f"{c.d1:.2f}", f"{c.fixed:.0f}", _short(c.d1_answer),
             _short(c.fixed_answer), c.reason)
            for c in report.changes
        ]  # fmt: skip
        title = f"{len(report.changes)} outputs are judged differently by d1 and fixed"
        tables.append(_table(title, "line|gold|d1|fixed|d1 reads|fixed reads|why", listed))
    for table in tables:
        console.print(table)
    for warning in report.warnings:
        console.print(f"[yellow]warning[/yellow] {escape(warning)}")
    for note in report.notes:
        console.print(f"note: {escape(note)}")


def _section_tables(section: Section) -> Iterator[Table]:
    shares = ", ".join(f"{g} {100 * share:.2f} %" for g, share in section.accuracy.items())
    counts = f"{section.outputs} outputs, {section.questions} questions, {section.pairs} pairs"
    rows = [
        (part.name, "" if part.weight is None else f"{part.weight:.2f}", f"{part.mean:.3f}",
         _cell(part.auc), _cell(part.pair_accuracy))
        for part in section.components
    ]  # fmt: skip
    columns, caption = "part|weight|mean|AUC (95 %)|pair accuracy (95 %)", f"accuracy: {shares}"
    yield _table(f"{section.name}: {counts}", columns, rows, caption if shares else "")
    if section.selection:
        chosen = [(rule, _cell(found, 100)) for rule, found in section.selection.items()]
        texts = f"{section.distinct:.1f} different texts per question"
        yield _table("one answer per question", "rule|accuracy, % (95 %)", chosen, texts)


def _table(title: str, columns: str, rows: Iterable[Sequence[str]], caption: str = "") -> Table:
    table = Table(title=title, caption=caption or None, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns.split("|")):
        table.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _bins(title: str, value: str, many: Iterable[ReliabilityBin], caption: str = "") -> Table:
    rows = [(f"{b.low:.1f}–{b.high:.1f}", str(b.count), f"{b.mean:.3f}", f"{100 * b.accuracy:.1f} %") for b in many]  # fmt: skip
    return _table(title, f"{value}|outputs|mean {value}|accuracy", rows, caption)


def _cell(estimate: Estimate, scale: float = 1) -> str:
    if estimate.value is None:
        return "–"
    digits = 3 if scale == 1 else 1
    value, *bounds = (
        "" if each is None else f"{scale * each:.{digits}f}"
        for each in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} ({bounds[0]}–{bounds[1]})" if bounds[0] else value


def _short(answer: str | None) -> str:
    return "–" if answer is None else answer if len(answer) <= 40 else f"…{answer[-39:]}"
