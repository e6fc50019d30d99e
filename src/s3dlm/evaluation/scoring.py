"""What a verifier is worth on outputs that already exist, of any model, from anywhere.

A JSONL file with a question and an output a line, and a gold answer if there is one, becomes a
report: means of the components, accuracy under each grading preset, how well each component and the
total tell right from wrong, a calibration table, and warnings. Needs no model and no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from s3dlm.answers import PRESETS, TASK_KINDS, grade, graded_answer, kind_of, notes
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation.outputs import Row, read_rows
from s3dlm.evaluation.ranking import Estimate, Resamples, auc, pair_accuracy
from s3dlm.verifier import Score, Verifier, for_task

ENOUGH = 10  # with fewer right or wrong outputs than this, no component is called misleading


@dataclass(frozen=True, slots=True)
class ComponentReport:
    """What one component, or the total, is worth on one set of outputs."""

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
    accuracy: dict[str, float]
    components: list[ComponentReport]


@dataclass(frozen=True, slots=True)
class Bin:
    """A row of the calibration table: outputs whose total lies in [low, high)."""

    low: float
    high: float
    outputs: int
    mean_total: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Change:
    """A verdict that the `fixed` preset changes against `d1`, and why."""

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
    profile: str
    preset: str
    graded: int
    skipped: int
    sections: list[Section]
    calibration: list[Bin]
    changes: list[Change] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report as data that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Judged:
    row: Row
    score: Score
    grades: Mapping[str, float]
    question: int


def score_file(
    path: str | Path,
    task: str,
    *,
    profile: str = "paper",
    verifier: Verifier | None = None,
    preset: str = "fixed",
    by: str = "gen_length",
    draws: int = 1000,
    seed: int = 0,
) -> Report:
    """Score every output of a task in a JSONL file and judge the verifier by it.

    `preset` says which grading the AUCs are measured against, `by` names a field by whose values
    the report is also split (left out when no line has it). Lines of another task are skipped.
    """
    if task not in TASK_KINDS:
        raise SettingsError(unknown_name("task", task, TASK_KINDS))
    if preset not in PRESETS:
        raise SettingsError(unknown_name("preset", preset, PRESETS))
    judge = verifier or for_task(task, profile)
    rows, skipped = read_rows(path, task, by)
    judged = _judge(rows, task, judge)
    sections = _sections(judged, preset, by, _weights(judge), draws, seed)
    graded = [item for item in judged if item.grades]
    return Report(
        file=str(path),
        task=task,
        profile="custom" if verifier else profile,
        preset=preset,
        graded=len(graded),
        skipped=skipped,
        sections=sections,
        calibration=_calibration(graded, preset),
        changes=_changes(graded, task),
        warnings=_warnings(sections[0]),
        notes=notes() if kind_of(task) == "math" else [],
    )


def _judge(rows: Sequence[Row], task: str, verifier: Verifier) -> list[_Judged]:
    """Score and grade each row. A file with gold answers may have gaps: those count as wrong."""
    numbers: dict[str, int] = {}
    with_gold = any(row.gold is not None for row in rows)
    judged = []
    for row in rows:
        number = numbers.setdefault(row.question, len(numbers))
        score = verifier.score(row.question, row.output, row.confidence)
        grades = _grades(row, task) if with_gold else {}
        judged.append(_Judged(row, score, grades, number))
    return judged


def _grades(row: Row, task: str) -> dict[str, float]:
    return {p: grade(task, row.output, row.gold, p, row.question) for p in PRESETS}


def _weights(verifier: Verifier) -> Mapping[str, float]:
    weights = getattr(verifier, "weights", {})
    return weights if isinstance(weights, Mapping) else {}


def _sections(
    judged: list[_Judged], preset: str, by: str, weights: Mapping[str, float], draws: int, seed: int
) -> list[Section]:
    resamples = Resamples.draw(max(item.question for item in judged) + 1, draws, seed)
    groups = sorted({item.row.group for item in judged if item.row.group is not None}, key=_natural)
    sections = [_section("all", judged, preset, weights, resamples)]
    for group in groups if len(groups) > 1 else []:
        members = [item for item in judged if item.row.group == group]
        sections.append(_section(group, members, preset, weights, resamples))
    return sections


def _natural(group: str) -> tuple[int, str]:
    value = group.rpartition("=")[2]
    return (int(value) if value.isdecimal() and len(value) < 15 else 0, group)


def _section(
    name: str, items: list[_Judged], preset: str, weights: Mapping[str, float], resamples: Resamples
) -> Section:
    right = [item.grades.get(preset, 0.0) == 1.0 for item in items] if items[0].grades else []
    question = [item.question for item in items]
    names = ["total", *items[0].score.parts]
    components, pairs = [], 0
    for part in names:
        values = [item.score.total if part == "total" else item.score.parts[part] for item in items]
        ranked, paired = Estimate(None), Estimate(None)
        if right:
            ranked = auc(values, right, question, resamples)
            paired, pairs = pair_accuracy(values, right, question, resamples)
        weight = 1.0 if part == "total" else weights.get(part)
        mean, constant = sum(values) / len(values), min(values) == max(values)
        components.append(ComponentReport(part, weight, mean, constant, ranked, paired))
    accuracy = {p: sum(i.grades[p] for i in items) / len(items) for p in items[0].grades}
    decided = min(sum(right), len(right) - sum(right))
    return Section(name, len(items), len(set(question)), pairs, decided, accuracy, components)


def _calibration(graded: list[_Judged], preset: str, bins: int = 10) -> list[Bin]:
    """Accuracy in each tenth of the score's range; empty tenths are left out."""
    groups: dict[int, list[_Judged]] = {}
    for item in graded:
        total = min(max(item.score.total, 0.0), 1.0)
        groups.setdefault(min(int(total * bins), bins - 1), []).append(item)
    return [
        Bin(
            low=number / bins,
            high=(number + 1) / bins,
            outputs=len(items),
            mean_total=sum(item.score.total for item in items) / len(items),
            accuracy=sum(item.grades[preset] == 1.0 for item in items) / len(items),
        )
        for number, items in sorted(groups.items())
    ]


