"""Grading by three gradings; the quirks of d1 are pinned as quirks."""

import pytest

from s3dlm.answers import mathverify, normalise
from s3dlm.answers.d1 import is_equiv
from s3dlm.answers.grading import gold_in_words, grade, notes

SOLVED = "1234341221434321"
PUZZLE = "Solve the following Sudoku puzzle: 1030341221034321\n"


@pytest.mark.parametrize(
    ("task", "text", "gold", "d1", "fixed"),
    [
        ("gsm8k", r"\boxed{18}", 18.0, 1, 1),
        ("gsm8k", r"\boxed{18}", "18", 1, 1),
        ("gsm8k", r"\boxed{18}", "so #### 18", 1, 1),
        ("gsm8k", r"\boxed{1,200}", 1200.0, 0, 1),  # d1 reads 1
        ("gsm8k", r"\boxed{1,200}", 1.0, 1, 0),
        ("gsm8k", r"\boxed{\$18}", 18.0, 1, 1),
        ("gsm8k", r"\boxed{120\text{ minutes}}", 120.0, 1, 1),
        ("gsm8k", r"\boxed{60\%}", 60.0, 1, 1),
        ("gsm8k", r"\boxed{-3}", -3, 1, 1),
        ("gsm8k", r"\boxed{-3}", 3, 0, 0),
        ("gsm8k", r"\boxed{\frac{2}{3}}", 2.0, 1, 0),  # d1 reads the first number
        ("gsm8k", r"\boxed{\frac{1}{2}}", 0.5, 0, 1),
        ("gsm8k", r"\boxed{...} \boxed{18}", 18.0, 1, 1),
        ("gsm8k", r"\boxed{17} \boxed{18}", 18.0, 0, 1),  # d1 takes the first box, we the last
        ("gsm8k", "<answer>18</answer>", 18.0, 1, 1),
        ("gsm8k", "So 6 * 3 = 18.\n#### 18", 18.0, 0, 1),
        ("gsm8k", "The answer is $1,800.", 1800.0, 0, 1),
        ("gsm8k", "6 * 3 = 18 dollars, so she makes $18 a day.", 18.0, 0, 1),  # the last number
        ("gsm8k", "<answer>\n\\boxed{...}\n</answer>", 18.0, 0, 0),
        ("gsm8k", "<answer>17 or 18</answer>", 18.0, 1, 0),
        ("gsm8k", "18", 18.0, 0, 1),
        ("gsm8k", r"\boxed{18}", None, 0, 0),
        ("arithmetic", r"Step 1: 12 + 7 = 19. Therefore the answer is \boxed{57}.", "57", 1, 1),
        ("math500", r"\boxed{\frac12}", r"\frac{1}{2}", 1, 1),
        ("math500", r"\boxed{0.25}", r"\frac14", 0, 1),
        ("math500", r"\boxed{\dfrac{3}{24}}", r"\frac{1}{8}", 0, 1),
        ("math500", r"\boxed{x+1}", "1+x", 0, 1),
        ("math500", r"\boxed{x-1}", "1+x", 0, 0),
        ("math500", "4", "4", 1, 0),  # d1 takes the whole text, and it is the answer
        ("math500", "the answer is 4", "4", 0, 1),
        ("math500", "<answer>\\boxed{-99</answer>", "-99", 0, 1),  # a box that was never closed
        ("math500", "we add 2 to get 4", "4", 0, 0),  # a last number is no formula
        ("aime", r"\boxed{33}", "033", 0, 1),
        ("arc", r"\boxed{B}", "B", 1, 1),
        ("arc", "Because it is. Therefore the answer is B.", "B", 0, 1),
        ("arc", r"\boxed{B}", "2", 0, 1),  # numeric labels become letters
        ("arc", r"\boxed{2}", "2", 1, 1),
        ("arc", r"\boxed{C}", "B", 0, 0),
        ("choice", "Because A falls. Therefore the answer is B.", "B", 0, 1),
        ("countdown", r"\boxed{49 + 55 - 53}", [[49, 55, 53], 51], 1, 1),
        ("countdown", r"\boxed{49 + 55 - 53 = 51}", [[49, 55, 53], 51], 1, 1),
        ("countdown", r"\boxed{53 - 2}", [[49, 55, 53], 51], 0, 0),
        ("countdown", r"\boxed{55 - 53 + 49 - 0}", [[49, 55, 53], 51], 0, 0),
        ("countdown", "<answer>49 + 55 - 53</answer>", [[49, 55, 53], 51], 0, 1),
        ("countdown", r"\boxed{49 × 1}", [[49, 1], 49], 0, 1),  # d1 knows no ×
        ("countdown", r"\boxed{1 + 2}", "[[1, 2], 3]", 1, 1),  # a gold answer as text
        ("math500", r"\boxed{3 \text{ or } 4}", r"3\text{ or }4", 1, 1),
        ("general", "yes <|eot_id|>", "yes", 1, 1),
    ],
)
def test_grades(task, text, gold, d1, fixed):
    assert grade(task, text, gold, "d1") == d1
    assert grade(task, text, gold, "d1_whole") == d1
    assert grade(task, text, gold) == fixed


