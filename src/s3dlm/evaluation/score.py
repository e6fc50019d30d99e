"""What a verifier is worth on outputs that already exist, of any model, from anywhere: `s3dlm score`.

A JSONL file with one question and output per line, and a gold answer if there is one, becomes a
report: means of the parts, accuracy under each grading, how well each part and the total tell right
from wrong, a calibration table, and warnings. Needs no model and no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s3dlm.answers import TASK_KINDS, extract, kind_of, normalise
from s3dlm.answers.grading import GRADINGS, disagreement, grade
from s3dlm.answers.grading import notes as notes_on_math
from s3dlm.errors import RecordError, SettingsError, unknown_name
from s3dlm.evaluation import statistics
from s3dlm.evaluation.statistics import CalibrationReport, Estimate, ReliabilityBin
from s3dlm.inputs import read_json_lines
from s3dlm.verifier import Verifier, as_verifier
from s3dlm.verifier.base import ScoreFunction, score_texts
from s3dlm.verifier.calibration import GradedAnswer

ENOUGH = 10  # with fewer right or wrong outputs than this, no part is called misleading

# The names by which the field writes its files.
QUESTION_KEYS = ("question", "prompt", "problem", "input")
OUTPUT_KEYS = ("output", "text", "generation", "generations", "response", "completion")
GOLD_KEYS = ("gold", "answer", "ground_truth", "target", "solution")


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output to one question, and the line of the file it stands on."""

    line: int
    question: str
    output: str
    gold: object = None
    confidence: float | None = None
    group: str | None = None


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
class ScoreReport:
    """All that `s3dlm score` prints, as plain data."""

    file: str
    task: str
    verifier: str
    grading: str
    graded: int
    skipped: int
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
    by: str = "gen_length",
    draws: int = 1000,
    seed: int = 0,
) -> ScoreReport:
    """Score every output of a task in a JSONL file and judge the verifier by it.

    `grading` decides what is right and wrong, `by` names a field by whose values the report is also
    split (left out when no line has it). Lines of another task are skipped. A missing gold answer in a
    file that has others counts as wrong.
    """
    for name, value, known in (("task", task, TASK_KINDS), ("grading", grading, GRADINGS)):
        if value not in known:
            raise SettingsError(unknown_name(name, value, known))
    judge = as_verifier(verifier, task)
    rows, skipped = read_rows(path, task, by)
    scores = score_texts(judge, [(row.question, row.output, row.confidence) for row in rows])
    parts = {name: [score.parts[name] for score in scores] for name in scores[0].parts}
    parts = {"total": [score.total for score in scores], **parts}
    used = GRADINGS if any(row.gold is not None for row in rows) else ()
    grades = {g: [grade(task, r.output, r.gold, g, r.question) for r in rows] for g in used}
    right = [value == 1.0 for value in grades.get(grading, ())]
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
        return Section(name, len(at), len(set(question)), pairs, decided, accuracy, components)

    def natural(group: str) -> tuple[int, str]:
        value = group.rpartition("=")[2]
        return (int(value) if value.isdecimal() and len(value) < 15 else 0, group)

    groups = sorted({row.group for row in rows if row.group is not None}, key=natural)
    places = {name: [i for i, row in enumerate(rows) if row.group == name] for name in groups}
    sections = [section("all", list(range(len(rows))))]
    sections += [section(name, at) for name, at in places.items() if len(places) > 1]
    return ScoreReport(
        file=str(path),
        task=task,
        verifier=verifier if isinstance(verifier, str) else "custom",
        grading=grading,
        graded=len(right),
        skipped=skipped,
        sections=sections,
        calibration=statistics.reliability(parts["total"], right) if grades else [],
        reliability=_reliability(rows, parts["total"], right, task) if grades else None,
        changes=[
            Change(row.line, row.question, row.gold, d1, fixed,
                   *disagreement(task, row.output, row.question, gained=d1 < fixed))
            for row, d1, fixed in zip(rows, grades["d1"], grades["fixed"], strict=True)
            if d1 != fixed
        ] if grades else [],
        warnings=_warnings(sections[0]),
        notes=notes_on_math() if kind_of(task) == "math" else [],
    )  # fmt: skip


