"""The probability that an answer is right: how far a run's can be trusted, and fitting it for a model.

What a record holds of its chosen answer becomes a `GradedAnswer` of verifier/calibration.py. Probabilities are
fitted per task, method and verifier, because each of them changes what a score or an agreement means:
survivors of a resampled population agree more often than independent samples. What a fit is worth is
cross-fitted over questions: no probability comes from a fit that has seen its question.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm import tasks
from s3dlm.errors import SettingsError
from s3dlm.evaluation import frames
from s3dlm.evaluation.formats import Table
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import Condition, title_of
from s3dlm.evaluation.records import six_digits, write_atomic
from s3dlm.evaluation.statistics import CalibrationReport, mean
from s3dlm.models.folder import BUNDLED, HUB_ID, cached_folder
from s3dlm.verifier import bundled_verifiers, calibration, for_task
from s3dlm.verifier.base import score_texts
from s3dlm.verifier.calibration import Fit, GradedAnswer
from s3dlm.verifier.weights import PAPER, was_in_fit

Group = tuple[str, str, str]  # task, method, verifier


@dataclass(frozen=True, slots=True)
class GradedAnswers:
    """Graded answers by what a calibration depends on, and the weights they come from."""

    model: str
    fingerprint: str | None
    groups: Mapping[Group, Sequence[GradedAnswer]]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One fit, and its cross-fitted probabilities."""

    fit: Fit
    probabilities: Sequence[float]
    right: Sequence[bool]

    @property
    def report(self) -> CalibrationReport:
        return CalibrationReport.of(self.probabilities, self.right)


def verifier_of(condition: Condition, unscored: str) -> str | None:
    """Whose scores a condition's probabilities are made of; None: nobody can give them here.

    Code is not run again for a report, so methods that never score have none on code tasks.
    """
    if condition.settings.search.verified != "never":
        return condition.settings.verifier
    return unscored if tasks.get(condition.task).verifier in PAPER else None


def answers(run: RecordedRun, condition: Condition, unscored: str) -> list[GradedAnswer]:
    """The chosen answers of a condition, with their grades; empty where nothing can score them."""
    verifier = verifier_of(condition, unscored)
    if verifier is None:
        return []
    # A recorded run may name a verifier that loads weights or opens a connection: it is not built here.
    built, graded = verifier in (*bundled_verifiers(), unscored), []
    if not built and any(record.chosen_score is None for record in run.records[condition]):
        return []
    questions = {sample.id: sample.question for sample in run.samples[condition.task]}
    for record in run.records[condition]:
        question, survivors = questions[record.sample], record.survivors
        confidence, score = record.chosen_confidence, record.chosen_score
        if score is None:
            judge = for_task(tasks.get(condition.task).verifier, verifier)
            score = score_texts(judge, [(question, record.text, confidence)])[0].total
        share = sum(each.answer == record.answer for each in survivors) / len(survivors)
        right, answered = record.correct == 1.0, record.answer is not None
        graded.append(GradedAnswer(score, share, confidence, right, question, answered))
    return graded


def read_answers(folder: Path, verifier: str) -> GradedAnswers:
    """The answers of a run; `verifier` judges those of methods that never score."""
    groups: dict[Group, list[GradedAnswer]] = {}
    run = frames.read(folder)
    for condition in run.main_conditions:
        scored_by = verifier_of(condition, verifier)
        if scored_by is not None:
            method = condition.settings.search
            key = (condition.task, method.like or method.name, scored_by)
            groups.setdefault(key, []).extend(answers(run, condition, verifier))
    return GradedAnswers(run.manifest.model, run.manifest.fingerprint, groups)


