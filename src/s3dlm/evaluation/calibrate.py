"""From the records of a run to a model's calibration file: what `s3dlm calibrate` does.

Probabilities are fitted per task, method and verifier, because each of them changes what a score or
an agreement means: survivors of a resampled population agree more often than independent samples.
Brier score and reliability are cross-fitted over questions: no probability comes from a fit that has
seen its question. Outputs of another program, as a JSONL file, count as answers of `baseline`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm.answers import extract
from s3dlm.answers.grading import grade
from s3dlm.errors import SettingsError
from s3dlm.evaluation import frames, probability, statistics
from s3dlm.evaluation.outputs import read_rows
from s3dlm.evaluation.records import rounded, write_atomic
from s3dlm.evaluation.statistics import CalibrationReport
from s3dlm.models.defaults import BUNDLED
from s3dlm.models.folder import HUB_ID, cached_folder
from s3dlm.verifier import calibration, for_task
from s3dlm.verifier.base import score_texts
from s3dlm.verifier.calibration import Fit, GradedAnswer

Group = tuple[str, str, str]  # task, method, verifier
Row = tuple[str, ...]


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


def read(
    source: Path, verifier: str, tasks: Sequence[str] = (), model: str | None = None
) -> GradedAnswers:
    """The answers of a run's folder, or of a file of outputs, which needs the tasks and the model.

    `verifier` judges the answers of methods that never score."""
    groups: dict[Group, list[GradedAnswer]] = {}
    if source.is_file():
        if not tasks or model is None:
            raise SettingsError(f"{source} does not say what it holds; give --task and --model")
        for name in tasks:
            judge = for_task(name, verifier)
            # Each output is an answer of its own that nobody else agrees or disagrees with.
            groups[name, "baseline", verifier] = [
                GradedAnswer(
                    score=score_texts(judge, [(row.question, row.output, row.confidence)])[0].total,
                    agreement=1.0,
                    confidence=row.confidence,
                    right=grade(name, row.output, row.gold, "fixed", row.question) == 1.0,
                    question=row.question,
                    answered=extract(name, row.output, row.question) is not None,
                )
                for row in read_rows(source, name)[0]
            ]
        return GradedAnswers(model, None, groups)
    run = frames.read(source)
    for name in run.tasks:
        for condition in run.main(name).values():
            scored_by = probability.verifier_of(condition, verifier)
            if scored_by is not None:
                key = (name, condition.settings.row.kin, scored_by)
                answers = probability.answers(run, condition, verifier)
                groups.setdefault(key, []).extend(answers)
    return GradedAnswers(run.manifest.model, run.manifest.fingerprint, groups)


def calibrate(
    groups: Mapping[Group, Sequence[GradedAnswer]],
) -> tuple[list[Calibrated], list[str]]:
    """A fit for every group that is large enough, and why there is none for the others."""
    made, skipped = [], []
    for (task, method, verifier), answers in groups.items():
        right = [answer.right for answer in answers]
        try:
            weights = calibration.fit_answers(answers)  # first: an error then counts all answers
            probabilities = calibration.cross_fitted(answers)
        except SettingsError as error:
            skipped.append(f"{task}, {method}: {error}")
            continue
        questions, accuracy = len({answer.question for answer in answers}), sum(right) / len(right)
        brier = statistics.brier(probabilities, right)
        fit = Fit(task, method, verifier, weights, questions, len(answers), accuracy, brier)
        made.append(Calibrated(fit, probabilities, right))
    return made, skipped


def write(source: GradedAnswers, made: Sequence[Calibrated], out: Path | None = None) -> Path:
    """Add the fits to a calibration file, by default the one beside the weights; fits of other
    weights are dropped from it."""
    local = BUNDLED.get(source.model, Path(source.model))
    cached = cached_folder(source.model) if HUB_ID.fullmatch(source.model) else None
    folder = local if local.is_dir() else cached
    path = out or (folder and folder / calibration.FILE)
    if path is None:
        raise SettingsError(f"the weights of {source.model!r} are not on this disk; give --out")
    signature = None if folder is None else calibration.signature(folder)
    old = calibration.read_calibrations(path)
    same = (old.fingerprint, old.signature) == (source.fingerprint, signature)
    fits = {
        (fit.task, fit.method, fit.verifier): fit
        for fit in (*(old.fits if same else ()), *(calibrated.fit for calibrated in made))
    }
    rows = [json.dumps(rounded(dataclasses.asdict(fits[key]))) for key in sorted(fits)]
    head = json.dumps({"fingerprint": source.fingerprint, "signature": signature})
    write_atomic(path, f'{head[:-1]}, "fits": [\n ' + ",\n ".join(rows) + "\n]}\n")
    return path


def tables(made: Sequence[Calibrated]) -> Iterable[tuple[Row, list[Row], str]]:
    """Columns, rows and title: what each fit is worth, and the reliability of all together."""
    rows: list[Row] = [
        (fit.task, fit.method, fit.verifier, str(fit.questions), f"{100 * fit.accuracy:.1f}",
         f"{report.brier:.3f}", f"{report.brier_of_mean:.3f}", f"{100 * report.coverage['50%']:.1f}")
        for fit, report in ((calibrated.fit, calibrated.report) for calibrated in made)
    ]  # fmt: skip
    columns = ("task", "method", "verifier", "questions", "accuracy (%)", "Brier", "of the mean", "surest half (%)")  # fmt: skip
    yield columns, rows, "p_correct, cross-fitted over questions"
    values = [value for calibrated in made for value in calibrated.probabilities]
    bins = statistics.reliability(values, [right for row in made for right in row.right])
    rows = [each.to_row() for each in bins]
    yield ("p_correct", "answers", "mean", "accuracy (%)"), rows, "Reliability of all together"
