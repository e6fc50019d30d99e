"""What a verifier is worth on outputs that already exist, of any model, from anywhere: `s3dlm score`.

A file of outputs (`outputs.py` says of what sort) becomes a report: means of the parts, accuracy under
each grading, what a choice among several outputs to one question gains, how well each part and the
total tell right from wrong, how far a probability made of it can be trusted, and warnings. Needs no model and no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm import tasks
from s3dlm.answers import TASK_KINDS, extract, normalise
from s3dlm.answers.grading import GRADINGS, check_grading, grade
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
    """What one part of the verifier, or the total, is worth on the outputs."""

    name: str
    weight: float | None
    mean: float
    constant: bool
    auc: Estimate
    pair_accuracy: Estimate


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """All that `s3dlm score` prints, as plain data."""

    task: str
    verifier: str
    grading: str
    outputs: int
    questions: int
    pairs: int  # of a right and a wrong output to one question
    skipped: int  # lines of other tasks
    unreadable: int  # outputs without an answer
    distinct: float  # different texts per question
    agreement: float | None  # with the verdicts of another harness that stand in the file
    accuracy: dict[str, float]  # by grading; empty without gold answers
    components: list[ComponentReport]
    selection: dict[str, Estimate]  # accuracy by rule; empty with one output to each question
    reliability: CalibrationReport | None  # of p_correct; None: too few graded outputs
    warnings: list[str]
    notes: list[str]


def score_file(
    path: str | Path,
    task: str,
    *,
    verifier: str | Verifier | ScoreFunction = "paper",
    grading: str = "fixed",
    draws: int = 1000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ScoreReport:
    """Score every output of a task in a file and judge the verifier by it.

    `grading` decides what is right and wrong. Lines of another task are skipped. A missing gold answer
    in a file that has others counts as wrong. `progress` is called with how many outputs are done, and
    of how many.
    """
    check_grading(grading)
    known = [*TASK_KINDS, *(name for name in tasks.names() if name not in TASK_KINDS)]
    if task not in known:
        raise SettingsError(unknown_name("task", task, known))
    (rows, skipped), kind = read_rows(path, task), kind_of_task(task)
    judge = as_verifier(verifier, task if task in TASK_KINDS else tasks.get(task).verifier)
    scores, answers, grades = _judged(rows, kind, judge, progress)
    right = [x == 1.0 for x in grades.get(grading, grades.get("fixed", ()))]
    numbers = {text: place for place, text in enumerate(dict.fromkeys(r.question for r in rows))}
    question = [numbers[row.question] for row in rows]
    counts = statistics.resamples(len(numbers), draws, seed)

    shared = [n for n in scores[0].parts if all(n in score.parts for score in scores)]
    parts = {name: [score.parts[name] for score in scores] for name in shared}
    parts = {"total": [score.total for score in scores], **parts}
    weights = {**getattr(judge, "weights", {}), "total": 1.0}
    components, pairs, selection = [], 0, {}
    for name, values in parts.items():
        ranked, paired = Estimate(), Estimate()
        if right:
            ranked = statistics.auc(values, right, question, counts)
            paired, pairs = statistics.pair_accuracy(values, right, question, counts)
        average, constant = sum(values) / len(values), len({*values}) == 1
        part = ComponentReport(name, weights.get(name), average, constant, ranked, paired)
        components.append(part)
    if right and len(rows) > len(numbers):
        ruled = choices(question, list(zip(answers, parts["total"], right, strict=True)))
        selection = {
            rule: statistics.over_questions(values, question, counts)
            for rule, values in ruled.items()
        }
    verdicts = [row.verdict for row in rows] if right else []
    same = [a == b for a, b in zip(verdicts, right, strict=True) if a is not None]
    return ScoreReport(
        task=task,
        verifier=verifier if isinstance(verifier, str) else "custom",
        grading=grading,
        outputs=len(rows),
        questions=len(numbers),
        pairs=pairs,
        skipped=skipped,
        unreadable=answers.count(None),
        distinct=len({(row.question, row.output) for row in rows}) / len(numbers),
        agreement=sum(same) / len(same) if same else None,
        accuracy={name: sum(values) / len(values) for name, values in grades.items()},
        components=components,
        selection=selection,
        reliability=_reliability(rows, answers, parts["total"], right) if right else None,
        warnings=[
            *_of_components(components, min(sum(right), len(right) - sum(right))),
            *([] if right else ["the file has no gold answers, so there is no accuracy"]),
            *_of_outputs(rows, answers, parts.get(CHECKABLE, [1.0])),
        ],
        notes=notes_on_math() if kind == "math" else [],
    )


def _judged(
    rows: Sequence[OutputRow], kind: str, judge: Verifier, progress: Callable[[int, int], None]
) -> tuple[list[Score], list[str | None], dict[str, list[float]]]:
    """What the verifier says of each output, its answer, and its grades if there are gold answers."""
    used: Sequence[str] = GRADINGS if any(row.gold is not None for row in rows) else ()
    used = used[:1] if find_kind(kind).runs else used  # equal there, and tests take time
    scores, answers = list[Score](), list[str | None]()
    grades: dict[str, list[float]] = {name: [] for name in used}
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        scores += score_texts(judge, [(r.question, r.output, r.confidence) for r in chunk])
        for row in chunk:
            written = extract(kind, row.output, row.question)
            answers.append(None if written is None else normalise(kind, written))
            for name, values in grades.items():
                values.append(grade(kind, row.output, row.gold, name, row.question))
        progress(len(scores), len(rows))
    return scores, answers, grades


def _reliability(
    rows: Sequence[OutputRow],
    answers: Sequence[str | None],
    totals: Sequence[float],
    right: Sequence[bool],
) -> CalibrationReport | None:
    """Of cross-fitted probabilities, if there are enough outputs; an answer's agreement is its share of
    the question's outputs."""
    pairs = [(row.question, answer) for row, answer in zip(rows, answers, strict=True)]
    votes, outputs = Counter(pairs), Counter(question for question, _ in pairs)
    graded = []
    for row, pair, total, good in zip(rows, pairs, totals, right, strict=True):
        answered = pair[1] is not None
        share = votes[pair] / outputs[row.question] if answered else 0.0
        graded.append(GradedAnswer(total, share, row.confidence, good, row.question, answered))
    try:
        return CalibrationReport.of(cross_fitted(graded), right)
    except SettingsError:  # too few
        return None


