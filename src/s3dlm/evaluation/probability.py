"""How sure the answers of a run are, and whether they are right as often as that.

What a record holds of its chosen answer becomes a `GradedAnswer` of verifier/calibration.py. If the model
was calibrated, its probabilities are in the records; else they are fitted here, each on the other
questions of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s3dlm import tasks
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.series import Table
from s3dlm.evaluation.statistics import CalibrationReport
from s3dlm.evaluation.summary import Evaluation
from s3dlm.evaluation.tables import Grid, number, title_of
from s3dlm.verifier import CODE, for_task
from s3dlm.verifier.calibration import GradedAnswer

FOR_UNSCORED = "plus"  # the verifier that judges the answers of methods that never score
SHARES = ("25%", "50%", "75%")


@dataclass(frozen=True, slots=True)
class Sureness:
    """The probabilities of one condition against its grades."""

    condition: Condition
    by_model: bool  # by the model's calibration, or fitted on other questions of the run
    mean: float | None  # of the model's probabilities
    accuracy: float
    worth: CalibrationReport


def verifier_of(condition: Condition, unscored: str = FOR_UNSCORED) -> str | None:
    """Whose scores a condition's probabilities are made of; None: nobody can give them here.

    Code is not run again for a report, so methods that never score have none on code tasks.
    """
    if "verifier" in condition.settings.active:
        return condition.settings.verifier
    return None if tasks.get(condition.task).verifier == CODE else unscored


def answers(
    run: Evaluation, condition: Condition, unscored: str = FOR_UNSCORED
) -> list[GradedAnswer]:
    """The chosen answers of a condition, with their grades; empty where nothing can score them."""
    verifier = verifier_of(condition, unscored)
    if verifier is None:
        return []
    questions = {sample.id: sample.question for sample in run.samples[condition.task]}
    return [_answer(r, condition, questions[r.sample], verifier) for r in run.records[condition]]


def _answer(record: Record, condition: Condition, question: str, verifier: str) -> GradedAnswer:
    chosen = next((one for one in record.survivors if one.text == record.text), None)
    confidence = record.chosen_confidence
    if confidence is None:  # a run of an older version
        confidence = record.confidence if chosen is None else chosen.confidence
    score = record.chosen_score
    if score is None:
        score = chosen.score if chosen is not None else None
    if score is None:
        judge = for_task(tasks.get(condition.task).verifier, verifier)
        score = judge.score(question, record.text, confidence).total
    votes = sum(one.answer == record.answer for one in record.survivors)
    return GradedAnswer(
        score=score,
        agreement=votes / len(record.survivors),
        confidence=confidence,
        right=record.correct == 1.0,
        question=question,
        answered=record.answer is not None,
    )


def sureness(run: Evaluation) -> list[Sureness]:
    """One for each condition of the main comparison that has enough answers."""
    found = (
        _sureness(run, condition) for task in run.tasks for condition in run.main(task).values()
    )
    return [one for one in found if one is not None]


def _sureness(run: Evaluation, condition: Condition) -> Sureness | None:
    records = run.records[condition]
    right = [record.correct == 1.0 for record in records]
    chances = [record.p_correct for record in records if record.p_correct is not None]
    if records and len(chances) == len(records):
        share = sum(right) / len(right)
        mean = sum(chances) / len(chances)
        return Sureness(condition, True, mean, share, CalibrationReport.of(chances, right))
    worth = CalibrationReport.cross_fitted(answers(run, condition))
    if worth is None:
        return None
    return Sureness(condition, False, None, sum(right) / len(right), worth)


def table(found: Sequence[Sureness]) -> Grid:
    """Brier score and accuracy at coverage."""
    rows = tuple(
        (
            title_of(one.condition.task),
            one.condition.label,
            "the model's" if one.by_model else "cross-fitted",
            "–" if one.mean is None else number(100 * one.mean),
            number(100 * one.accuracy),
            number(one.worth.brier, 3),
            number(one.worth.brier_of_mean, 3),
            *(number(100 * one.worth.coverage[share]) for share in SHARES),
        )
        for one in found
    )
    columns = ("Task", "Method", "Calibration", "Mean p_correct (%)", "Accuracy (%)", "Brier score",
               "of the mean", *(f"Surest {share[:-1]} % (%)" for share in SHARES))  # fmt: skip
    note = (
        "p_correct: the probability that the chosen answer is right. Calibration: the model's own, "
        "or fitted on the other questions of this run (five folds). Brier score: mean squared "
        "distance to the truth; “of the mean”: if every answer got the mean accuracy. Last columns: "
        "accuracy on the share of answers with the highest p_correct. A method without a row has too "
        "few wrong answers, or too few right ones, to fit a probability."
    )
    return Grid("probability", "Probability of being right", columns, rows, note, late=True)


def reliability(found: Sequence[Sureness]) -> Table:
    """The points of the reliability diagram."""
    rows = [
        (one.condition.task, one.condition.label, bin_.mean, bin_.accuracy, bin_.count)
        for one in found
        for bin_ in one.worth.bins
    ]
    return Table("reliability", ("task", "label", "p_correct", "accuracy", "count"), tuple(rows))
