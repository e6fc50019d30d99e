"""Fit the weights of the `plus` verifier, and say by cross-validation what they are worth.

    S3DLM_DATA=folder python tools/fit_verifier.py [gsm8k math500]

Reads `llada8b_outputs.jsonl` in that folder: two outputs to every question. The loss is pairwise
(of a right and a wrong output to one question, the right one should score higher) with a small
pointwise term to steady it, an L2 penalty, and weights that cannot be negative. A pair counts under
each grading grading that calls one output right and the other wrong, so that the weights do not lean
on the quirks of either. Folds are cut by question. Prints the cross-validated pair accuracy and
AUC (with the weights rounded as they ship) and the rows for `verifier/weights.py`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3dlm.answers import grade
from s3dlm.verifier.plus import FEATURES
from s3dlm.verifier.ranking import Resamples, auc, pair_accuracy
from s3dlm.verifier.reading import Reading

Floats = NDArray[np.float64]

NAMES = [feature.__name__ for group in FEATURES.values() for feature in group]
GRADINGS = ("d1", "fixed")
PENALTY = 0.01
POINTWISE = 0.3
FOLDS, REPEATS = 10, 3


@dataclass(frozen=True)
class Outputs:
    """The features and verdicts of all outputs of a task."""

    features: Floats  # [outputs, features]
    right: dict[str, NDArray[np.bool_]]  # by grading
    question: NDArray[np.int64]
    length: NDArray[np.int64]


def read(task: str) -> Outputs:
    """Features and verdicts, one row for each output."""
    file = Path(os.environ["S3DLM_DATA"]) / "llada8b_outputs.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["task"] == task]
    numbers: dict[str, int] = {}
    question = [numbers.setdefault(row["question"], len(numbers)) for row in rows]
    right = {
        grading: np.array(
            [grade(task, r["output"], r["gold"], grading, r["question"]) == 1.0 for r in rows]
        )
        for grading in GRADINGS
    }
    features = np.array([_features(row["question"], row["output"]) for row in rows])
    lengths = np.array([row["gen_length"] for row in rows])
    return Outputs(features, right, np.array(question), lengths)


def _features(question: str, output: str) -> list[float]:
    reading = Reading(question, output)
    return [feature(reading) for group in FEATURES.values() for feature in group]


def pairs(outputs: Outputs, chosen: NDArray[np.bool_]) -> Floats:
    """Features of the right output less those of the wrong one, for each pair among the chosen."""
    by_question: dict[int, list[int]] = {}
    for row in np.flatnonzero(chosen):
        by_question.setdefault(int(outputs.question[row]), []).append(int(row))
    differences = [
        outputs.features[a] - outputs.features[b]
        for verdicts in outputs.right.values()
        for rows in by_question.values()
        for a in rows
        for b in rows
        if verdicts[a] and not verdicts[b]
    ]
    return np.array(differences)


def fit(differences: Floats, points: Floats, right: Floats, steps: int = 1500) -> Floats:
    """Minimise the loss by accelerated gradient steps, projected on weights of 0 or more."""
    count = points.shape[1]
    mean = points.mean(axis=0)
    weights, ahead, bias = np.full(count, 0.3), np.full(count, 0.3), 0.0
    rate = 1.0 / (0.25 * count * 1.5)
    for step in range(1, steps + 1):
        missed = 1 / (1 + np.exp(differences @ ahead))
        error = 1 / (1 + np.exp(-((points - mean) @ ahead + bias))) - right
        gradient = -(differences * missed[:, None]).mean(axis=0) + 2 * PENALTY * ahead
        gradient += POINTWISE * ((points - mean) * error[:, None]).mean(axis=0)
        bias -= error.mean()
        stepped = np.maximum(ahead - rate * gradient, 0.0)
        ahead = stepped + (step - 1) / (step + 2) * (stepped - weights)
        weights = stepped
    return weights


def rounded(weights: Floats) -> Floats:
    """As they ship: shares in hundredths; what is below one hundredth is left out."""
    return np.round(weights / weights.sum(), 2)


def train(outputs: Outputs, chosen: NDArray[np.bool_]) -> Floats:
    """The weights from the chosen outputs alone."""
    right = np.mean([verdicts[chosen] for verdicts in outputs.right.values()], axis=0)
    return rounded(fit(pairs(outputs, chosen), outputs.features[chosen], right))


def cross_validate(outputs: Outputs) -> None:
    """Score every output by weights that never saw its question; print what that is worth."""
    questions = int(outputs.question.max()) + 1
    resamples = Resamples.draw(questions, draws=200, seed=0)
    figures: dict[str, list[tuple[float, ...]]] = {grading: [] for grading in GRADINGS}
    for repeat in range(REPEATS):
        fold = np.random.default_rng(repeat).permutation(questions) % FOLDS
        scores = np.zeros(len(outputs.question))
        for number in range(FOLDS):
            held_out = fold[outputs.question] == number
            scores[held_out] = outputs.features[held_out] @ train(outputs, ~held_out)
        scores = np.round(scores, 9)  # equal features are a tie, whatever the order of summation
        for grading in GRADINGS:
            figures[grading].append(_figures(outputs, scores, grading, resamples))
    for grading, values in figures.items():
        pair, balanced, ranked = np.mean(values, axis=0)
        spread = np.std([value[0] for value in values])
        print(
            f"  {grading:<6} pair accuracy {pair:.3f} (± {spread:.3f} over foldings), "
            f"by length of the right one {balanced:.3f}, AUC at 128 {ranked:.3f}"
        )


def _figures(
    outputs: Outputs, scores: Floats, grading: str, resamples: Resamples
) -> tuple[float, float, float]:
    """Pair accuracy; the mean of it where the shorter and where the longer is right; AUC at 128."""
    right = outputs.right[grading]
    whole, _ = pair_accuracy(list(scores), list(right), list(outputs.question), resamples)
    halves = []
    for length in (128, 256):
        wins = [
            (scores[a] > scores[b]) + 0.5 * (scores[a] == scores[b])
            for a in np.flatnonzero(right & (outputs.length == length))
            for b in np.flatnonzero(~right & (outputs.question == outputs.question[a]))
        ]
        halves.append(np.mean(wins))
    short = outputs.length == 128
    ranked = auc(list(scores[short]), list(right[short]), list(outputs.question[short]), resamples)
    assert whole.value is not None
    assert ranked.value is not None
    return whole.value, float(np.mean(halves)), ranked.value


def main() -> None:
    """Fit each task and print its figures and its row."""
    for task in sys.argv[1:] or ["gsm8k", "math500"]:
        outputs = read(task)
        print(f"{task}: {len(outputs.question)} outputs, cross-validated:")
        cross_validate(outputs)
        weights = train(outputs, np.ones(len(outputs.question), dtype=bool))
        row = {name: float(w) for name, w in zip(NAMES, weights, strict=True) if w}
        print(f"  fitted on all: {json.dumps(row)}")


if __name__ == "__main__":
    main()