@pytest.mark.parametrize(("grading", "share"), [("d1", 2 / 3), ("d1_whole", 0.0), ("fixed", 0.0)])
def test_sudoku_counts_cells_under_d1_and_grids_otherwise(grading, share):
    for cells, value in ((SOLVED, 1.0), (SOLVED[:1] + "3" + SOLVED[2:], share)):
        text = f"<answer>\n{cells}\n</answer><|eot_id|>"
        assert grade("sudoku", text, SOLVED, grading, PUZZLE) == pytest.approx(value)


NINE = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


@pytest.mark.parametrize("question", ["", f"Solve this: {NINE[:40]}{'0' * 41}\n"])
@pytest.mark.parametrize("text", ["{}", "so it is {}", "<answer>{}</answer>", "{}</answer>"])
def test_a_grid_of_nine_is_graded_whole(question, text):
    wrong = NINE[:-1] + "1"
    empty = 41 if question else 81
    for grading, share in (("d1", 1 - 1 / empty), ("d1_whole", 0.0), ("fixed", 0.0)):
        assert grade("sudoku9", text.format(NINE), NINE, grading, question) == 1.0
        assert grade("sudoku9", text.format(wrong), NINE, grading, question) == pytest.approx(share)


def test_sudoku_has_another_solution_that_is_as_right():
    text = "<answer>4321214334121234</answer>"
    for question, right in (
        ("Solve the following Sudoku puzzle: 0000000000000000", 1.0),
        ("", 0.0),
    ):
        assert grade("sudoku", text, SOLVED, "fixed", question) == right


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("<answer> grid: ```\n1234341221434321\n```</answer><|eot_id|>", 1.0),
        ("<answer>12343412 21434321<|eot_id|>", 1.0),
        ("</answer>1234341221434321", 1.0),
        ("so 1234341221434321 </answer>", 1.0),
        ("so 1234341221434321 it is", 1.0),
        ("<answer>1234</answer>", 2 / 3),  # the third empty cell is padded with 0
        ("nothing", 0.0),
    ],
)
def test_the_five_places_where_d1_looks_for_a_grid(text, cells):
    puzzle = "Solve the following Sudoku puzzle: 1030341221034321"
    assert grade("sudoku", text, SOLVED, "d1", puzzle) == pytest.approx(cells)


