"""What a verifier is worth on outputs that already exist, of any model, from anywhere: `s3dlm score`.

A file of outputs (`outputs.py` says of what sort) becomes a report: means of the parts, accuracy under
each grading, what a choice among several outputs to one question gains, how well each part and the
total tell right from wrong, a calibration table, and warnings. Needs no model and no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s3dlm import tasks
from s3dlm.answers import TASK_KINDS, extract, normalise
from s3dlm.answers.grading import GRADINGS, disagreement, grade
from s3dlm.answers.grading import notes as notes_on_math
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation import statistics
from s3dlm.evaluation.outputs import OutputRow, choices, kind_of_task, read_rows
from s3dlm.evaluation.statistics import CalibrationReport, Estimate, ReliabilityBin
from s3dlm.verifier import Score, Verifier, as_verifier
from s3dlm.verifier.base import ScoreFunction, score_texts
from s3dlm.verifier.calibration import GradedAnswer

ENOUGH = 10  # with fewer right or wrong outputs than this, no part is called misleading

CHUNK = 64  # outputs that a verifier takes at once, and after which progress is told


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
    selection: dict[str, Estimate]  # accuracy by rule; empty with one output to each question
    distinct: float  # different texts per question


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
class ScoreReport:
    """All that `s3dlm score` prints, as plain data."""

    file: str
    task: str
    verifier: str
    grading: str
    graded: int
    skipped: int
    unreadable: int  # outputs without an answer
    agreement: float | None  # with the verdicts of another harness that stand in the file
    sections: list[Section]
    calibration: list[ReliabilityBin]  # of the total
    reliability: CalibrationReport | None  # of p_correct; None: too few graded outputs
    changes: list[Change]
    warnings: list[str]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The report as data that `json.dumps` takes."""
        return asdict(self)


