"""A text read once can be scored at any confidence."""

from __future__ import annotations

import pytest

from s3dlm.verifier import compose, for_task

TEXT = "Step 1: 12 + 7 = 19. Therefore the answer is \\boxed{19}."


@pytest.mark.parametrize("task", ["gsm8k", "countdown", "sudoku", "arc", "general"])
@pytest.mark.parametrize("confidence", [None, 0.0, 0.37, 1.0, 2.0])
def test_rescoring_equals_scoring(task: str, confidence: float | None) -> None:
    verifier = for_task(task)
    again = verifier.rescore(verifier.score("q", TEXT, 0.9), confidence)  # type: ignore[attr-defined]
    whole = verifier.score("q", TEXT, confidence)
    assert again.total == pytest.approx(whole.total, abs=1e-12)
    assert again.parts == whole.parts


def test_a_judge_of_ones_own_is_not_skipped() -> None:
    own = compose(
        {"mine": 1.0}, judges={"mine": lambda prompt, text, confidence: confidence or 0.0}
    )
    assert not own.built_in
    assert for_task("gsm8k").built_in  # type: ignore[attr-defined]
