"""What `checker`, votes and agreement are worth on several samples per question of real models.

    S3DLM_DATA=folder python -m benchmarks.free_text [--calibrate]

Reads `dlm_samples_gsm8k.jsonl` (Dream-7B and LLaDA-8B on GSM8K: model, question, sample, output, gold)
and the GSM8K outputs of `llada8b_outputs.jsonl`, which are no part of this project. The weights of `checker`
for free text are fitted here, on the questions that `in_fit_half` names, and printed as they ship.
"held out": by these weights, on the other questions. "cross-fitted": all questions, each by weights
from the four fifths of the questions that it is not in. "left out": each model's outputs by weights
from the others', on questions those were not fitted on. `--calibrate` writes the bundled coefficients of
p_correct.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from s3dlm.answers import extract, normalise
from s3dlm.answers.grading import grade
from s3dlm.evaluation import calibrate
from s3dlm.inputs import read_json_lines
from s3dlm.search.samples import ahead
from s3dlm.search.select import SELECTIONS, Survivor
from s3dlm.verifier import for_task
from s3dlm.verifier.calibration import CALIBRATED_FOLDER, GradedAnswer
from s3dlm.verifier.checker import FEATURES
from s3dlm.verifier.parsed import FreeText
from s3dlm.verifier.weights import CHECKER, in_fit_half

Floats = NDArray[np.float64]
NAMES = [name for part in FEATURES.values() for name in part if name in CHECKER["gsm8k"].features]
RIDGE, POINTWISE, FOLDS = 0.1, 1.0, 5
D1 = "LLaDA-8B-Instruct, d1's prompt, 2 lengths"
RULES = ("majority", "verified", "agreement")
METHODS = {"best_of_k": "majority", "tilting": "weighted", "verified_best_of_k": "verified"}
KINDS = {"dream-3584": "Dream", "llada-4096": "LLaDA"}  # family and width of the weights


@dataclass(frozen=True)
class Group:
    """The outputs of one model to one question."""

    model: str
    question: str
    answers: list[str | None]
    right: NDArray[np.bool_]
    features: Floats  # [outputs, features]
    shipped: Floats  # the score of `checker` as it is in the package
    paper: Floats

    @property
    def mixed(self) -> bool:
        return bool(0 < self.right.sum() < self.right.size)

    def chosen(self, rule: str, scores: Floats, lam: float = 1.0) -> int | None:
        """Which output a selection takes; the first of equal ones, None without an answer."""
        survivors = [
            Survivor("", answer, 0, score, {}, lam * score, float(at), 0.5)
            for at, (answer, score) in enumerate(zip(self.answers, scores.tolist(), strict=True))
        ]
        survivor = SELECTIONS[rule].choose(survivors)
        return None if survivor.answer is None else int(survivor.nll)


def read() -> list[Group]:
    """All groups; equal outputs are read once."""
    folder = Path(os.environ["S3DLM_DATA"])
    rows = [row for _, row in read_json_lines(folder / "dlm_samples_gsm8k.jsonl")]
    d1 = [row for _, row in read_json_lines(folder / "llada8b_outputs.jsonl")]
    rows += [{**row, "model": D1} for row in d1 if row["task"] == "gsm8k"]
    grouped: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if row["gold"] is not None:
            grouped.setdefault((row["model"], row["question"]), []).append(row)
    features = {n: f for part in FEATURES.values() for n, f in part.items() if n in NAMES}
    checker, paper = for_task("gsm8k", "checker"), for_task("gsm8k")
    groups = []
    for (model, question), outputs in grouped.items():
        known: dict[str, tuple[str | None, bool, list[float], float, float]] = {}
        for row in outputs:
            text = row["output"]
            if text not in known:
                free, answer = FreeText(question, text), extract("gsm8k", text, question)
                known[text] = (
                    None if answer is None else normalise("gsm8k", answer),
                    grade("gsm8k", text, row["gold"], "fixed", question) == 1.0,
                    [float(features[name](free, free.derivation)) for name in NAMES],
                    checker.score(question, text).total,
                    paper.score(question, text).total,
                )
        made = [known[row["output"]] for row in outputs]
        answers, right, values, shipped, old = zip(*made, strict=True)
        groups.append(
            Group(model, question, list(answers), np.array(right), np.array(values),
                  np.array(shipped), np.array(old))
        )  # fmt: skip
    return groups


def fold(question: str, folds: int = FOLDS) -> int:
    """A part of the questions, by another byte of the hash than `in_fit_half` uses."""
    return hashlib.sha256(" ".join(question.split()).encode()).digest()[1] % folds


def fit(groups: Sequence[Group]) -> Floats:
    """Weights of 0 or more: of a right and a wrong output to one question the right one should score
    higher; a smaller term asks the same of all outputs of a model. Every question counts the same in the
    first, every model in the second."""
    pairs, shares = [], []
    for group in (each for each in groups if each.mixed):
        good, bad = group.features[group.right], group.features[~group.right]
        for one in good:
            pairs += list(one - bad)
            shares += [1 / (len(good) * len(bad))] * len(bad)
    differences, weight = np.array(pairs), np.array(shares) / sum(shares)
    models = sorted({group.model for group in groups})
    counts = Counter(group.model for group in groups)
    points = np.concatenate([group.features for group in groups])
    points = points - points.mean(axis=0)
    truth = np.concatenate([group.right for group in groups]).astype(np.float64)
    model = np.concatenate([[models.index(g.model)] * g.right.size for g in groups]).astype(int)
    each = np.concatenate(
        [[1 / g.right.size / math.sqrt(counts[g.model])] * g.right.size for g in groups]
    )
    each /= each.sum()

    def loss(values: Floats) -> tuple[float, Floats]:
        slopes, levels = values[: len(NAMES)], values[len(NAMES) :]
        margin, logit = differences @ slopes, points @ slopes + levels[model]
        missed, residual = -weight / (1 + np.exp(margin)), each * (1 / (1 + np.exp(-logit)) - truth)
        value = weight @ np.logaddexp(0, -margin) + RIDGE * slopes @ slopes
        value += POINTWISE * each @ (np.logaddexp(0, logit) - truth * logit)
        slope = differences.T @ missed + POINTWISE * points.T @ residual + 2 * RIDGE * slopes
        level = POINTWISE * np.bincount(model, residual, len(models))
        return float(value), np.concatenate([slope, level])

    start = np.concatenate([np.full(len(NAMES), 0.3), np.zeros(len(models))])
    bounds = [(0, None)] * len(NAMES) + [(None, None)] * len(models)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x[: len(NAMES)]
    rounded: Floats = np.round(found / found.sum(), 2)
    return rounded


def crossed(groups: Sequence[Group], leave_model: bool) -> list[Floats]:
    """The scores of every group by weights that never saw its question, or its model."""
    used = [g for g in groups if g.model != D1 or in_fit_half(g.question)]
    fits: dict[tuple[int, str], Floats] = {}
    scores = []
    for group in groups:
        key = fold(group.question), group.model if leave_model else ""
        if key not in fits:
            fits[key] = fit([g for g in used if fold(g.question) != key[0] and g.model != key[1]])
        scores.append(group.features @ fits[key])
    return scores


def pair_accuracy(groups: Iterable[tuple[Group, Floats]]) -> float:
    """The mean over questions: of a right and a wrong output, how often the right one scores higher."""
    values = []
    for group, scores in groups:
        gaps = np.round(np.subtract.outer(scores[group.right], scores[~group.right]), 9)
        values.append(float((gaps > 0).mean() + 0.5 * (gaps == 0).mean()))
    return float(np.mean(values)) if values else math.nan


def print_pairs(groups: Sequence[Group]) -> None:
    print("\nPair accuracy within questions\n")
    print(
        "| outputs | questions with right and wrong | paper, all | checker, held out | cross-fitted | left out |"
    )
    print("|---|---|---|---|---|---|")
    folds, models = crossed(groups, leave_model=False), crossed(groups, leave_model=True)
    for name in dict.fromkeys(group.model for group in groups):
        rows = [(at, g) for at, g in enumerate(groups) if g.model == name and g.mixed]
        seen = [(at, g) for at, g in rows if name != D1 or in_fit_half(g.question)]
        held = [g for _, g in rows if not in_fit_half(g.question)]
        cells = [
            f"{pair_accuracy((g, g.paper) for _, g in rows):.3f}",
            f"{pair_accuracy((g, g.shipped) for g in held):.3f} ({len(held)})",
            f"{pair_accuracy((g, folds[at]) for at, g in seen):.3f}",
            f"{pair_accuracy((g, models[at]) for at, g in seen):.3f}",
        ]
        print(f"| {name} | {len(rows)} | " + " | ".join(cells) + " |")


def recovered(groups: Sequence[Group], scores: Sequence[Floats], title: str) -> None:
    """What each rule makes of the headroom between one sample and the best of all."""
    print(f"\n{title}\n")
    print("| outputs | questions | single | vote | best by checker | agreement | oracle |")
    print("|---|---|---|---|---|---|---|")
    names = [name for name in dict.fromkeys(g.model for g in groups) if name != D1]
    outcomes: dict[str, Floats] = {}
    for name in names:
        rows = [(g, s) for g, s in zip(groups, scores, strict=True) if g.model == name]
        columns = [[g.right.mean() for g, _ in rows]]
        for rule in RULES:
            chosen = [(g, g.chosen(rule, s)) for g, s in rows]
            columns.append([at is not None and g.right[at] for g, at in chosen])
        columns.append([g.right.any() for g, _ in rows])
        outcomes[name] = np.array(columns, dtype=np.float64)
        print(f"| {name} | {len(rows)} | " + " | ".join(f"{100 * v:.1f}" for v in outcomes[name].mean(axis=1)) + " |")  # fmt: skip
    rng = np.random.default_rng(0)

    def shares(draw: Callable[[int], NDArray[np.int64]]) -> Floats:
        means = [table[:, draw(table.shape[1])].mean(axis=1) for table in outcomes.values()]
        rows = [(m[1:-1] - m[0]) / (m[-1] - m[0]) for m in means if m[-1] > m[0]]
        return 100 * np.mean(rows, axis=0)  # type: ignore[no-any-return]

    low, high = np.quantile(
        [shares(lambda n: rng.integers(0, n, n)) for _ in range(1000)], [0.025, 0.975], axis=0
    )
    cells = [f"{m:.0f} [{a:.0f}, {b:.0f}]" for m, a, b in zip(shares(np.arange), low, high, strict=True)]  # fmt: skip
    print("| headroom recovered, mean of rows, % | | | " + " | ".join(cells) + " | |")


def print_stops(groups: Sequence[Group]) -> None:
    """Votes that end when they are decided, over random orders of the samples."""
    print("\nadaptive_vote: accuracy of the vote in % @ samples\n")
    limits = (0.8, 0.9, 0.95, 0.99)
    print("| outputs | all | " + " | ".join(f"{limit:g}" for limit in limits) + " |")
    print("|---|---|" + "---|" * len(limits))
    rng = np.random.default_rng(0)
    for name in [name for name in dict.fromkeys(g.model for g in groups) if name != D1]:
        rows, cells = [group for group in groups if group.model == name], []
        for limit in (1.0, *limits):
            found = [
                ended(g, rng.permutation(g.right.size), limit) for g in rows for _ in range(20)
            ]
            right, samples = np.mean(found, axis=0)
            cells.append(f"{100 * right:.1f} @ {samples:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def ended(group: Group, order: NDArray[np.int64], limit: float) -> tuple[float, int]:
    """Whether the vote is right where it ends, and after how many samples."""
    votes: Counter[str] = Counter()
    right: dict[str, bool] = {}
    made = 0
    for at in order.tolist():
        made, answer = made + 1, group.answers[at]
        if answer is not None:
            votes[answer] += 1
            right[answer] = bool(group.right[at])
        (_, first), (_, second) = (*votes.most_common(2), ("", 0), ("", 0))[:2]
        if ahead(first, second) >= limit:
            break
    return (float(right[votes.most_common(1)[0][0]]) if votes else 0.0), made


def graded(groups: Iterable[Group], rule: str) -> list[GradedAnswer]:
    """The chosen answer of every group, with its score and the share of samples that agree."""
    found = []
    for group in groups:
        at = group.chosen(rule, group.shipped)
        answer = None if at is None else group.answers[at]
        found.append(
            GradedAnswer(
                score=0.0 if at is None else float(group.shipped[at]),
                agreement=group.answers.count(answer) / len(group.answers),
                confidence=None,
                right=at is not None and bool(group.right[at]),
                question=group.question,
                answered=at is not None,
            )
        )
    return found


def singles(groups: Iterable[Group]) -> list[GradedAnswer]:
    """Every output as an answer of its own."""
    return [
        GradedAnswer(float(g.shipped[at]), 1.0, None, bool(g.right[at]), g.question, answer is not None)
        for g in groups
        for at, answer in enumerate(g.answers)
    ]  # fmt: skip


def probabilities(groups: Sequence[Group], write: bool) -> None:
    """p_correct by kind of model: Brier score and reliability, cross-fitted over questions."""
    made: list[calibrate.Calibrated] = []
    for kind, start in KINDS.items():
        ours = [g for g in groups if g.model.startswith(start) and g.model != D1]
        answers = {("gsm8k", m, "checker"): graded(ours, r) for m, r in METHODS.items()}
        answers["gsm8k", "baseline", "checker"] = singles(ours)
        fits, skipped = calibrate.fit_groups(answers)
        assert not skipped, skipped
        made += fits
        print(f"\n{start}, p_correct on GSM8K, cross-fitted over questions\n")
        print(calibrate.tables(fits)[0].to_markdown())
        if write:
            source = calibrate.GradedAnswers(kind, None, answers)
            calibrate.write_fits(source, fits, CALIBRATED_FOLDER / f"{kind}.json")
    print("\nReliability of the votes of both\n")
    print(calibrate.tables([m for m in made if m.fit.method != "baseline"])[1].to_markdown())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calibrate", action="store_true", help="write the coefficients")
    write = parser.parse_args().calibrate
    groups = read()
    weights = fit([group for group in groups if in_fit_half(group.question)])
    fitted = dict(zip(NAMES, weights.tolist(), strict=True))
    print("weights:", {name: value for name, value in fitted.items() if value})
    changed = {
        n: (fitted[n], w) for n, w in CHECKER["gsm8k"].features.items() if abs(fitted[n] - w) > 1e-9
    }
    if changed:
        print('verifier/weights.py has other weights, so "held out" is not theirs:', changed)
    print_pairs(groups)
    held = [group for group in groups if not in_fit_half(group.question)]
    recovered(held, [group.shipped for group in held], "Held-out questions, accuracy in %")
    scores = crossed(groups, leave_model=False)
    recovered(groups, scores, "All questions, cross-fitted")
    recovered(groups, crossed(groups, leave_model=True), "All questions, each model left out")
    print_stops(groups)
    probabilities(groups, write)


if __name__ == "__main__":
    main()