def _of_components(components: Sequence[ComponentReport], decided: int) -> list[str]:
    """Warnings of parts that separate nothing, or the wrong way; `decided` is the smaller of the counts
    of right and of wrong outputs."""
    warnings = []
    for part in components:
        below = [
            f"{name} {estimate.value:.3f}"
            for name, estimate in (("AUC", part.auc), ("pair accuracy", part.pair_accuracy))
            if decided >= ENOUGH and estimate.high is not None and estimate.high < 0.5
        ]
        if part.constant and part.weight != 0:
            warnings.append(f"{part.name} is constant ({part.mean:g}): it separates nothing here")
        elif below:
            warnings.append(f"{part.name} points the wrong way: {below[0]}")
    return warnings


def _of_outputs(
    rows: Sequence[OutputRow], answers: Sequence[str | None], checkable: Sequence[float]
) -> list[str]:
    """Warnings of outputs that mostly have no answer, or nothing to check."""
    warnings, unread = [], [r for r, answer in zip(rows, answers, strict=True) if answer is None]
    if 2 * len(unread) > len(rows):
        end, most = repr(unread[0].output.strip()[-120:]), f"{len(unread)} of {len(rows)} outputs"
        warnings.append(f"{most} have no readable answer; line {unread[0].line} ends in {end}")
    if 3 * checkable.count(0.0) > len(checkable):
        most = f"{checkable.count(0.0)} of {len(checkable)} outputs"
        warnings.append(f"{most} have no step to check: the verifier can say little about them")
    return warnings
