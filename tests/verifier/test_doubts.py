"""What `checker` doubts in a text, task by task: this is where a search re-masks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3dlm.answers.grading import grade
from s3dlm.verifier import for_task
from s3dlm.verifier.base import doubts
from s3dlm.verifier.weights import CHECKER, CHECKER_RULES

CHAIN = "Start with 8. Step 1: Divide by 2. Step 2: Add 13. Step 3: Multiply by 5."
GAME = "Numbers: 14, 3, 13. Target: 30."
BLANKS = "Solve the 4x4 sudoku 1000000000000000"


def doubted(task: str, prompt: str, text: str) -> list[str]:
    return [text[start:end] for start, end, weight in weighed(task, prompt, text) if weight > 0.5]


def weighed(task: str, prompt: str, text: str) -> list[tuple[int, int, float]]:
    return [*doubts(for_task(task, "checker").score(prompt, text).spans)]


def test_a_right_text_is_not_doubted() -> None:
    text = "Step 1: 8 / 2 = 4\nStep 2: 4 + 13 = 17\nStep 3: 17 * 5 = 85\nSo it is \\boxed{85}."
    assert doubted("chain", CHAIN, text) == []
    assert (
        doubted("countdown", GAME, "14 + 3 = 17. 17 + 13 = 30. <answer>14 + 3 + 13</answer>") == []
    )
    assert doubted("sudoku", BLANKS, "<answer>1234341221434321</answer>") == []


def test_a_wrong_result_a_number_from_nowhere_and_a_word_are() -> None:
    assert doubted("chain", CHAIN, "Step 1: 8 / 2 = 5") == ["8 / 2 = 5"]
    assert doubted("chain", CHAIN, "8 / 2 = 4\n6 + 13 = 19") == ["6"]
    assert doubted("chain", CHAIN, "8 / 2 = 4\n4 + 13 = each7\n17 * 5 = 85") == ["each7", "17"]
    assert doubted("arithmetic", CHAIN, "8 / 2 = 4. Then 4 + Zoe = 17.") == ["Zoe"]
    assert doubted("countdown", GAME, "14 Divide by 3 = 17") == ["Divide by"]
    assert doubted("gsm8k", CHAIN, "8 times 2 = 16, and 8 divided by 2 = 4") == []
    assert doubted("gsm8k", CHAIN, "8 Times 2 = 16. 8 DIVIDED BY 2 = 4") == []


def test_a_wrong_step_is_more_doubtful_than_what_follows_from_it() -> None:
    text = "8 / 2 = 5\n5 + 13 = 18\n18 * 5 = 90\n8 + 13 = 21"
    found = [(text[a:b], weight) for a, b, weight in weighed("chain", CHAIN, text)]
    assert found == [("8 / 2 = 5", 1.0), ("5 + 13 = 18", 0.3), ("18 * 5 = 90", 0.3)]
    text += "\n6 - 2 = 4"
    assert ("6", 0.6) in [(text[a:b], weight) for a, b, weight in weighed("chain", CHAIN, text)]


def test_numbers_from_nowhere_are_fine_where_not_all_work_is_shown() -> None:
    assert doubted("gsm8k", "He walks 2 hours.", "2 * 60 = 120") == []
    assert doubted("chain", "Start with 2.", "2 * 60 = 120") == ["60"]


def test_an_unknown_that_the_text_speaks_of_is_no_garbage() -> None:
    assert doubted("math500", "Solve for x1 + x2", "x1 + 2 = 5, so x1 = 3. And x2 = 1.") == []


def test_a_countdown_that_misses_is_doubted_as_a_whole() -> None:
    text = "14 + 13 = 27. 27 - 3 = 24. <answer>14 + 13 - 3</answer>"
    assert doubted("countdown", GAME, text) == [text]
    assert doubted("countdown", GAME, "14 + 13 = 28. <answer>14 + 13 + 3</answer>") == [
        "14 + 13 = 28"
    ]
    assert doubted("countdown", GAME, "") == []


def test_cells_that_stand_twice_or_change_a_clue() -> None:
    grid = "<answer>1234341221434322</answer>"  # the last cell should be 1
    spans = weighed("sudoku", BLANKS, grid)
    at = len("<answer>")
    assert [start - at for start, _, weight in spans if weight == 0.9] == [7, 14, 15]
    beside = [start - at for start, _, weight in spans if weight == 0.5]
    assert beside == [2, 3, 4, 5, 6, 10, 11, 12, 13]  # the rest of their rows, columns and boxes
    other = "The grid: <answer>2134341221434321</answer>"
    assert doubted("sudoku", BLANKS, other)[0] == "2"  # a clue


def test_a_clue_is_right_and_its_double_is_not() -> None:
    spans = weighed("sudoku", BLANKS, "<answer>1134341221434321</answer>")
    assert [start - len("<answer>") for start, _, weight in spans if weight == 0.9] == [1, 9]
    assert all(start > len("<answer>") for start, _, _ in spans)  # a clue is not doubted at all


def test_cells_with_anything_between_them() -> None:
    rows = "<answer>\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 2\n</answer>"
    spans = [rows[a:b] for a, b, weight in weighed("sudoku", BLANKS, rows) if weight == 0.9]
    assert spans == ["2", "2", "2"]


def test_a_grid_of_the_wrong_size_is_doubted_as_a_whole() -> None:
    assert doubted("sudoku", BLANKS, "<answer>123434</answer>") == ["123434"]
    assert doubted("sudoku", BLANKS, "no grid") == []


@given(
    task=st.sampled_from(sorted((*CHECKER, *CHECKER_RULES))),
    text=st.text("0123456789+-*/= .\n<>answerZoe\\boxed{}", max_size=120),
)
def test_doubts_lie_in_the_text_and_in_order(task: str, text: str) -> None:
    for prompt in (CHAIN, GAME, BLANKS, ""):
        spans = list(for_task(task, "checker").score(prompt, text).spans)
        assert all(0 <= start < end <= len(text) for start, end, *_ in spans)
        assert spans == sorted(set(spans))


FILE = Path(os.environ.get("S3DLM_DATA", "")) / "llada8b_outputs.jsonl"


@pytest.mark.skipif(not os.environ.get("S3DLM_DATA"), reason="S3DLM_DATA names no folder")
def test_real_outputs_that_are_wrong_are_doubted_more_often() -> None:
    with FILE.open(encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["task"] == "gsm8k"][::3]
    doubts: dict[bool, list[bool]] = {True: [], False: []}
    for row in rows:
        right = grade("number", row["output"], row["gold"], "fixed", row["question"])
        doubts[bool(right)].append(bool(doubted("gsm8k", row["question"], row["output"])))
    share = {right: sum(them) / len(them) for right, them in doubts.items()}
    assert share[True] < 0.05 < 0.1 < share[False]
