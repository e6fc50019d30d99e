"""From the records of a run to a model's calibration file: what `s3dlm calibrate` does.

Probabilities are fitted per task, method and verifier, because each of them changes what a score or
an agreement means: survivors of a resampled population agree more often than independent samples.
Brier score and reliability are cross-fitted over questions: no probability comes from a fit that has
seen its question. Outputs of another program, as a JSONL file, count as answers of `baseline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.answers import extract, grade
from s3dlm.errors import SettingsError
from s3dlm.evaluation import probability, summary
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.scoring import read_rows
from s3dlm.models import calibrations
from s3dlm.models.calibrations import Calibrations, Fit
from s3dlm.verifier import for_task
from s3dlm.verifier.calibration import (
    Answer,
    Certainty,
    cross_fitted,
    fit_answers,
    measured,
    reliability,
)

Key = tuple[str, str, str]  # task, method, verifier


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One fit, and its cross-fitted probabilities."""

    fit: Fit
    chances: Sequence[float]
    right: Sequence[bool]

    @property
    def worth(self) -> Certainty:
        return measured(self.chances, self.right)


def groups_of_run(run: summary.Evaluation, unscored: str) -> dict[Key, list[Answer]]:
    """The answers of a run's main comparison by what a calibration depends on."""
    found: dict[Key, list[Answer]] = {}
    for task in run.tasks:
        for condition in run.main(task).values():
            verifier = probability.verifier_of(condition, unscored)
            if verifier is not None:
                key = (task, condition.settings.method.name, verifier)
                found.setdefault(key, []).extend(probability.answers(run, condition, unscored))
    return found


def groups_of_outputs(path: Path, names: Iterable[str], verifier: str) -> dict[Key, list[Answer]]:
    """Outputs in a file, each an answer of its own that nobody else agrees or disagrees with."""
    found: dict[Key, list[Answer]] = {}
    for task in names:
        judge = for_task(task, verifier)
        found[task, "baseline", verifier] = [
            Answer(
                judge.score(row.question, row.output, row.confidence).total,
                1.0,
                row.confidence,
                grade(task, row.output, row.gold, "fixed", row.question) == 1.0,
                row.question,
                extract(task, row.output, row.question) is not None,
            )
            for row in read_rows(path, task)[0]
        ]
    return found


@dataclass(frozen=True, slots=True)
class Source:
    """Graded answers by what a calibration depends on, and the weights they come from."""

    model: str
    fingerprint: str | None
    groups: Mapping[Key, Sequence[Answer]]

    @property
    def folder(self) -> Path | None:
        """Where the model's weights are on this disk."""
        return calibrations.folder_of(self.model)


def read(source: Path, verifier: str, task: str | None = None, model: str | None = None) -> Source:
    """The answers of a run's folder, or of a file of outputs, which needs the task and the model."""
    if source.is_file():
        if task is None or model is None:
            raise SettingsError(f"{source} does not say what it holds; give --task and --model")
        return Source(model, None, groups_of_outputs(source, task.split(","), verifier))
    run = summary.read(source)
    return Source(run.manifest.model, run.manifest.fingerprint, groups_of_run(run, verifier))


def calibrate(groups: Mapping[Key, Sequence[Answer]]) -> tuple[list[Calibrated], list[str]]:
    """A fit for every group that is large enough, and why there is none for the others."""
    made, skipped = [], []
    for (task, method, verifier), answers in groups.items():
        right = [bool(answer.right) for answer in answers]
        try:
            chances, weights = cross_fitted(answers), fit_answers(answers).to_dict()
        except SettingsError as error:
            skipped.append(f"{task}, {method}: {error}")
            continue
        fit = Fit(
            task, method, verifier, weights,
            questions=len({answer.question for answer in answers}),
            answers=len(answers),
            accuracy=sum(right) / len(right),
            brier=measured(chances, right).brier,
        )  # fmt: skip
        made.append(Calibrated(fit, chances, right))
    return made, skipped


def write(source: Source, made: Sequence[Calibrated], out: Path | None = None) -> Path:
    """Add the fits to a calibration file, by default the one beside the weights; fits of other
    weights are dropped from it."""
    folder = source.folder
    path = out or (folder and folder / calibrations.FILE)
    if path is None:
        raise SettingsError(f"the weights of {source.model!r} are not on this disk; give --out")
    signature = None if folder is None else calibrations.signature(folder)
    old = calibrations.read_calibrations(path)
    if (old.fingerprint, old.signature) != (source.fingerprint, signature):
        old = Calibrations((), source.fingerprint, signature)
    write_atomic(path, old.updated(one.fit for one in made).to_text())
    return path


def tables(made: Sequence[Calibrated]) -> list[tuple[Any, Any, str]]:
    """Columns, rows and title: what each fit is worth, and the reliability of all together."""
    rows = [
        (
            one.fit.task,
            one.fit.method,
            one.fit.verifier,
            str(one.fit.questions),
            f"{100 * one.fit.accuracy:.1f}",
            f"{one.worth.brier:.3f}",
            f"{one.worth.brier_of_mean:.3f}",
            f"{100 * one.worth.coverage['50%']:.1f}",
        )
        for one in made
    ]
    columns = ("task", "method", "verifier", "questions", "accuracy (%)", "Brier", "of the mean", "surest half (%)")  # fmt: skip
    chances = [chance for one in made for chance in one.chances]
    right = [good for one in made for good in one.right]
    bins = [
        (f"{b.low:.1f}–{b.high:.1f}", str(b.count), f"{b.mean:.3f}", f"{100 * b.accuracy:.1f}")
        for b in reliability(chances, right)
    ]
    return [
        (columns, rows, "p_correct, cross-fitted over questions"),
        (("p_correct", "answers", "mean", "accuracy (%)"), bins, "Reliability of all together"),
    ]
