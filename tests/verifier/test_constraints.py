"""What a task's own rules say of a text: Countdown, Sudoku, multiple choice."""

import pytest

from s3dlm.verifier import for_task
from s3dlm.verifier.constraints import countdown_puzzle

SOLVED = "1234341221434321"
PUZZLE = "1030341221034321"  # 13 clues
GAME = "Numbers: [49, 55, 53]\nTarget: 51"
TWICE = "Numbers: [24, 24, 34]\nTarget: 34"
SWAPPED = SOLVED[1] + SOLVED[0] + SOLVED[2:]  # breaks two columns and one clue, no box


def constraint(task, prompt, text, verifier="paper"):
    return for_task(task, verifier).score(prompt, text).parts["constraint"]


@pytest.mark.parametrize(
    "prompt",
    [
        "Target: 51 Numbers: 49, 55, 53",
        GAME,
        f"Use only the provided numbers to reach the target.\n\n{GAME}",
        "Using the numbers 49, 55, 53, make the target number 51.",
    ],
)
def test_countdown_reads_target_and_pool_from_the_question(prompt):
    assert countdown_puzzle(prompt) == (51, {49: 1, 55: 1, 53: 1})


@pytest.mark.parametrize(
    ("task", "prompt", "text", "value"),
    [
        ("countdown", GAME, r"\boxed{49 + 55 - 53}", 1.0),
        ("countdown", GAME, r"\boxed{49 + 55 - 53 = 51}", 1.0),
        ("countdown", GAME, r"\boxed{51 = 49 + 55 - 53}", 1.0),
        ("countdown", GAME, "<answer>49 + 55 - 53</answer>", 1.0),
        ("countdown", GAME, r"\boxed{(49 + 55) - 53}", 1.0),
        ("countdown", GAME, r"\boxed{49 + 55 - 54}", 0.3 + 0.1),
        ("countdown", GAME, r"\boxed{51 + 0}", 0.6 + 0.1),
        ("countdown", GAME, r"\boxed{53 - 49}", 0.1 + 0.4),
        ("countdown", GAME, r"\boxed{49 + 49 - 47}", 0.6 + 0.1),
        ("countdown", GAME, r"\boxed{49 \times 55}", 0.1 + 0.4),
        ("countdown", GAME, r"\boxed{55 / 0}", 0.0),
        ("countdown", GAME, r"\boxed{none}", 0.0),
        ("countdown", GAME, "I do not know", 0.0),
        ("countdown", "Play!", r"\boxed{1 + 2}", 0.7),  # a question that cannot be read
        ("countdown", "Play!", "no sum", 0.0),
        ("countdown", TWICE, r"\boxed{34 - 24 + 24}", 1.0),
        ("countdown", TWICE, r"\boxed{34 + 34 - 34}", 0.7),  # more often than the pool has it
        ("sudoku", f"Solve the following Sudoku puzzle: {PUZZLE}\n", f"<answer>\n{SOLVED}\n</answer>", 1.0),
        ("sudoku", f"Solve the 4x4 Sudoku: {PUZZLE}", f"<answer>{SWAPPED}</answer>", 0.75 * 10 / 12 + 0.25 * 12 / 13),
        ("sudoku", f"Sudoku: {PUZZLE}", f"<answer>{SOLVED}99</answer>", 1.0),  # cut to the puzzle's size
        ("sudoku", f"Sudoku: {PUZZLE}", f"<answer>{SOLVED[:8]}</answer>", 0.75 * 4 / 12 + 0.25 * 6 / 13),
        ("sudoku", f"Sudoku: {PUZZLE}", "no grid", 0.0),
        ("arc", "", "Because of A, and since B holds, therefore the answer is B. B it is.", 1.0),
        ("arc", "", r"\boxed{B}", 0.3 + 0.2),
        ("arc", "", "I have nothing at all to say about it", 0.2),
        ("arc", "", "A and A and A could all be it, yet the answer is B", 0.3 + 0.2),
        ("gsm8k", "", r"\boxed{3}", 0.0),  # a task without rules
    ],
)  # fmt: skip
def test_the_papers_rules(task, prompt, text, value):
    assert constraint(task, prompt, text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("prompt", "better", "worse"),
    [
        ("Reach the target 51 with them.", r"\boxed{49 + 2}", r"\boxed{49 + 3}"),
        ("Numbers: [49, 55, 53]", r"\boxed{49 + 55 - 53}", r"\boxed{1 + 2}"),
    ],
)
def test_checker_uses_the_half_of_a_countdown_question_that_can_be_read(prompt, better, worse):
    low, high = (constraint("countdown", prompt, text, "checker") for text in (worse, better))
    assert 0 < low < high < 1


CHOICE = "What is 8 + 15?\nA. 22\nB. 33\nC. 23\nD. 13"


@pytest.mark.parametrize(
    ("task", "prompt", "text", "value"),
    [
        ("countdown", GAME, r"\boxed{49 + 55 - 53}", 1.0),
        ("countdown", GAME, r"\boxed{51 + 0}", 0.1 + 0.6),  # with other numbers
        ("countdown", GAME, r"\boxed{53 - 49}", 0.25 + 0.1 + 0.2 / 48),  # with a part of them, 47 away
        ("countdown", GAME, r"\boxed{49 + 53 - 55}", 0.4 + 0.1 + 0.2 / 5),
        ("countdown", GAME, r"\boxed{49 + 55 - 54}", 0.1 + 0.1 + 0.2 / 2),
        ("sudoku", f"Sudoku: {PUZZLE}", f"<answer>{SOLVED}</answer>", 1.0),
        ("sudoku", f"Sudoku: {PUZZLE}", f"<answer>{SOLVED}99</answer>", 0.95),  # of another size
        ("sudoku", f"Sudoku: {PUZZLE}", f"<answer>{SWAPPED}</answer>", (0.45 + 0.25) * 10 / 12 + 0.25 * 12 / 13 + 0.05),
        ("sudoku", f"Sudoku: {PUZZLE}", f"<answer>{SOLVED[:8]}</answer>", 0.45 * 4 / 12 + 0.25 * 8 / 12 + 0.25 * 6 / 13),
        ("choice", CHOICE, "Because 8 + 15 = 23. Therefore the answer is C.", 0.45 + 0.5),
        ("choice", CHOICE, "Because 8 + 15 = 23. Therefore the answer is A.", 0.45),  # speaks of another
        ("choice", CHOICE, "Because it is 23 or it is 22. Therefore the answer is C.", 0.45 + 0.2),  # not last
    ],
)  # fmt: skip
def test_the_sharper_rules_of_checker(task, prompt, text, value):
    assert constraint(task, prompt, text, "checker") == pytest.approx(value)
