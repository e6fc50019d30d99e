"""Texts of any length are bounded before they are read."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from s3dlm.answers import extract, normalise
from s3dlm.answers.delimiters import MAX_TEXT
from s3dlm.answers.grading import GRADINGS, grade
from s3dlm.verifier import for_task

ATOMS = (
    "a", "9", "(", "\\boxed{", "\\frac{", "<answer>", "</answer>", "1+", "1=1 ", "= ", "\n", "\\boxed{1}",
    "A. ", "$", "\\text{", "{", "}", "-", "0 ", "def f():\n", "```", "[[", "\\sqrt", "1/", "x^", " ",
    "<|endoftext|>",
)  # fmt: skip
GOLDS: dict[str, Any] = {
    "number": "3", "math": "3", "choice": "A", "expression": [[6, 4, 12], 22],
    "grid": "1234341221434321", "text": "x",
}  # fmt: skip
TASKS = ("gsm8k", "math500", "arc", "countdown", "sudoku", "general")


@pytest.mark.parametrize("length", [3000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("atom", ATOMS, ids=range(len(ATOMS)))
def test_a_long_text_of_anything_is_read(atom: str, length: int) -> None:
    repeated = atom * (length // len(atom))
    for text in (repeated, "\\boxed{" + repeated + "}"):
        calls: list[Any] = [partial(extract, "code", text), partial(normalise, "code", text)]
        for kind, gold in GOLDS.items():
            calls += [partial(extract, kind, text, text), partial(normalise, kind, text)]
            calls += [partial(grade, kind, text, gold, way, "?") for way in GRADINGS]
        for name in ("paper", "plus"):
            calls += [partial(for_task(task, name).score, text, text) for task in TASKS]
        for call in calls:
            before = time.process_time()
            call()
            assert length < MAX_TEXT or time.process_time() - before < 5  # far above the usual


def test_only_the_end_of_a_long_text_counts() -> None:
    early = "\\boxed{3} " + "x" * MAX_TEXT
    assert extract("number", early) is None
    assert extract("number", "x" * MAX_TEXT + " \\boxed{3}") == "3"
    for way in ("fixed", "d1"):
        assert grade("number", early, "3", way) == 0.0
    verifier = for_task("gsm8k")
    assert verifier.score("", early).parts == verifier.score("", "x" * MAX_TEXT).parts