def fit_groups(
    groups: Mapping[Group, Sequence[GradedAnswer]],
) -> tuple[list[Calibrated], list[str]]:
    """A fit for every group that is large enough, and why there is none for the others."""
    made, skipped = [], []
    for (task, method, verifier), graded in groups.items():
        right = [answer.right for answer in graded]
        try:
            weights = calibration.fit_answers(graded)  # first: an error then counts all answers
            probabilities = calibration.cross_fitted(graded)
        except SettingsError as error:
            skipped.append(f"{task}, {method}: {error}")
            continue
        questions, accuracy = len({answer.question for answer in graded}), sum(right) / len(right)
        brier = CalibrationReport.of(probabilities, right).brier
        fit = Fit(task, method, verifier, weights, questions, len(graded), accuracy, brier)
        made.append(Calibrated(fit, probabilities, right))
    return made, skipped


def write_fits(source: GradedAnswers, made: Sequence[Calibrated], out: Path | None = None) -> Path:
    """Add the fits to a calibration file, by default the one beside the weights; fits of other
    weights are dropped from it."""
    local = BUNDLED.get(source.model, Path(source.model))
    cached = cached_folder(source.model) if HUB_ID.fullmatch(source.model) else None
    folder = local if local.is_dir() else cached
    path = out or (folder and folder / calibration.CALIBRATION_FILE)
    if path is None:
        raise SettingsError(f"the weights of {source.model!r} are not on this disk; give --out")
    signature = None if folder is None else calibration.signature(folder)
    old = calibration.read_calibrations(path)
    same = (old.fingerprint, old.signature) == (source.fingerprint, signature)
    fits = {
        (fit.task, fit.method, fit.verifier): fit
        for fit in (*(old.fits if same else ()), *(calibrated.fit for calibrated in made))
    }
    rows = [json.dumps(six_digits(dataclasses.asdict(fits[key]))) for key in sorted(fits)]
    head = json.dumps({"fingerprint": source.fingerprint, "signature": signature})
    write_atomic(path, f'{head[:-1]}, "fits": [\n ' + ",\n ".join(rows) + "\n]}\n")
    return path


def tables(made: Sequence[Calibrated]) -> list[Table]:
    """What each fit is worth, and the reliability of all together."""
    fits = [
        (fit.task, fit.method, fit.verifier, str(fit.questions), f"{100 * fit.accuracy:.1f}",
         f"{report.brier:.3f}", f"{report.brier_of_mean:.3f}", f"{100 * report.coverage['50%']:.1f}")
        for fit, report in ((calibrated.fit, calibrated.report) for calibrated in made)
    ]  # fmt: skip
    columns = ("task", "method", "verifier", "questions", "accuracy (%)", "Brier", "Brier, constant p", "surest half (%)")  # fmt: skip
    values = [value for calibrated in made for value in calibrated.probabilities]
    whole = CalibrationReport.of(values, [right for row in made for right in row.right])
    rows = [each.to_row() for each in whole.bins]
    return [
        Table("fits", "p_correct, cross-fitted over questions", columns, fits),
        Table("bins", "Reliability of all together", ("p_correct", "answers", "mean", "accuracy (%)"), rows),
    ]  # fmt: skip


def reliabilities(run: RecordedRun) -> dict[Condition, CalibrationReport]:
    """How far the probabilities in a run's records can be trusted: the main comparison's conditions for
    which the model had a calibration."""
    made = {}
    for condition in run.main_conditions:
        records = run.records[condition]
        known = [record.p_correct for record in records if record.p_correct is not None]
        if known and len(known) == len(records):
            made[condition] = CalibrationReport.of(known, [r.correct == 1.0 for r in records])
    return made


def fitted_on(run: RecordedRun) -> list[str]:
    """What a report must say where problems were used to fit the weights of a verifier."""
    lines = []
    for condition in run.main_conditions:
        task, rows = condition.task, run.rows(condition)
        weights, name = tasks.get(task).verifier, str(condition.value("verifier"))
        fitted = {s.id for s in run.samples[task] if was_in_fit(weights, name, s.question)}
        problems = {row.sample for row in rows}
        if seen := problems & fitted:
            others = mean(row.correct for row in rows if row.sample not in fitted)
            lines.append(
                f"{condition.label} on {title_of(task)}: {len(seen)} of {len(problems)} problems were "
                f"used to fit its verifier; accuracy on the others: {100 * others:.1f} %."
            )
    return lines
