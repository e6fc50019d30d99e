"""From what a search knows about its answer to a probability.

A calibration is fitted on answers whose correctness is known: it combines score, agreement among survivors
and confidence into one probability, `Result.p_correct`. Applying a calibration needs no scipy, fitting one
does. How far probabilities can be trusted is measured in evaluation/statistics.py.

A model's calibrations are in `calibration.json` beside its weights, where `s3dlm calibrate` writes
them; for a few models the package has the file itself. They belong to the weights: if these are not
the ones of the fit, they are not used.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from s3dlm.errors import MissingExtraError, ModelError, SettingsError
from s3dlm.verifier.names import bundled_verifiers

CALIBRATION_FILE = "calibration.json"
CALIBRATED_FOLDER = Path(__file__).parent / "calibrated"  # for models whose weights are elsewhere
LEAST_ANSWERS = (
    20  # a fit on fewer answers, or on fewer than two right and two wrong ones, says nothing
)
FOLDS = 5
_READ = 2**20  # bytes of each end of a weight file; training changes all of them

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AnswerCalibration:
    """The probability that a chosen answer is right: logistic in score, agreement and confidence."""

    intercept: float
    score: float
    agreement: float
    confidence: float
    typical_confidence: float = 0.5  # stands in where a model gives none

    def p_correct(self, score: float, agreement: float, confidence: float | None = None) -> float:
        sure = self.typical_confidence if confidence is None else confidence
        logit = self.intercept + self.score * score + self.agreement * agreement
        return sigmoid(logit + self.confidence * sure)


@dataclass(frozen=True, slots=True)
class Fit:
    """The calibration of one method on one task, and what it was worth on questions it never saw."""

    task: str
    method: str
    verifier: str  # whose score it reads
    weights: AnswerCalibration
    questions: int = 0
    answers: int = 0
    accuracy: float = 0.0
    brier: float = 0.0  # cross-fitted over questions


@dataclass(frozen=True, slots=True)
class Calibrations:
    """All fits of one model."""

    fits: tuple[Fit, ...] = ()
    fingerprint: str | None = None  # of the weights, as an evaluation computes it
    signature: str | None = None  # of the weight files, cheap enough for every load

    def find(self, task: str | None, method: str, verifier: str | None) -> Fit | None:
        """The fit for a task and a method whose scores are this verifier's (None: a bundled one's)."""
        allowed = bundled_verifiers() if verifier is None else [verifier]
        fits = [fit for fit in self.fits if fit.task == task and fit.verifier in allowed]
        return next((fit for fit in fits if fit.method == method), None)


def read_calibrations(path: Path) -> Calibrations:
    """A calibration file; none is an empty one."""
    if not path.is_file():
        return Calibrations()
    try:
        return TypeAdapter(Calibrations).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{path} is not a calibration ({type(error).__name__}: {why}); remove it, or write it again "
            "with `s3dlm calibrate`"
        ) from error


def calibrations_in(folder: Path, name: str = "", kind: str = "") -> Calibrations:
    """The calibrations of a checkpoint folder, else the bundled ones of a model's name, and after these
    those of its kind: its family and width. Those of a folder whose weights have changed since are left
    out."""
    if not (folder / CALIBRATION_FILE).is_file():
        own, kin = read_calibrations(bundled(name)), read_calibrations(bundled(kind))
        return replace(own, fits=own.fits + kin.fits)
    calibrations = read_calibrations(folder / CALIBRATION_FILE)
    unchanged = calibrations.signature in (None, signature(folder))
    return calibrations if unchanged else Calibrations()


def bundled(name: str) -> Path:
    """Where the package keeps the calibration of a model of the hub, if it has one."""
    return CALIBRATED_FOLDER / f"{name.replace('/', '--')}.json"


def signature(folder: Path) -> str | None:
    """A hash of both ends of every weight file; None where there is none."""
    digest, files = hashlib.sha256(), sorted(folder.glob("*.safetensors"))
    for path in files:
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(_READ))
            file.seek(max(0, size - _READ))
            digest.update(file.read(_READ))
    return digest.hexdigest()[:16] if files else None


def sigmoid(value: float) -> float:
    """1 / (1 + exp(−value)), for any size of value."""
    small = math.exp(-abs(value))
    return 1 / (1 + small) if value >= 0 else small / (1 + small)


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """What a search knows about the answer it chose, and whether it was right."""

    score: float
    agreement: float  # the share of survivors that gave this answer
    confidence: float | None
    right: bool
    question: str
    answered: bool = True  # False: the text has no answer, so its probability is 0


def fit_answers(answers: Iterable[GradedAnswer]) -> AnswerCalibration:
    """The calibration of chosen answers; texts without an answer are left out. More of a feature is
    never worse: with few answers, a negative weight is chance."""
    answered = [answer for answer in answers if answer.answered]
    stated = [answer.confidence for answer in answered if answer.confidence is not None]
    typical = float(np.mean(stated)) if stated else 0.5
    sure = [typical if answer.confidence is None else answer.confidence for answer in answered]
    features = [(a.score, a.agreement, value) for a, value in zip(answered, sure, strict=True)]
    weights = _fit(np.array(features), [answer.right for answer in answered])
    score, agreement, confidence, intercept = map(float, weights)
    return AnswerCalibration(intercept, score, agreement, confidence, typical)


def cross_fitted(answers: Sequence[GradedAnswer]) -> list[float]:
    """The probability of each answer by a calibration that never saw its question."""
    least = LEAST_ANSWERS * FOLDS // (FOLDS - 1)  # each fit leaves a fold out
    if len(answers) < least:
        raise SettingsError(
            f"{len(answers)} answers are too few to fit a calibration; give at least {least}"
        )
    questions = sorted({answer.question for answer in answers})
    fold_of = {question: number % FOLDS for number, question in enumerate(questions)}
    fits = [fit_answers(a for a in answers if fold_of[a.question] != f) for f in range(FOLDS)]
    return [
        a.answered * fits[fold_of[a.question]].p_correct(a.score, a.agreement, a.confidence)
        for a in answers
    ]


def _fit(features: Floats, right: Sequence[bool]) -> Floats:
    """Logistic regression with a light L2 penalty and no negative weight; the last weight is the
    intercept. Features are standardised, so that the penalty means the same for all; one that never
    varies gets the weight 0."""
    try:
        from scipy import optimize
    except ImportError as error:
        raise MissingExtraError("scipy", "report") from error
    good = sum(map(bool, right))
    if len(right) < LEAST_ANSWERS or min(good, len(right) - good) < 2:
        needed = (
            f"at least {LEAST_ANSWERS}"
            if len(right) < LEAST_ANSWERS
            else "two right and two wrong ones at least"
        )
        raise SettingsError(
            f"{len(right)} answers, {good} of them right, are too few to fit a calibration; give {needed}"
        )
    centre, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    points = np.column_stack([(features - centre) / scale, np.ones(len(features))])
    truth = np.asarray(right, dtype=np.float64)
    ridge = np.append(np.full(features.shape[1], 1e-2), 1e-9)

    def loss(weights: Floats) -> tuple[float, Floats]:
        logits = points @ weights
        residual = (1 + np.tanh(logits / 2)) / 2 - truth
        value = np.mean(np.logaddexp(0, logits) - truth * logits) + ridge @ weights**2 / 2
        return float(value), points.T @ residual / len(truth) + ridge * weights

    bounds = [(0.0, None)] * features.shape[1] + [(None, None)]
    options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": 1000}
    start = np.zeros(points.shape[1])
    weights = optimize.minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    slopes = weights[:-1] / scale
    return np.append(slopes, weights[-1] - slopes @ centre)
