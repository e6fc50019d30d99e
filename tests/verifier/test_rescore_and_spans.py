"""A text read once can be scored at any confidence, and says where it is in doubt."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from s3dlm.verifier import Score, compose, for_task, wrong_equalities

TEXT = "Step 1: 12 + 7 = 20. Then 3 * 4 = 13. Therefore the answer is \\boxed{19}."


@pytest.mark.parametrize("name", ["paper", "checker"])
@pytest.mark.parametrize("task", ["gsm8k", "math500", "countdown", "sudoku", "arc", "general"])
@pytest.mark.parametrize("confidence", [None, 0.0, 0.37, 1.0, 2.0])
def test_rescoring_equals_scoring(name: str, task: str, confidence: float | None) -> None:
    verifier = for_task(task, name)
    assert verifier.rescores
    again = verifier.rescore(verifier.score("q", TEXT, 0.9), confidence)
    whole = verifier.score("q", TEXT, confidence)
    assert again.total == pytest.approx(whole.total, abs=1e-12)
    assert again.parts == pytest.approx(whole.parts)
    assert again.spans == whole.spans


def test_a_judge_of_ones_own_may_read_the_confidence_so_it_is_asked_again() -> None:
    own = compose(
        {"mine": 1.0}, judges={"mine": lambda prompt, text, confidence: confidence or 0.0}
    )
    assert not own.rescores
    assert own.score("q", TEXT, 0.25).total == 0.25


@pytest.mark.parametrize("name", ["paper", "checker"])
def test_spans_are_the_equalities_that_do_not_hold(name: str) -> None:
    score = for_task("gsm8k", name).score("Of 12 and 7, 3 times 4", f"\n  {TEXT}<|eot_id|>")
    assert [f"\n  {TEXT}"[start:end] for start, end in score.spans] == ["12 + 7 = 20", "3 * 4 = 13"]
    assert for_task("gsm8k", name).score("3 and 4", "3 + 4 = 7").spans == ()
    assert not for_task("gsm8k", name).score("3 and 4", "3 + 4 = 7").spans
    assert Score(0.5).spans == ()


@pytest.mark.parametrize("name", ["paper", "checker"])
@pytest.mark.parametrize("task", ["gsm8k", "countdown", "sudoku", "arc", "general"])
def test_a_score_can_be_sent_to_another_process(name: str, task: str) -> None:
    score = for_task(task, name).score("q", TEXT, 0.9)
    again = pickle.loads(pickle.dumps(score))
    assert (again.total, again.parts, list(again.spans)) == (
        score.total, score.parts, list(score.spans),
    )  # fmt: skip


def test_spans_are_not_looked_for_until_someone_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "s3dlm.verifier.composite.wrong_equalities", lambda text: asked.append(text) or []
    )
    score = for_task("gsm8k").score("q", TEXT)
    assert asked == []
    assert (len(score.spans), list(score.spans)) == (0, [])
    assert asked == [TEXT]


FILE = Path(os.environ.get("S3DLM_DATA", "")) / "llada8b_outputs.jsonl"


@pytest.mark.skipif(not os.environ.get("S3DLM_DATA"), reason="S3DLM_DATA names no folder")
def test_spans_of_real_outputs_are_what_wrong_equalities_gives() -> None:
    with FILE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines][::20]
    for row in rows:
        score = for_task(row["task"]).score(row["question"], row["output"])
        assert list(score.spans) == wrong_equalities(row["output"])
