import pytest

from s3dlm.answers import extract

OPTIONS = "What do plants make?\n\nOptions:\nA. gold\nB. sugar\nC. iron\n\nChoose ONE letter."


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{18}", "18"),
        (r"first \boxed{1}, then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{a{b{c}d}e} f}", "a{b{c}d}e"),
        (r"\boxed{7} <answer>8</answer> #### 9", "7"),
        ("<answer>\n8\n</answer> #### 9. The answer is 10", "8"),
        ("#### 9\nThe answer is 10", "9"),
        ("The answer is 10.", "10"),
        ("The answer is: 3.5. Done.", "3.5"),
        ("answer = 4", "4"),
        ("Answer: 4", "4"),
        (r"\boxed{...} <answer>5</answer>", "5"),
        (r"\boxed{6} and \boxed{7", "6"),
        (r"\boxed{5}<|eot_id|><|endoftext|><|endoftext|>", "5"),
        ("answers vary", None),
        ("", None),
        (r"\boxed{}", None),
        (r"\boxed{many}", "many"),
    ],
)
def test_the_cascade(text, answer):
    assert extract("math500", text) == answer


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{b}", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{B. sugar}", "B"),
        (r"\boxed{(B)}", "B"),
        ("<answer>B</answer>", "B"),
        ("Because of light. Therefore the answer is B.", "B"),
        ("The correct option is (C)", "C"),
        ("I choose C because it fits", "C"),
        ("Reasoning.\nB", "B"),
        (r"\boxed{sugar}", "B"),
        (r"\boxed{lead}", None),
        ("The answer is a dog", None),
        ("A dog is an animal", None),
        ("", None),
    ],
)
def test_letters(text, letter):
    assert extract("arc", text, OPTIONS) == letter


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        (r"\boxed{87 - 85 + 60}", "87 - 85 + 60"),
        (r"\boxed{33 - 7 - 20 = 6}", "33 - 7 - 20"),
        (r"\boxed{6 = 33 - 7 - 20}", "33 - 7 - 20"),
        (r"\boxed{3 \times 4}", "3 * 4"),
        ("6 + 12 = 18. <answer>(6 + 12) + 5</answer>", "(6 + 12) + 5"),
        (r"\boxed{\text{the sum } 3 + 4}", "3 + 4"),
        ("no delimiter 3 + 4", None),
        (r"\boxed{42}", None),
    ],
)
def test_expressions(text, expression):
    assert extract("countdown", text) == expression


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("<answer>\n1234341221434321\n</answer>", "1234341221434321"),
        ("<answer>1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1</answer>", "1234341221434321"),
        ("<answer>1234341221434321", "1234341221434321"),
        ("the grid 1234341221434321 is it", "1234341221434321"),
        (r"\boxed{1234341221434321}", "1234341221434321"),
        ("<answer>12|34\n34|12\n--+--\n21|43\n43|21</answer>", "1234341221434321"),
        ("nothing but 12", None),
    ],
)
def test_grids(text, cells):
    assert extract("sudoku", text) == cells


def test_the_general_answer_is_the_whole_text():
    assert extract("general", "  a\nb <|endoftext|>") == "a\nb"
    assert extract("general", " <|eot_id|>\n") is None