def score_file(
    path: str | Path,
    task: str,
    *,
    verifier: str | Verifier | ScoreFunction = "paper",
    grading: str = "fixed",
    by: str | None = None,
    draws: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ScoreReport:
    """Score every output of a task in a file and judge the verifier by it.

    `grading` decides what is right and wrong, `by` names a field by whose values the report is also
    split (left out when no line has it; without a name, the model or the length). Lines of another task
    are skipped. A missing gold answer in a file that has others counts as wrong. `progress` is called
    with how many outputs are done, and of how many.
    """
    if grading not in GRADINGS:
        raise SettingsError(unknown_name("grading", grading, GRADINGS))
    known = [*TASK_KINDS, *(name for name in tasks.names() if name not in TASK_KINDS)]
    if task not in known:
        raise SettingsError(unknown_name("task", task, known))
    kind = kind_of_task(task)
    judge = as_verifier(verifier, task if task in TASK_KINDS else tasks.get(task).verifier)
    rows, skipped = read_rows(path, task, by)
    used: Sequence[str] = GRADINGS if any(row.gold is not None for row in rows) else ()
    used = used[:1] if kind == "code" else used  # they differ in nothing there, and tests take time
    scores, answers = list[Score](), list[str | None]()
    grades: dict[str, list[float]] = {name: [] for name in used}
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        scores += score_texts(judge, [(row.question, row.output, row.confidence) for row in some])
        for row in some:
            written = extract(kind, row.output, row.question)
            answers.append(None if written is None else normalise(kind, written))
            for name, values in grades.items():
                values.append(grade(kind, row.output, row.gold, name, row.question))
        progress(len(scores), len(rows))
    shared = [n for n in scores[0].parts if all(n in score.parts for score in scores)]
    parts = {name: [score.parts[name] for score in scores] for name in shared}
    parts = {"total": [score.total for score in scores], **parts}
    right = [value == 1.0 for value in grades.get(grading, grades.get("fixed", ()))]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(r.question for r in rows))}
    counts = statistics.resamples(len(numbers), draws, seed)

    def section(name: str, at: list[int]) -> Section:
        question = [numbers[rows[index].question] for index in at]
        truth = [right[index] for index in at] if grades else []
        components, pairs = [], 0
        for part, all_values in parts.items():
            values = [all_values[index] for index in at]
            ranked, paired = Estimate(), Estimate()
            if grades:
                ranked = statistics.auc(values, truth, question, counts)
                paired, pairs = statistics.pair_accuracy(values, truth, question, counts)
            weight = 1.0 if part == "total" else getattr(judge, "weights", {}).get(part)
            average, constant = sum(values) / len(at), min(values) == max(values)
            components.append(ComponentReport(part, weight, average, constant, ranked, paired))
        accuracy = {g: sum(grades[g][index] for index in at) / len(at) for g in grades}
        decided = min(sum(truth), len(truth) - sum(truth))
        selection = {}
        if grades and len(at) > len(set(question)):
            ours = [(answers[index], parts["total"][index], right[index]) for index in at]
            selection = {
                rule: statistics.over_questions(values, question, counts)
                for rule, values in choices(question, ours).items()
            }
        texts = len({(rows[index].question, rows[index].output) for index in at})
        return Section(name, len(at), len(set(question)), pairs, decided, accuracy, components,
                       selection, texts / len(set(question)))  # fmt: skip

    def natural(group: str) -> tuple[int, str]:
        value = group.rpartition("=")[2]
        return (int(value) if value.isdecimal() and len(value) < 15 else 0, group)

    groups = sorted({row.group for row in rows if row.group is not None}, key=natural)
    places = {name: [i for i, row in enumerate(rows) if row.group == name] for name in groups}
    sections = [section("all", list(range(len(rows))))]
    sections += [section(name, at) for name, at in places.items() if len(places) > 1]
    unread = [row for row, answer in zip(rows, answers, strict=True) if answer is None]
    same = [
        row.verdict == good
        for row, good in zip(rows, right, strict=False)
        if row.verdict is not None
    ]
    warnings = _warnings(sections[0])
    if 2 * len(unread) > len(rows):
        end, most = repr(unread[0].output.strip()[-120:]), f"{len(unread)} of {len(rows)} outputs"
        warnings.append(f"{most} have no readable answer; line {unread[0].line} ends in {end}")
    return ScoreReport(
        file=str(path),
        task=task,
        verifier=verifier if isinstance(verifier, str) else "custom",
        grading=grading,
        graded=len(right),
        skipped=skipped,
        unreadable=len(unread),
        agreement=sum(same) / len(same) if same else None,
        sections=sections,
        calibration=statistics.reliability(parts["total"], right) if grades else [],
        reliability=_reliability(rows, answers, parts["total"], right) if grades else None,
        changes=[
            Change(row.line, row.question, row.gold, d1, fixed,
                   *disagreement(kind, row.output, row.question, gained=d1 < fixed))
            for row, d1, fixed in zip(rows, grades["d1"], grades["fixed"], strict=True)
            if d1 != fixed
        ] if "d1" in grades else [],
        warnings=warnings,
        notes=notes_on_math() if kind == "math" else [],
    )  # fmt: skip


def _reliability(
    rows: Sequence[OutputRow],
    answers: Sequence[str | None],
    totals: Sequence[float],
    right: Sequence[bool],
) -> CalibrationReport | None:
    """Of cross-fitted probabilities; an answer's agreement is its share of the question's outputs."""
    votes = Counter((row.question, answer) for row, answer in zip(rows, answers, strict=True))
    outputs = Counter(row.question for row in rows)
    graded = []
    for row, total, good, answer in zip(rows, totals, right, answers, strict=True):
        share = votes[row.question, answer] / outputs[row.question] if answer is not None else 0.0
        graded.append(
            GradedAnswer(total, share, row.confidence, good, row.question, answer is not None)
        )
    return CalibrationReport.cross_fitted(graded)


def _warnings(section: Section) -> list[str]:
    warnings = []
    for part in section.components:
        below = [
            f"{name} {estimate.value:.3f}"
            for name, estimate in (("AUC", part.auc), ("pair accuracy", part.pair_accuracy))
            if section.decided >= ENOUGH and estimate.high is not None and estimate.high < 0.5
        ]
        if part.constant and part.weight != 0:
            warnings.append(f"{part.name} is constant ({part.mean:g}): it separates nothing here")
        elif below:
            warnings.append(f"{part.name} points the wrong way: {below[0]}")
    if not section.accuracy:
        warnings.append("the file has no gold answers, so there is no accuracy")
    return warnings


