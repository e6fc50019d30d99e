"""Numbers in running text: which minus is a sign."""

from __future__ import annotations

from fractions import Fraction

import pytest

from s3dlm.answers.numbers import (
    MAX_DIGITS,
    TAIL,
    last_number_in,
    numbers_in,
    to_float,
    to_fraction,
)

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


def test_a_number_that_is_too_long_is_not_read() -> None:
    assert to_float("9" * MAX_DIGITS) == float("9" * MAX_DIGITS)
    assert to_float("9" * (MAX_DIGITS + 1)) is None
    assert to_float("1.2.3") is None
    assert to_fraction("9" * MAX_DIGITS) == int("9" * MAX_DIGITS)
    assert to_fraction("9" * (MAX_DIGITS + 1)) is None
    assert to_fraction(f"{'9' * 39}/{'3' * 39}") == 3
    assert to_fraction(f"{'9' * 40}/{'3' * 40}") is None  # 81 characters


FRACTIONS = {
    "1/2": Fraction(1, 2), "-1 / 2": Fraction(-1, 2), "1/-2": Fraction(-1, 2), "1/0": None, "0.25": Fraction(1, 4),
    r"\frac12": Fraction(1, 2), r"-\frac{3}{4}": Fraction(-3, 4), r"\dfrac{-3}{4}": Fraction(-3, 4),
    r"\frac{1,200}{7}": Fraction(1200, 7), "x": None,
}  # fmt: skip


@pytest.mark.parametrize("text", FRACTIONS)
def test_fractions_are_exact(text: str) -> None:
    assert to_fraction(text) == FRACTIONS[text]