def read_rows(path: str | Path, task: str, by: str = "gen_length") -> tuple[list[OutputRow], int]:
    """The lines of a file that belong to a task, and how many belong to others."""
    rows, skipped = [], 0
    for number, data in read_json_lines(path):
        if data.get("task", task) != task:
            skipped += 1
            continue
        question, output, gold = (
            next((data[key] for key in keys if key in data), None)
            for keys in (QUESTION_KEYS, OUTPUT_KEYS, GOLD_KEYS)
        )
        if not isinstance(question, str) or not isinstance(output, str):
            raise RecordError(
                f"{path}, line {number} has the keys {sorted(data)}; it needs a text under "
                "'question' and a text under 'output'"
            )
        confidence = data.get("confidence")
        if confidence is not None and not isinstance(confidence, int | float):
            raise RecordError(f"{path}, line {number}: confidence={confidence!r} is not a number")
        group = f"{by}={data[by]}" if by in data else None
        rows.append(OutputRow(number, question, output, gold, confidence, group))
    if not rows:
        other = f"({skipped} of other tasks)"
        raise RecordError(f"{str(path)!r} has no output of task {task!r} {other}")
    return rows, skipped


def _reliability(
    rows: Sequence[OutputRow], totals: Sequence[float], right: Sequence[bool], task: str
) -> CalibrationReport | None:
    """Of cross-fitted probabilities; an answer's agreement is its share of the question's outputs."""
    texts = [extract(task, row.output, row.question) for row in rows]
    answers = [None if text is None else normalise(task, text) for text in texts]
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
        table = Table(title=title, caption=caption or None)
        for number, column in enumerate(columns.split("|")):
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)

    def cells(estimate: Estimate) -> tuple[str, str]:
        if estimate.value is None:
            return "–", ""
        bounds = "" if estimate.low is None else f"{estimate.low:.3f}–{estimate.high:.3f}"
        return f"{estimate.value:.3f}", bounds

    def bins(title: str, value: str, many: Iterable[ReliabilityBin], caption: str = "") -> None:
        rows = [(f"{b.low:.1f}–{b.high:.1f}", str(b.count), f"{b.mean:.3f}", f"{100 * b.accuracy:.1f} %") for b in many]  # fmt: skip
        show(title, f"{value}|outputs|mean {value}|accuracy", rows, caption)

    def short(answer: str | None) -> str:
        return "–" if answer is None else answer if len(answer) <= 40 else f"…{answer[-39:]}"

    skipped = f", {report.skipped} lines of other tasks skipped" if report.skipped else ""
    head = f"verifier {escape(report.verifier)}, grading {report.grading}{skipped}"
    console.print(f"[bold]{escape(report.task)}[/bold], {head}")
    for each in report.sections:
        shares = ", ".join(f"{g} {100 * share:.2f} %" for g, share in each.accuracy.items())
        counts = f"{each.outputs} outputs, {each.questions} questions, {each.pairs} pairs"
        rows = [
            (part.name, "" if part.weight is None else f"{part.weight:.2f}", f"{part.mean:.3f}",
             *cells(part.auc), *cells(part.pair_accuracy))
            for part in each.components
        ]  # fmt: skip
        columns = "part|weight|mean|AUC|95 %|pair accuracy|95 %"
        caption = f"accuracy: {shares}" if shares else ""
        show(f"{each.name}: {counts}", columns, rows, caption)
    if report.calibration:
        bins("calibration of the total", "total", report.calibration)
    if report.reliability:
        found = report.reliability
        surest = ", ".join(f"surest {k}: {100 * v:.1f} %" for k, v in found.coverage.items())
        scores = f"Brier score {found.brier:.3f} (mean accuracy alone: {found.brier_of_mean:.3f})"
        title = "p_correct, cross-fitted over questions"
        bins(title, "p_correct", found.bins, f"{scores}; accuracy on the {surest}")
    if explain:
        rows = [
            (str(c.line), str(c.gold), f"{c.d1:.2f}", f"{c.fixed:.0f}", short(c.d1_answer),
             short(c.fixed_answer), c.reason)
            for c in report.changes
        ]  # fmt: skip
        title = f"{len(report.changes)} outputs are judged differently by d1 and fixed"
        show(title, "line|gold|d1|fixed|d1 reads|fixed reads|why", rows)
    for warning in report.warnings:
        console.print(f"[yellow]warning[/yellow] {escape(warning)}")
    for note in report.notes:
        console.print(f"note: {escape(note)}")
