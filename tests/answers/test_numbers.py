"""Numbers in running text: which minus is a sign."""

from __future__ import annotations

import pytest

from s3dlm.answers.numbers import TAIL, last_number_in, numbers_in

SIGNS = {
    "-5": True, "= -5": True, "=-5": True, "(-5)": True, "(-$5)": True, "is -5": True, ": -5": True,
    "$-5$": True, "x = - 5": True, "5 < - 5": True, "is −5": True, "2 * -5": True, "\\boxed{-5": True,
    "-\\$5": True, "[- 5": True,
    "x-5": False, "10-5": False, "10 -5": False, "10 - 5": False, "x - 5": False, "(a)-5": False,
    "a] -5": False, "}-5": False, "3%-5": False, "- 5 apples": False, "5": False, "+5": False,
}  # fmt: skip


@pytest.mark.parametrize("text", SIGNS)
def test_a_minus_is_a_sign_where_no_operand_stands_before_it(text: str) -> None:
    expected = -5.0 if SIGNS[text] else 5.0
    assert numbers_in(text)[-1] == expected
    assert last_number_in(text) == f"{expected:.0f}"


def test_numbers_are_read_as_models_write_them() -> None:
    text = "From 1,200 and $18.50, then 3.5. (3,4) is 1,2345?"
    assert numbers_in(text) == [1200, 18.5, 3.5, 34, 12345]
    assert last_number_in("the answer is 1,200.") == "1,200"
    assert last_number_in("none at all") is None
    assert last_number_in("7" + " " * TAIL) is None
    assert last_number_in("7" + " " * (TAIL - 1)) == "7"
