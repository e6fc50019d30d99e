"""Fit the weights of the `checker` verifier on one half of the questions, and report on the other.

For texts in the format of d1's prompts: MATH-500 and, by the GSM8K outputs, the bundled problems.
The weights for GSM8K in any format come from `benchmarks/free_text.py`.

    S3DLM_DATA=folder python -m tools.fit_verifier [gsm8k math500] [--swap]

Reads `llada8b_outputs.jsonl` in that folder: two outputs to every question. The half of a question is
decided by its hash (`verifier/weights.py`), and the other half is not looked at before the last line.
The loss is pairwise (of a right and a wrong output to one question, the right one should score higher)
with a small pointwise term, an L2 penalty, and weights that cannot be negative. A pair counts under
each grading that calls one output right and the other wrong.

The penalty and the groups of features (`checker_candidates.py`) are chosen inside the fit half: of all
settings whose cross-validated pair accuracy lies within one standard error of the best, the one with
the fewest features and the strongest penalty. `--swap` exchanges the halves: a second, independent
estimate of what the procedure is worth.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3dlm.answers.grading import grade
from s3dlm.evaluation.statistics import auc, pair_accuracy, resamples
from s3dlm.inputs import read_json_lines
from s3dlm.verifier import for_task
from s3dlm.verifier.checker import FEATURES
from s3dlm.verifier.parsed import ParsedText
from s3dlm.verifier.weights import CHECKER, in_fit_half
from tools.checker_candidates import GROUPS

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

USED = {
    *CHECKER["math500"].features,
    *CHECKER["arithmetic"].features,
}  # not those of free text: benchmarks/free_text.py
FITTED = {name: f for group in FEATURES.values() for name, f in group.items() if name in USED}
CANDIDATES = [feature for group in GROUPS.values() for feature in group]
NAMES = [*FITTED, *(feature.__name__ for feature in CANDIDATES)]
GRADINGS = ("d1", "fixed")
PENALTIES = (0.3, 0.1, 0.03, 0.01)
POINTWISE = 0.3
FOLDS, REPEATS = 5, 2


@dataclass(frozen=True)
class Outputs:
    """The features and verdicts of all outputs of a task."""

    features: Floats  # [outputs, features]
    right: dict[str, Bools]  # by grading
    question: NDArray[np.int64]
    length: NDArray[np.int64]
    fit: Bools  # whether the output's question is in the fit half
    paper: Floats  # the paper's score, for comparison


@dataclass(frozen=True)
class Setting:
    """What is chosen inside the fit half."""

    groups: tuple[str, ...]
    penalty: float

    @property
    def columns(self) -> list[int]:
        """The columns of the features it uses."""
        extra = {feature.__name__ for group in self.groups for feature in GROUPS[group]}
        return [at for at, name in enumerate(NAMES) if at < len(FITTED) or name in extra]


# Simplest first: fewer features, then a stronger penalty.
SETTINGS = [
    Setting(groups, penalty)
    for count in range(len(GROUPS) + 1)
    for groups in combinations(GROUPS, count)
    for penalty in PENALTIES
]


def read(task: str) -> Outputs:
    """Features and verdicts, one row for each output."""
    file = Path(os.environ["S3DLM_DATA"]) / "llada8b_outputs.jsonl"
    rows = [row for _, row in read_json_lines(file) if row["task"] == task]
    numbers: dict[str, int] = {}
    paper = for_task(task)
    return Outputs(
        features=np.array([_features(row["question"], row["output"]) for row in rows]),
        right={
            grading: np.array(
                [grade(task, r["output"], r["gold"], grading, r["question"]) == 1.0 for r in rows]
            )
            for grading in GRADINGS
        },
        question=np.array([numbers.setdefault(row["question"], len(numbers)) for row in rows]),
        length=np.array([row["gen_length"] for row in rows]),
        fit=np.array([in_fit_half(row["question"]) for row in rows]),
        paper=np.array([paper.score(row["question"], row["output"]).total for row in rows]),
    )


def _features(question: str, output: str) -> list[float]:
    parsed = ParsedText(question, output)
    fitted = [feature(parsed, parsed.derivation) for feature in FITTED.values()]
    return [*fitted, *(feature(parsed) for feature in CANDIDATES)]


def pairs(outputs: Outputs, right: Bools, chosen: Bools) -> list[tuple[int, int]]:
    """The right and the wrong output of every question that has both among the chosen."""
    rows = np.flatnonzero(chosen)
    by_question: dict[int, list[int]] = {}
    for row in rows:
        by_question.setdefault(int(outputs.question[row]), []).append(int(row))
    return [
        (a, b)
        for group in by_question.values()
        for a in group
        for b in group
        if right[a] > right[b]
    ]


def train(outputs: Outputs, chosen: Bools, setting: Setting, steps: int = 400) -> Floats:
    """The weights from the chosen outputs alone, as they ship: shares in hundredths."""
    points = outputs.features[:, setting.columns]
    both = [pair for right in outputs.right.values() for pair in pairs(outputs, right, chosen)]
    differences = np.array([points[a] - points[b] for a, b in both])
    right = np.mean([verdicts[chosen] for verdicts in outputs.right.values()], axis=0)
    weights = fit(differences, points[chosen], right, setting.penalty, steps)
    return np.round(weights / weights.sum(), 2)


def fit(differences: Floats, points: Floats, right: Floats, penalty: float, steps: int) -> Floats:
    """Minimise the loss by accelerated gradient steps, projected on weights of 0 or more."""
    count = points.shape[1]
    mean = points.mean(axis=0)
    weights, ahead, bias = np.full(count, 0.3), np.full(count, 0.3), 0.0
    rate = 1.0 / (0.25 * count * 1.5)
    for step in range(1, steps + 1):
        missed = 1 / (1 + np.exp(differences @ ahead))
        error = 1 / (1 + np.exp(-((points - mean) @ ahead + bias))) - right
        gradient = -(differences * missed[:, None]).mean(axis=0) + 2 * penalty * ahead
        gradient += POINTWISE * ((points - mean) * error[:, None]).mean(axis=0)
        bias -= error.mean()
        stepped = np.maximum(ahead - rate * gradient, 0.0)
        ahead = stepped + (step - 1) / (step + 2) * (stepped - weights)
        weights = stepped
    return weights


def cross_validated(outputs: Outputs, chosen: Bools, setting: Setting) -> float:
    """Pair accuracy among the chosen, each pair ordered by weights that never saw its question."""
    values = []
    for repeat in range(REPEATS):
        rng = np.random.default_rng(repeat)
        fold = (rng.permutation(int(outputs.question.max()) + 1) % FOLDS)[outputs.question]
        scores = np.zeros(len(outputs.question))
        for number in range(FOLDS):
            held_out = chosen & (fold == number)
            weights = train(outputs, chosen & ~held_out, setting)
            scores[held_out] = outputs.features[held_out][:, setting.columns] @ weights
        values += [accuracy(outputs, scores, right, chosen) for right in outputs.right.values()]
    return float(np.mean(values))


def accuracy(outputs: Outputs, scores: Floats, right: Bools, chosen: Bools) -> float:
    """The share of pairs in which the right output scores higher; a tie counts half."""
    scores = np.round(scores, 9)  # equal features are a tie, whatever the order of summation
    both = pairs(outputs, right, chosen)
    return float(
        np.mean([(scores[a] > scores[b]) + 0.5 * (scores[a] == scores[b]) for a, b in both])
    )


def choose(outputs: Outputs, chosen: Bools) -> tuple[Setting, float, float]:
    """The simplest setting within one standard error of the best; its figure, and the best one."""
    values = [cross_validated(outputs, chosen, setting) for setting in SETTINGS]
    best = max(values)
    count = len(pairs(outputs, outputs.right["fixed"], chosen))
    bound = best - np.sqrt(best * (1 - best) / count)
    at = next(at for at, value in enumerate(values) if value >= bound)
    return SETTINGS[at], values[at], best


def report(outputs: Outputs, scores: Floats, chosen: Bools, label: str) -> None:
    """Pair accuracy and AUC on the chosen outputs, with 95 % intervals over questions."""
    counts = resamples(int(outputs.question.max()) + 1, draws=2000, seed=0)
    question = list(outputs.question[chosen])
    for grading, right in outputs.right.items():
        shown = list(np.round(scores[chosen], 9))
        paired, count = pair_accuracy(shown, list(right[chosen]), question, counts)
        ranked = auc(shown, list(right[chosen]), question, counts)
        lengths = [accuracy_where(outputs, scores, right, chosen, length) for length in (128, 256)]
        print(
            f"  {label:<6} {grading:<6} pair accuracy {paired.value:.3f} "
            f"({paired.low:.3f}–{paired.high:.3f}, {count} pairs), balanced over lengths "
            f"{np.mean(lengths):.3f}, AUC {ranked.value:.3f} ({ranked.low:.3f}–{ranked.high:.3f})"
        )


def accuracy_where(
    outputs: Outputs, scores: Floats, right: Bools, chosen: Bools, length: int
) -> float:
    """Pair accuracy among pairs whose right output has this length."""
    scores = np.round(scores, 9)
    both = [(a, b) for a, b in pairs(outputs, right, chosen) if outputs.length[a] == length]
    return float(
        np.mean([(scores[a] > scores[b]) + 0.5 * (scores[a] == scores[b]) for a, b in both])
    )


def main() -> None:
    """Choose and fit on one half, report on the other, print the row for `verifier/weights.py`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", default=["gsm8k", "math500"])
    parser.add_argument("--swap", action="store_true", help="exchange the halves")
    given = parser.parse_args()
    for task in given.tasks:
        outputs = read(task)
        fitted = ~outputs.fit if given.swap else outputs.fit
        setting, value, best = choose(outputs, fitted)
        print(f"{task}: {fitted.sum()} outputs to fit on, {(~fitted).sum()} to report on")
        print(
            f"  chosen: groups {list(setting.groups)}, penalty {setting.penalty}; cross-validated"
        )
        print(f"  inside the fit half {value:.3f}, the best setting there {best:.3f}")
        weights = train(outputs, fitted, setting, steps=1500)
        report(outputs, outputs.paper, ~fitted, "paper")
        report(outputs, outputs.features[:, setting.columns] @ weights, ~fitted, "checker")
        used = (NAMES[at] for at in setting.columns)
        print(
            f"  weights: {json.dumps({n: float(w) for n, w in zip(used, weights, strict=True) if w})}"
        )


if __name__ == "__main__":
    main()
