"""How far a run's verifier can be trusted: probabilities against truth, and problems it was fitted on.

What a record holds of its chosen answer becomes a `GradedAnswer` of verifier/calibration.py. If the model
was calibrated, its probabilities are in the records; else they are fitted here, each on the other
questions of the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from s3dlm import tasks
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import Condition, title_of
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.statistics import CalibrationReport, mean
from s3dlm.evaluation.tables import Table, number
from s3dlm.verifier import CODE, for_task
from s3dlm.verifier.base import FROM_FILES
from s3dlm.verifier.calibration import GradedAnswer
from s3dlm.verifier.weights import was_in_fit

FOR_UNSCORED = "plus"  # the verifier that judges the answers of methods that never score
SHARES = ("25%", "50%", "75%")


@dataclass(frozen=True, slots=True)
class Reliability:
    """The probabilities of one condition against its grades."""

    condition: Condition
    by_model: bool  # by the model's calibration, or fitted on other questions of the run
    mean: float | None  # of the model's probabilities
    accuracy: float
    report: CalibrationReport


def verifier_of(condition: Condition, unscored: str = FOR_UNSCORED) -> str | None:
    """Whose scores a condition's probabilities are made of; None: nobody can give them here.

    Code is not run again for a report, so methods that never score have none on code tasks.
    """
    if "verifier" in condition.settings.active:
        return condition.settings.verifier
    return None if tasks.get(condition.task).verifier == CODE else unscored


def answers(run: Run, condition: Condition, unscored: str = FOR_UNSCORED) -> list[GradedAnswer]:
    """The chosen answers of a condition, with their grades; empty where nothing can score them."""
    verifier = verifier_of(condition, unscored)
    if verifier is None:
        return []
    # A recorded run may name a verifier that loads weights or opens a connection: it is not built here.
    built = verifier in (*FROM_FILES, unscored)
    if not built and any(record.chosen_score is None for record in run.records[condition]):
        return []
    questions = {sample.id: sample.question for sample in run.samples[condition.task]}
    return [_answer(r, condition, questions[r.sample], verifier) for r in run.records[condition]]


def _answer(record: Record, condition: Condition, question: str, verifier: str) -> GradedAnswer:
    chosen = next((text for text in record.survivors if text.text == record.text), None)
    confidence = record.chosen_confidence
    if confidence is None:  # a run of an older version
        confidence = record.confidence if chosen is None else chosen.confidence
    score = record.chosen_score
    if score is None:
        score = chosen.score if chosen is not None else None
    if score is None:
        judge = for_task(tasks.get(condition.task).verifier, verifier)
        score = judge.score(question, record.text, confidence).total
    votes = sum(survivor.answer == record.answer for survivor in record.survivors)
    return GradedAnswer(
        score=score,
        agreement=votes / len(record.survivors),
        confidence=confidence,
        right=record.correct == 1.0,
        question=question,
        answered=record.answer is not None,
    )


def reliabilities(run: Run) -> list[Reliability]:
    """One for each condition of the main comparison that has enough answers."""
    every = (condition for task in run.tasks for condition in run.main(task).values())
    return [made for condition in every if (made := _reliability(run, condition)) is not None]


def _reliability(run: Run, condition: Condition) -> Reliability | None:
    records = run.records[condition]
    right = [record.correct == 1.0 for record in records]
    probabilities = [record.p_correct for record in records if record.p_correct is not None]
    if records and len(probabilities) == len(records):
        report = CalibrationReport.of(probabilities, right)
        return Reliability(condition, True, mean(probabilities), mean(right), report)
    fitted = CalibrationReport.cross_fitted(answers(run, condition))
    return None if fitted is None else Reliability(condition, False, None, mean(right), fitted)


def probability_table(reliabilities: Sequence[Reliability]) -> Table:
    """Brier score and accuracy at coverage."""
    rows = [
        (
            title_of(each.condition.task),
            each.condition.label,
            "the model's" if each.by_model else "cross-fitted",
            "–" if each.mean is None else number(100 * each.mean),
            number(100 * each.accuracy),
            number(each.report.brier, 3),
            number(each.report.brier_of_mean, 3),
            *(number(100 * each.report.coverage[share]) for share in SHARES),
        )
        for each in reliabilities
    ]
    columns = ("Task", "Method", "Calibration", "Mean p_correct (%)", "Accuracy (%)", "Brier score",
               "of the mean", *(f"Surest {share[:-1]} % (%)" for share in SHARES))  # fmt: skip
    note = (
        "p_correct: the probability that the chosen answer is right. Calibration: the model's own, "
        "or fitted on the other questions of this run (five folds). Brier score: mean squared "
        "distance to the truth; “of the mean”: if every answer got the mean accuracy. Last columns: "
        "accuracy on the share of answers with the highest p_correct. A method without a row has too "
        "few wrong answers, or too few right ones, to fit a probability."
    )
    return Table("probability", "Probability of being right", columns, rows, note, late=True)


def reliability_bins(reliabilities: Sequence[Reliability]) -> pd.DataFrame:
    """The points of the reliability diagram."""
    rows = [
        (each.condition.task, each.condition.label, bin_.mean, bin_.accuracy, bin_.count)
        for each in reliabilities
        for bin_ in each.report.bins
    ]
    return pd.DataFrame(rows, columns=("task", "label", "p_correct", "accuracy", "count"))


def in_fit(run: Run) -> Table:
    """Accuracy on problems that the verifier's weights were fitted on, and on the others."""
    rows = []
    for task in run.tasks:
        for label, condition in run.main(task).items():
            weights, name = tasks.get(task).verifier, str(condition.value("verifier"))
            fitted = {s.id for s in run.samples[task] if was_in_fit(weights, name, s.question)}
            records = run.records[condition]
            seen = [record for record in records if record.sample in fitted]
            if seen:
                count = len({record.sample for record in seen})
                problems = len({record.sample for record in records})
                others = mean(r.correct for r in records if r.sample not in fitted)
                shares = (mean(record.correct for record in seen), others)
                rows.append((title_of(task), label, f"{count} of {problems}",
                             *(number(100 * share) for share in shares)))  # fmt: skip
    columns = ("Task", "Method", "In the fit", "Accuracy on these (%)", "on the others (%)")
    note = (
        "The weights of the verifier `plus` were fitted on outputs of another model for these "
        "problems (docs/verifier.md). Quote the last column."
    )
    return Table("in_fit", "Problems on which the verifier was fitted", columns, rows, note)