def render(report: ScoreReport, console: Console, *, explain: bool = False) -> None:
    """Print a report; with `explain` also every output on which `d1` and `fixed` differ."""

    def show(title: str, columns: str, rows: Iterable[Sequence[str]], caption: str = "") -> None:
        table = Table(
            title=title, caption=caption or None, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
        )
        for number, column in enumerate(columns.split("|")):
            table.add_column(column, justify="right" if number else "left", overflow="fold")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)

    def cell(estimate: Estimate, scale: float = 1) -> str:
        if estimate.value is None:
            return "–"
        digits = 3 if scale == 1 else 1
        value, *bounds = (
            "" if each is None else f"{scale * each:.{digits}f}"
            for each in (estimate.value, estimate.low, estimate.high)
        )
        return f"{value} ({bounds[0]}–{bounds[1]})" if bounds[0] else value

    def bins(title: str, value: str, many: Iterable[ReliabilityBin], caption: str = "") -> None:
        rows = [(f"{b.low:.1f}–{b.high:.1f}", str(b.count), f"{b.mean:.3f}", f"{100 * b.accuracy:.1f} %") for b in many]  # fmt: skip
        show(title, f"{value}|outputs|mean {value}|accuracy", rows, caption)

    def short(answer: str | None) -> str:
        return "–" if answer is None else answer if len(answer) <= 40 else f"…{answer[-39:]}"

    skipped = f", {report.skipped} lines of other tasks skipped" if report.skipped else ""
    head = f"verifier {escape(report.verifier)}, grading {report.grading}{skipped}"
    console.print(f"[bold]{escape(report.task)}[/bold], {head}")
    if report.agreement is not None:
        console.print(f"agrees with the file's own verdicts on {100 * report.agreement:.2f} %")
    for each in report.sections:
        shares = ", ".join(f"{g} {100 * share:.2f} %" for g, share in each.accuracy.items())
        counts = f"{each.outputs} outputs, {each.questions} questions, {each.pairs} pairs"
        rows = [
            (part.name, "" if part.weight is None else f"{part.weight:.2f}", f"{part.mean:.3f}",
             cell(part.auc), cell(part.pair_accuracy))
            for part in each.components
        ]  # fmt: skip
        columns = "part|weight|mean|AUC (95 %)|pair accuracy (95 %)"
        caption = f"accuracy: {shares}" if shares else ""
        show(f"{each.name}: {counts}", columns, rows, caption)
        if each.selection:
            chosen = [(rule, cell(found, 100)) for rule, found in each.selection.items()]
            texts = f"{each.distinct:.1f} different texts per question"
            show("one answer per question", "rule|accuracy, % (95 %)", chosen, texts)
    if report.calibration:
        bins("calibration of the total", "total", report.calibration)
    if report.reliability:
        found = report.reliability
        surest = ", ".join(f"surest {k}: {100 * v:.1f} %" for k, v in found.coverage.items())
        scores = f"Brier score {found.brier:.3f} (mean accuracy alone: {found.brier_of_mean:.3f})"
        title = "p_correct, cross-fitted over questions"
        bins(title, "p_correct", found.bins, f"{scores}; accuracy on the {surest}")
    if explain:
        listed = [
            (str(c.line), str(c.gold), f"{c.d1:.2f}", f"{c.fixed:.0f}", short(c.d1_answer),
             short(c.fixed_answer), c.reason)
            for c in report.changes
        ]  # fmt: skip
        title = f"{len(report.changes)} outputs are judged differently by d1 and fixed"
        show(title, "line|gold|d1|fixed|d1 reads|fixed reads|why", listed)
    for warning in report.warnings:
        console.print(f"[yellow]warning[/yellow] {escape(warning)}")
    for note in report.notes:
        console.print(f"note: {escape(note)}")
