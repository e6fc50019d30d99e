"""What a verifier is worth on outputs that already exist, of any model, from anywhere: `s3dlm score`.

A file of outputs (`outputs.py` says of what sort) becomes a report: means of the parts, accuracy under
each grading, what a choice among several outputs to one question gains, how well each part and the
total tell right from wrong, how far a probability made of it can be trusted, and warnings. Needs no model and no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from s3dlm import tasks
from s3dlm.answers import TASK_KINDS, extract, normalise
from s3dlm.answers.grading import GRADINGS, grade
from s3dlm.answers.grading import notes as notes_on_math
from s3dlm.answers.kinds import find_kind
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation import statistics
from s3dlm.evaluation.outputs import OutputRow, choices, kind_of_task, read_rows
from s3dlm.evaluation.statistics import CalibrationReport, Estimate
from s3dlm.verifier import Score, Verifier, as_verifier
from s3dlm.verifier.base import CHECKABLE, ScoreFunction, score_texts
from s3dlm.verifier.calibration import GradedAnswer, cross_fitted

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
    reliability: CalibrationReport | None  # of p_correct; None: too few graded outputs
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
    rows, skipped = read_rows(path, task, by)
    judge = as_verifier(verifier, task if task in TASK_KINDS else tasks.get(task).verifier)
    outputs = _JudgedOutputs(rows, kind_of_task(task), grading, judge, progress)
    sections = outputs.sections(statistics.resamples(len(outputs.numbers), draws, seed))
    unread = [row for row, answer in zip(rows, outputs.answers, strict=True) if answer is None]
    warnings = _warnings(sections[0])
    if 2 * len(unread) > len(rows):
        end, most = repr(unread[0].output.strip()[-120:]), f"{len(unread)} of {len(rows)} outputs"
        warnings.append(f"{most} have no readable answer; line {unread[0].line} ends in {end}")
    told = outputs.parts.get(CHECKABLE, [1.0])
    if 3 * told.count(0.0) > len(told):
        most = f"{told.count(0.0)} of {len(told)} outputs"
        warnings.append(f"{most} have no step to check: the verifier can say little about them")
    right, grades = outputs.right, outputs.grades
    pairs = zip(rows, right, strict=False)
    same = [row.verdict == good for row, good in pairs if row.verdict is not None]
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
        reliability=outputs.reliability() if grades else None,
        warnings=warnings,
        notes=notes_on_math() if outputs.kind == "math" else [],
    )


class _JudgedOutputs:
    """The outputs of a file with what the verifier and the gradings make of each."""

    def __init__(
        self,
        rows: Sequence[OutputRow],
        kind: str,
        grading: str,
        judge: Verifier,
        progress: Callable[[int, int], None],
    ) -> None:
        self.rows, self.kind = rows, kind
        used: Sequence[str] = GRADINGS if any(row.gold is not None for row in rows) else ()
        used = used[:1] if find_kind(kind).runs else used  # equal there, and tests take time
        self.grades: dict[str, list[float]] = {name: [] for name in used}
        self.answers: list[str | None] = []
        questions = dict.fromkeys(row.question for row in rows)
        self.numbers = {text: number for number, text in enumerate(questions)}
        scores = list[Score]()
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            scores += score_texts(judge, [(r.question, r.output, r.confidence) for r in chunk])
            for row in chunk:
                written = extract(kind, row.output, row.question)
                self.answers.append(None if written is None else normalise(kind, written))
                for name, values in self.grades.items():
                    values.append(grade(kind, row.output, row.gold, name, row.question))
            progress(len(scores), len(rows))
        shared = [n for n in scores[0].parts if all(n in score.parts for score in scores)]
        parts = {name: [score.parts[name] for score in scores] for name in shared}
        self.parts = {"total": [score.total for score in scores], **parts}
        self.weights = {**getattr(judge, "weights", {}), "total": 1.0}
        self.right = [x == 1.0 for x in self.grades.get(grading, self.grades.get("fixed", ()))]

    def sections(self, counts: Any) -> list[Section]:
        """All outputs, then those of each group if there are several."""

        def natural(group: str) -> tuple[int, str]:
            value = group.rpartition("=")[2]
            return (int(value) if value.isdecimal() and len(value) < 15 else 0, group)

        groups = sorted({row.group for row in self.rows if row.group is not None}, key=natural)
        places = {name: [i for i, r in enumerate(self.rows) if r.group == name] for name in groups}
        named = {"all": list(range(len(self.rows))), **(places if len(places) > 1 else {})}
        return [self._section(name, at, counts) for name, at in named.items()]

    def _section(self, name: str, at: list[int], counts: Any) -> Section:
        question = [self.numbers[self.rows[index].question] for index in at]
        truth = [self.right[index] for index in at] if self.grades else []
        components, pairs, selection = [], 0, {}
        for part, all_values in self.parts.items():
            values = [all_values[index] for index in at]
            ranked, paired = Estimate(), Estimate()
            if self.grades:
                ranked = statistics.auc(values, truth, question, counts)
                paired, pairs = statistics.pair_accuracy(values, truth, question, counts)
            weight, constant = self.weights.get(part), len({*values}) == 1
            mean = sum(values) / len(at)
            components.append(ComponentReport(part, weight, mean, constant, ranked, paired))
        if self.grades and len(at) > len(set(question)):
            totals = self.parts["total"]
            ours = [(self.answers[index], totals[index], self.right[index]) for index in at]
            selection = {
                rule: statistics.over_questions(values, question, counts)
                for rule, values in choices(question, ours).items()
            }
        accuracy = {g: sum(of[i] for i in at) / len(at) for g, of in self.grades.items()}
        decided, asked = min(sum(truth), len(truth) - sum(truth)), len(set(question))
        texts = len({(self.rows[i].question, self.rows[i].output) for i in at})
        return Section(name, len(at), asked, pairs, decided, accuracy, components, selection,
                       texts / asked)  # fmt: skip

    def reliability(self) -> CalibrationReport | None:
        """Of cross-fitted probabilities, if there are enough outputs; an answer's agreement is its share of
        the question's outputs."""
        pairs = [(r.question, answer) for r, answer in zip(self.rows, self.answers, strict=True)]
        votes, outputs = Counter(pairs), Counter(question for question, _ in pairs)
        graded = []
        for row, pair, total, right in zip(
            self.rows, pairs, self.parts["total"], self.right, strict=True
        ):
            answered = pair[1] is not None
            share = votes[pair] / outputs[row.question] if answered else 0.0
            graded.append(GradedAnswer(total, share, row.confidence, right, row.question, answered))
        try:
            return CalibrationReport.of(cross_fitted(graded), self.right)
        except SettingsError:  # too few
            return None


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
