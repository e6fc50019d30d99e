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
from s3dlm.evaluation.statistics import CalibrationReport, mean
from s3dlm.evaluation.tables import Table, number
from s3dlm.verifier import CODE, for_task
from s3dlm.verifier.base import FROM_FILES, score_texts
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
    built, graded = verifier in (*FROM_FILES, unscored), []
    if not built and any(record.chosen_score is None for record in run.records[condition]):
        return []
    questions = {sample.id: sample.question for sample in run.samples[condition.task]}
    for record in run.records[condition]:
        question, survivors = questions[record.sample], record.survivors
        chosen = next((text for text in survivors if text.text == record.text), None)
        confidence, score = record.chosen_confidence, record.chosen_score
        if confidence is None:  # a run of an older version
            confidence = record.confidence if chosen is None else chosen.confidence
        if score is None and chosen is not None:
            score = chosen.score
        if score is None:
            judge = for_task(tasks.get(condition.task).verifier, verifier)
            score = score_texts(judge, [(question, record.text, confidence)])[0].total
        share = sum(each.answer == record.answer for each in survivors) / len(survivors)
        right, answered = record.correct == 1.0, record.answer is not None
        graded.append(GradedAnswer(score, share, confidence, right, question, answered))
    return graded


def reliabilities(run: Run) -> list[Reliability]:
    """One for each condition of the main comparison that has enough answers."""
    made = []
    for condition in (condition for task in run.tasks for condition in run.main(task).values()):
        records = run.records[condition]
        right = [record.correct == 1.0 for record in records]
        known = [record.p_correct for record in records if record.p_correct is not None]
        if by_model := bool(records) and len(known) == len(records):
            report: CalibrationReport | None = CalibrationReport.of(known, right)
        else:
            report = CalibrationReport.cross_fitted(answers(run, condition))
        if report is not None:
            average = mean(known) if by_model else None
            made.append(Reliability(condition, by_model, average, mean(right), report))
    return made


def probability_table(reliabilities: Sequence[Reliability]) -> Table:
    """Brier score and accuracy at coverage."""
    rows = [
        (title_of(each.condition.task), each.condition.label,
         "the model's" if each.by_model else "cross-fitted",
         "–" if each.mean is None else number(100 * each.mean), number(100 * each.accuracy),
         number(each.report.brier, 3), number(each.report.brier_of_mean, 3),
         *(number(100 * each.report.coverage[share]) for share in SHARES))
        for each in reliabilities
    ]  # fmt: skip
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
    for condition in (condition for task in run.tasks for condition in run.main(task).values()):
        task, records = condition.task, run.records[condition]
        weights, name = tasks.get(task).verifier, str(condition.value("verifier"))
        fitted = {s.id for s in run.samples[task] if was_in_fit(weights, name, s.question)}
        seen = [record for record in records if record.sample in fitted]
        if seen:
            others = [record for record in records if record.sample not in fitted]
            count, problems = (len({r.sample for r in some}) for some in (seen, records))
            accuracies = [number(100 * mean(r.correct for r in some)) for some in (seen, others)]
            rows.append((title_of(task), condition.label, f"{count} of {problems}", *accuracies))
    columns = ("Task", "Method", "In the fit", "Accuracy on these (%)", "on the others (%)")
    note = (
        "The weights of the verifier `plus` were fitted on outputs of another model for these "
        "problems (docs/verifier.md). Quote the last column."
    )
    return Table("in_fit", "Problems on which the verifier was fitted", columns, rows, note)