def _changes(graded: list[_Judged], task: str) -> list[Change]:
    """Every output on which `d1` and `fixed` disagree."""
    changes = []
    for item in graded:
        d1, fixed = item.grades["d1"], item.grades["fixed"]
        if d1 == fixed:
            continue
        row = item.row
        before, after = (graded_answer(task, row.output, p, row.question) for p in ("d1", "fixed"))
        reason = _reason(task, d1, fixed, before, after)
        change = Change(row.line, row.question, row.gold, d1, fixed, before, after, reason)
        changes.append(change)
    return changes


def _reason(
    task: str, d1: float, fixed: float, d1_answer: str | None, fixed_answer: str | None
) -> str:
    kind = kind_of(task)
    if kind == "grid":
        return "d1 counts the right cells; fixed asks for the whole grid"
    if fixed_answer is None:
        return "there is no box, so fixed reads no answer"
    if d1_answer is None:
        return "d1 reads no answer: the box is not closed on its line, or not well formed"
    if kind == "number":
        return f"d1 reads {d1_answer} from its first number, fixed reads all of {fixed_answer!r}"
    if len(d1_answer) > 2 * len(fixed_answer) + 100:
        return "d1 takes the whole text for the answer"
    if kind == "math" and fixed > d1:
        return "the two are equal in value, though not in spelling"
    return "the two presets read the answer differently"


def _warnings(section: Section) -> list[str]:
    warnings = []
    for part in section.components:
        wrong_way = _wrong_way(part) if section.decided >= ENOUGH else None
        if part.constant and part.weight != 0:
            warnings.append(f"{part.name} is constant ({part.mean:g}): it tells nothing apart here")
        elif wrong_way:
            warnings.append(f"{part.name} points the wrong way: {wrong_way}")
    if not section.accuracy:
        warnings.append("there is no gold answer in the file, so nothing can be said of accuracy")
    return warnings


def _wrong_way(part: ComponentReport) -> str | None:
    """Which figure lies below one half with its whole interval."""
    for name, estimate in (("AUC", part.auc), ("pair accuracy", part.pair_accuracy)):
        if estimate.high is not None and estimate.high < 0.5:
            return f"{name} {estimate.value:.3f}"
    return None
