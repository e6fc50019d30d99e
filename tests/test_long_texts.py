"""Texts of any length are bounded before they are read."""

from __future__ import annotations

import ast
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm.answers import extract, normalise
from s3dlm.answers.delimiters import MAX_TEXT
from s3dlm.answers.grading import GRADINGS, grade
from s3dlm.search.score import Verify, verify
from s3dlm.verifier import Verifier, for_task
from s3dlm.verifier.base import Score, adapt, score_texts

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
        for name in ("paper", "checker"):
            rows = [(text, text, None)]
            calls += [partial(score_texts, for_task(task, name), rows) for task in TASKS]
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
    scores = score_texts(for_task("gsm8k"), [("", early, None), ("", "x" * MAX_TEXT, None)])
    assert scores[0].parts == scores[1].parts


def test_every_verifier_gets_the_end_of_a_long_prompt_and_text() -> None:
    seen: list[int] = []

    def judge(prompt: str, text: str, confidence: float | None) -> float:
        seen.extend((len(prompt), len(text)))
        return 0.5

    class Batched(Verifier):
        def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
            return Score(judge(prompt, text, confidence), {}, [(0, 2)])

    for verifier in (adapt(judge), Batched()):
        (scores,) = verify([Verify(verifier, "q" * 10**6, [("t" * 10**6, 0.5), ("t", 0.5)], "")])
        assert isinstance(scores, list)
        if isinstance(verifier, Batched):  # spans are those of the whole text
            assert [score.spans[0] for score in scores] == [(10**6 - MAX_TEXT, 10**6 - MAX_TEXT + 2), (0, 2)]  # fmt: skip
    assert len(seen) == 8
    assert max(seen) == MAX_TEXT


def test_verifiers_are_called_in_one_place() -> None:
    """Outside of verifier/ nobody calls `score` or `score_batch` of a verifier but `score_texts`."""
    root = Path(s3dlm.__file__).parent
    for path in sorted(root.rglob("*.py")):
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        found = {
            ast.unparse(f) for f in calls if getattr(f, "attr", "") in ("score", "score_batch")
        }
        if path.parent.name not in ("verifier", "judges"):
            found -= {"self.inner.score_batch", "self.score_batch"}  # within a verifier
            assert all(name.endswith("scorer.score") for name in found), (path, found)