SPELLINGS = {  # whether d1 takes the two for equal
    (r"\tfrac12", r"\frac{1}{2}"): True, ("0.5", r"\frac{1}{2}"): True, ("3/4", r"\frac{3}{4}"): True,
    (r"\sqrt3", r"\sqrt{3}"): True, ("x=5", "5"): True, (r"10\text{ cm}", "10"): True,
    (r"90^\circ", "90"): True, (r"\left(1, 2\right)", "(1,2)"): True, (".5", "0.5"): True,
    (r"50\%", "50"): True, ("0.25", r"\frac14"): False, ("1,200", "1200"): False, ("b", "B"): False,
} | {
    (broken, other): broken == other
    for broken in (r"\frac", r"\sqrt", r"a\text{ b}\text{ c}", r"\frac1", "")
    for other in (broken, "7")
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_is_equiv_cleans_up_knows_no_values_and_takes_broken_latex_as_it_is(one, other):
    assert is_equiv(one, other) is SPELLINGS[one, other]


def test_without_math_verify_formulas_are_compared_by_spelling_and_a_note_says_so(monkeypatch):
    assert notes() == []
    monkeypatch.setattr(mathverify, "available", lambda: False)
    assert grade("math500", r"\boxed{\frac12}", "0.5") == 1.0
    assert grade("math500", r"\boxed{x+1}", "1+x") == 0.0
    assert "s3dlm[math]" in notes()[0]


@pytest.mark.parametrize(
    ("gold", "words"),
    [
        ([[11, 13, 1], 25], "any expression of 11, 13 and 1 that makes 25"),
        ([[6.0], 6.0], "any expression of 6 that makes 6"),
        ("3x^2", "3x^2"),
        (18.0, "18"),
        (2.5, "2.5"),
        ([["a", "b"], 2], '[["a", "b"], 2]'),
        ({"tests": "ä"}, '{"tests": "ä"}'),
    ],
)
def test_gold_answers_in_words(gold, words):
    assert gold_in_words(gold) == words


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        (r"3\text{ or }4", "3", False),
        (r"4\text{ or }3", "3", False),
        ("3 or 4", "3", False),
        (r"\frac{1}{2} \text{or} 3", r"\frac{1}{2}", False),
        (r"3\text{ oranges}", "3", True),
        ("3 orders", "3", True),
    ],
)
def test_a_choice_of_values_is_none_of_them(answer, gold, right):
    assert grade("math500", rf"\boxed{{{answer}}}", gold) == right
    assert grade("gsm8k", rf"\boxed{{{answer}}}", gold) == right
    assert (normalise("math", answer) == normalise("math", gold)) is right


@pytest.mark.parametrize(
    "run_on",
    [
        "{}\n\nQuestion: What is 2 + 2?\nAnswer: 2 + 2 = 4\n#### 4",
        "{}\nQ: What is 2 + 2?\nA: The answer is 4.",
        "{}\n**Problem 2:** What is 2 + 2? \\boxed{{4}}",
        "{}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhat is 2 + 2? \\boxed{{4}}",
        "{}You are an AI assistant. Question: What is 2 + 2? \\boxed{{4}}",
    ],
)
@pytest.mark.parametrize("answer", ["#### 18", r"\boxed{18}", "The answer is 18.", "6 * 3 = 18."])
def test_a_text_that_runs_on_into_a_next_question_is_read_up_to_there(run_on, answer):
    assert grade("gsm8k", run_on.format(answer), 18) == 1.0
    assert grade("gsm8k", run_on.format(answer), 4) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "#### 1. Add\n17 + 1 = 18\n#### 2. Answer\n\\boxed{18}",  # headings
        "Question: What is 17 + 1?\n\\boxed{18}",  # said again at the beginning
        "#### 18question: What is 2 + 2?\n#### 4",
        "#### 18# Proof of a theorem in 4 steps",
    ],
)
def test_what_only_looks_like_a_next_question(text):
    assert grade("gsm8k", text, 18) == 1.0


@pytest.mark.parametrize(
    ("written", "equal"), [("x=5", True), ("x = 5", True), ("xy=5", True), ("xyz=5", False), ("1=x=5", False)]
)  # fmt: skip
def test_d1_leaves_out_a_left_side_of_at_most_two_characters(written, equal):
    assert is_equiv(written, "5") == equal
