"""What a verifier is worth on outputs that already exist, of any model, from anywhere.

A JSONL file with one question and output per line, and a gold answer if there is one, becomes a
report: means of the parts, accuracy under each grading, how well each part and the total tell right
from wrong, a calibration table, and warnings. Needs no model and no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.answers import (
    GRADINGS,
    TASK_KINDS,
    disagreement,
    extract,
    grade,
    kind_of,
    normalise,
    notes,
)
from s3dlm.errors import RecordError, SettingsError, unknown_name
from s3dlm.evaluation.ranking import Estimate, Resamples, auc, pair_accuracy
from s3dlm.evaluation.scoring_report import Change, ComponentReport, Report, Section
from s3dlm.evaluation.statistics import CalibrationReport, ReliabilityBin, reliability
from s3dlm.inputs import read_json_lines
from s3dlm.verifier import Score, Verifier, as_verifier
from s3dlm.verifier.base import ScoreFunction
from s3dlm.verifier.calibration import GradedAnswer

ENOUGH = 10  # with fewer right or wrong outputs than this, no part is called misleading

# The names by which the field writes its files.
QUESTION_KEYS = ("question", "prompt", "problem", "input")
OUTPUT_KEYS = ("output", "text", "generation", "generations", "response", "completion")
GOLD_KEYS = ("gold", "answer", "ground_truth", "target", "solution")


@dataclass(frozen=True, slots=True)
class Row:
    """One output to one question, and the line of the file it stands on."""

    line: int
    question: str
    output: str
    gold: object = None
    confidence: float | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class _Judged:
    row: Row
    score: Score
    grades: Mapping[str, float]
    question: int  # the questions of a file, numbered

    def value(self, part: str) -> float:
        return self.score.total if part == "total" else self.score.parts[part]


def score_file(
    path: str | Path,
    task: str,
    *,
    verifier: str | Verifier | ScoreFunction = "paper",
    grading: str = "fixed",
    by: str = "gen_length",
    draws: int = 1000,
    seed: int = 0,
) -> Report:
    """Score every output of a task in a JSONL file and judge the verifier by it.

    `grading` decides what is right and wrong, `by` names a field by whose values the report is also
    split (left out when no line has it). Lines of another task are skipped.
    """
    if task not in TASK_KINDS:
        raise SettingsError(unknown_name("task", task, TASK_KINDS))
    if grading not in GRADINGS:
        raise SettingsError(unknown_name("grading", grading, GRADINGS))
    judge = as_verifier(verifier, task)
    rows, skipped = read_rows(path, task, by)
    judged = _judge(rows, task, judge)
    resamples = Resamples.draw(max(item.question for item in judged) + 1, draws, seed)
    weights = getattr(judge, "weights", {})
    sections = [
        _section(name, items, grading, weights, resamples) for name, items in _groups(judged)
    ]
    graded = [item for item in judged if item.grades]
    return Report(
        file=str(path),
        task=task,
        verifier=verifier if isinstance(verifier, str) else "custom",
        grading=grading,
        graded=len(graded),
        skipped=skipped,
        sections=sections,
        calibration=_calibration(graded, grading),
        certainty=_certainty(graded, task, grading),
        changes=_changes(graded, task),
        warnings=_warnings(sections[0]),
        notes=notes() if kind_of(task) == "math" else [],
    )


def read_rows(path: str | Path, task: str, by: str = "gen_length") -> tuple[list[Row], int]:
    """The lines of a file that belong to a task, and how many belong to others."""
    rows, skipped = [], 0
    for number, data in read_json_lines(path):
        if data.get("task", task) == task:
            rows.append(_row(f"{path}, line {number}", number, data, by))
        else:
            skipped += 1
    if not rows:
        raise RecordError(
            f"{str(path)!r} has no output of task {task!r} ({skipped} of other tasks)"
        )
    return rows, skipped


def _row(place: str, number: int, data: dict[str, Any], by: str) -> Row:
    question, output, gold = (
        next((data[key] for key in keys if key in data), None)
        for keys in (QUESTION_KEYS, OUTPUT_KEYS, GOLD_KEYS)
    )
    if not isinstance(question, str) or not isinstance(output, str):
        raise RecordError(
            f"{place} has the keys {sorted(data)}; it needs a text under 'question' and a text "
            "under 'output'"
        )
    confidence = data.get("confidence")
    if confidence is not None and not isinstance(confidence, (int, float)):
        raise RecordError(f"{place}: confidence={confidence!r} is not a number")
    group = f"{by}={data[by]}" if by in data else None
    return Row(number, question, output, gold, confidence, group)


def _judge(rows: Sequence[Row], task: str, verifier: Verifier) -> list[_Judged]:
    """Score and grade each row. A missing gold answer in a file that has others counts as wrong."""
    numbers: dict[str, int] = {}
    with_gold = any(row.gold is not None for row in rows)
    scores = verifier.score_batch(
        [row.question for row in rows],
        [row.output for row in rows],
        [row.confidence for row in rows],
    )
    return [
        _Judged(
            row,
            score,
            {g: grade(task, row.output, row.gold, g, row.question) for g in GRADINGS if with_gold},
            numbers.setdefault(row.question, len(numbers)),
        )
        for row, score in zip(rows, scores, strict=True)
    ]


def _groups(judged: list[_Judged]) -> list[tuple[str, list[_Judged]]]:
    names = sorted({item.row.group for item in judged if item.row.group is not None}, key=_natural)
    groups = [(name, [i for i in judged if i.row.group == name]) for name in names]
    return [("all", judged), *(groups if len(groups) > 1 else [])]


def _natural(group: str) -> tuple[int, str]:
    value = group.rpartition("=")[2]
    return (int(value) if value.isdecimal() and len(value) < 15 else 0, group)


def _section(
    name: str,
    items: list[_Judged],
    grading: str,
    weights: Mapping[str, float],
    resamples: Resamples,
) -> Section:
    right = [item.grades[grading] == 1.0 for item in items if item.grades]
    question = [item.question for item in items]
    components, pairs = [], 0
    for part in ("total", *items[0].score.parts):
        values = [item.value(part) for item in items]
        ranked, paired = Estimate(None), Estimate(None)
        if right:
            ranked = auc(values, right, question, resamples)
            paired, pairs = pair_accuracy(values, right, question, resamples)
        weight = 1.0 if part == "total" else weights.get(part)
        mean, constant = sum(values) / len(values), min(values) == max(values)
        components.append(ComponentReport(part, weight, mean, constant, ranked, paired))
    accuracy = {g: sum(i.grades[g] for i in items) / len(items) for g in items[0].grades}
    decided = min(sum(right), len(right) - sum(right))
    return Section(name, len(items), len(set(question)), pairs, decided, accuracy, components)


def _calibration(graded: list[_Judged], grading: str) -> list[ReliabilityBin]:
    """Accuracy in each tenth of the score's range."""
    right = [item.grades[grading] == 1.0 for item in graded]
    return reliability([item.score.total for item in graded], right)


