"""Weights: which view of a text counts how much for which task, and what they were fitted on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from s3dlm.verifier.base import PARTS


class TaskWeights(NamedTuple):
    """One task: weights in the order of `PARTS`, the form of S1, and the task's constraint."""

    weights: tuple[float, ...]
    form: str = "math"
    constraint: str = "none"

    @property
    def by_part(self) -> dict[str, float]:
        return dict(zip(PARTS, self.weights, strict=True))


_GSM8K = TaskWeights((0.20, 0.25, 0.25, 0.10, 0.20, 0.00))
_MATH500 = TaskWeights((0.25, 0.20, 0.25, 0.10, 0.20, 0.00))
_CHOICE = TaskWeights((0.20, 0.00, 0.00, 0.15, 0.20, 0.45), form="choice", constraint="choice")

_SUDOKU = TaskWeights((0.05, 0.00, 0.00, 0.05, 0.10, 0.80), constraint="sudoku")

PAPER: dict[str, TaskWeights] = {
    "gsm8k": _GSM8K,
    "math500": _MATH500,
    "aime": _MATH500,
    "arc": _CHOICE,
    "truthfulqa": _CHOICE,
    "truthfulqa_mc": _CHOICE,
    "countdown": TaskWeights((0.15, 0.10, 0.10, 0.10, 0.15, 0.40), constraint="countdown"),
    "sudoku": _SUDOKU,
    "sudoku9": _SUDOKU,
    "sudoku9_open": _SUDOKU,
    # Ours: the tiny model's own tasks, and prompts that belong to no task.
    "arithmetic": _GSM8K,
    "chain": _GSM8K,
    "choice": _CHOICE,
    "general": TaskWeights((0.00, 0.00, 0.00, 0.50, 0.50, 0.00)),
}

# Weights of the features in `checker.py`; only their ratios matter. For MATH-500 fitted by
# `tools/fit_verifier.py` on one half of the questions, for the bundled model's own problems on all GSM8K
# outputs in d1's format; for GSM8K, whose texts may have any format, by `benchmarks/free_text.py` on the
# same half of the questions, with outputs of five models and prompts.
_FITTED: dict[str, tuple[float, float, float]] = {
    "answer_boxed": (0.00, 0.07, 0.13),
    "one_answer": (0.00, 0.02, 0.08),
    "braces_closed": (0.00, 0.04, 0.04),
    "answer_given": (0.05, 0.00, 0.00),
    "answers_agree": (0.03, 0.00, 0.00),
    "ended": (0.04, 0.00, 0.00),
    "keywords": (0.07, 0.00, 0.07),
    "equations_true": (0.10, 0.08, 0.04),
    "no_wrong_equation": (0.10, 0.04, 0.11),
    "enough_steps": (0.12, 0.13, 0.06),
    "answer_is_last_result": (0.16, 0.14, 0.08),
    "answer_computed": (0.00, 0.06, 0.01),
    "answer_just_named": (0.00, 0.14, 0.08),
    "answer_named": (0.00, 0.18, 0.05),
    "answer_traced": (0.00, 0.00, 0.07),
    "answer_traced_back": (0.10, 0.00, 0.00),
    "answer_found": (0.11, 0.00, 0.00),
    "results_used": (0.05, 0.00, 0.00),
    "fluent": (0.00, 0.03, 0.00),
    "answer_fits": (0.04, 0.01, 0.11),
    "question_numbers_used": (0.03, 0.01, 0.07),
    "answer_not_copied": (0.00, 0.04, 0.00),
}


class CheckerRow(NamedTuple):
    """How `checker` reads the texts of one task.

    Attributes:
        parts: Weights of the parts; None: those of fitted features count.
        features: Weights of fitted features.
        rules: The name of the rules in `checker.py`.
        satisfied_at: The total with which a search may stop: the lowest of the table of
            `python -m benchmarks.stopping` from which on stopping cost no accuracy (docs/performance.md).
        from_models: Whether texts are those of any model, so that some have nothing to check.
        any_format: Whether texts may have any format: few-shot, calculator marks, no delimiter.
    """

    parts: TaskWeights | None = None
    features: Mapping[str, float] = {}
    rules: str = "none"
    satisfied_at: float | None = None
    from_models: bool = False
    any_format: bool = False


_FREE_TEXTS, _LATEX, _STEPS = (
    {feature: row[column] for feature, row in _FITTED.items() if row[column]} for column in range(3)
)
# What the reasoning says must be true, and must speak of the option that is chosen.
_REASONED = TaskWeights((0.10, 0.20, 0.00, 0.10, 0.20, 0.40), form="choice")
# What can be checked exactly counts for nearly all; a model that fills a grid in place writes nothing else.
_GAME = TaskWeights((0.05, 0.05, 0.00, 0.10, 0.05, 0.75))
_GRID_IN_TEXT = TaskWeights((0.00, 0.00, 0.00, 0.05, 0.05, 0.90))
_ONLY_RULES = TaskWeights((0.00, 0.00, 0.00, 0.00, 0.00, 1.00))

CHECKER: dict[str, CheckerRow] = {
    "gsm8k": CheckerRow(features=_FREE_TEXTS, from_models=True, any_format=True),
    "math500": CheckerRow(features=_LATEX, from_models=True),
    "aime": CheckerRow(features=_LATEX, from_models=True),
    "arithmetic": CheckerRow(features=_STEPS, rules="steps", satisfied_at=0.975),
    "chain": CheckerRow(features=_STEPS, rules="steps", satisfied_at=0.925),
    "countdown": CheckerRow(_GAME, rules="countdown", satisfied_at=0.9),
    "sudoku": CheckerRow(_GRID_IN_TEXT, rules="sudoku", satisfied_at=0.925),
    "sudoku9": CheckerRow(_ONLY_RULES, rules="sudoku", satisfied_at=0.999),
    "sudoku9_open": CheckerRow(_ONLY_RULES, rules="sudoku", satisfied_at=0.999),
    "arc": CheckerRow(_REASONED, rules="choice"),
    "truthfulqa": CheckerRow(_REASONED, rules="choice"),
    "truthfulqa_mc": CheckerRow(_REASONED, rules="choice"),
    "choice": CheckerRow(_REASONED, rules="choice", satisfied_at=0.975),
    "general": CheckerRow(PAPER["general"]),
}

# Tasks on whose questions the `checker` weights were fitted: on the half that a hash chooses.
FITTED = ("gsm8k", "math500")


def in_fit_half(question: str) -> bool:
    """Whether the hash of a question puts it into the half that weights are fitted on."""
    plain = " ".join(question.split())
    return hashlib.sha256(plain.encode("utf-8", "replace")).digest()[0] % 2 == 0


def was_in_fit(task: str, verifier: str, question: str) -> bool:
    """Whether the weights of a verifier may have been fitted on this question of a task.

    Figures on such questions flatter the verifier; evaluation says so.
    """
    return verifier.startswith("checker") and task in FITTED and in_fit_half(question)
