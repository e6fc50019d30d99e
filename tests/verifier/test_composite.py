"""The weighted sum of parts: the paper's weights, weights of one's own, and what is refused."""

from operator import mul

import pytest

from s3dlm.errors import VerifierError
from s3dlm.verifier import PARTS, VERIFIERS, as_verifier, compose, for_task
from s3dlm.verifier.names import _named
from s3dlm.verifier.weights import PAPER

MATH = (0.25, 0.20, 0.25, 0.10, 0.20, 0.00)
GSM8K = (0.20, 0.25, 0.25, 0.10, 0.20, 0.00)
CHOICE = (0.20, 0.00, 0.00, 0.15, 0.20, 0.45)
SUDOKU = (0.05, 0.00, 0.00, 0.05, 0.10, 0.80)
WEIGHTS = {
    "gsm8k": GSM8K, "arithmetic": GSM8K, "chain": GSM8K, "math500": MATH, "aime": MATH, "arc": CHOICE,
    "choice": CHOICE, "truthfulqa": CHOICE, "truthfulqa_mc": CHOICE, "sudoku": SUDOKU, "sudoku9": SUDOKU,
    "sudoku9_open": SUDOKU, "countdown": (0.15, 0.10, 0.10, 0.10, 0.15, 0.40),
    "general": (0.00, 0.00, 0.00, 0.50, 0.50, 0.00),
}  # fmt: skip


@pytest.mark.parametrize("task", PAPER)
def test_the_weights_are_the_papers_and_all_six_parts_are_reported(task):
    verifier = for_task(task)
    assert verifier.weights == dict(zip(PARTS, WEIGHTS[task], strict=True))
    score = verifier.score("Numbers: [1, 2]\nTarget: 3", r"First 1 + 2 = 3. \boxed{1 + 2}", 0.8)
    assert tuple(score.parts) == PARTS
    assert score.total == pytest.approx(sum(map(mul, WEIGHTS[task], score.parts.values())))


@pytest.mark.parametrize("text", ["18 eggs", "", "so 1 + 1 = 3"])
def test_end_tokens_do_not_change_a_score(text):
    verifier = for_task("gsm8k")
    run = "<|eot_id|><|endoftext|>\n<|endoftext|>"
    assert verifier.score("q", text + run) == verifier.score("q", text)


def test_a_composite_of_parts_of_ones_own():
    verifier = compose(
        {"non_degeneracy": 0.5, "short": 0.25, "paper": 0.25},
        judges={"short": lambda p, t, c: 1 - len(t) / 100, "paper": for_task("gsm8k")},
    )
    text = "one two three four five six seven eight"
    score = verifier.score("q", text)
    paper = for_task("gsm8k").score("q", text).total
    assert score.parts["short"] == pytest.approx(1 - len(text) / 100)
    assert score.total == pytest.approx(0.5 + 0.25 * (1 - len(text) / 100) + 0.25 * paper)


def test_an_entry_point_is_a_function_or_a_class_that_needs_no_arguments(monkeypatch):
    needs_a_path = type("NeedsAPath", (), {"__init__": lambda self, path: None})
    known = {"good": lambda prompt, text, confidence: 0.25, "bad": needs_a_path}
    monkeypatch.setattr(VERIFIERS, "_known", known)
    _named.cache_clear()
    assert as_verifier("good").score("q", "text").total == 0.25
    with pytest.raises(
        VerifierError, match=r"'bad' .* cannot be built: TypeError: .* no arguments"
    ):
        as_verifier("bad")
    _named.cache_clear()