def _certainty(graded: list[_Judged], task: str, grading: str) -> CalibrationReport | None:
    given = [extract(task, item.row.output, item.row.question) for item in graded]
    answers = [None if answer is None else normalise(task, answer) for answer in given]
    pairs = [(item.question, answer) for item, answer in zip(graded, answers, strict=True)]
    same, outputs = Counter(pairs), Counter(item.question for item in graded)
    known = [
        GradedAnswer(
            score=item.score.total,
            agreement=same[pair] / outputs[item.question] if pair[1] is not None else 0.0,
            confidence=item.row.confidence,
            right=item.grades[grading] == 1.0,
            question=item.row.question,
            answered=pair[1] is not None,
        )
        for item, pair in zip(graded, pairs, strict=True)
    ]
    return CalibrationReport.cross_fitted(known)


def _changes(graded: list[_Judged], task: str) -> list[Change]:
    """Every output on which `d1` and `fixed` disagree."""
    changes = []
    for item in graded:
        d1, fixed = item.grades["d1"], item.grades["fixed"]
        if d1 == fixed:
            continue
        row = item.row
        why = disagreement(task, row.output, row.question, gained=d1 < fixed)
        changes.append(Change(row.line, row.question, row.gold, d1, fixed, *why))
    return changes


def _warnings(section: Section) -> list[str]:
    warnings = []
    for part in section.components:
        wrong_way = _wrong_way(part) if section.decided >= ENOUGH else None
        if part.constant and part.weight != 0:
            warnings.append(f"{part.name} is constant ({part.mean:g}): it separates nothing here")
        elif wrong_way:
            warnings.append(f"{part.name} points the wrong way: {wrong_way}")
    if not section.accuracy:
        warnings.append("the file has no gold answers, so there is no accuracy")
    return warnings


def _wrong_way(part: ComponentReport) -> str | None:
    """Which figure lies below one half with its whole interval."""
    for name, estimate in (("AUC", part.auc), ("pair accuracy", part.pair_accuracy)):
        if estimate.high is not None and estimate.high < 0.5:
            return f"{name} {estimate.value:.3f}"
    return None
