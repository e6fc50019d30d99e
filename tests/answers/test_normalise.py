"""One spelling for equal answers, and the calculator of expressions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3dlm.answers import normalise
from s3dlm.answers.expressions import parse

EQUAL = [
    ("gsm8k", ["18", "18.0", "$18", r"\$18", "18 dollars", r"18\text{ dollars}", "18.", "x = 18", "18%"]),
    ("gsm8k", ["1,200", "1200", "1200.00", r"1{,}200", r"\$1,200", r"1,\!200", "1200 km"]),
    ("gsm8k", ["-3", "−3", "-3.0", "-3 degrees"]),
    ("gsm8k", ["1/2", r"\frac12", r"\frac{1}{2}", "0.5", ".5", r"\dfrac{1}{2}"]),
    ("gsm8k", [r"1\frac{1}{2}", "1.5", "3/2"]),
    ("gsm8k", ["-3/4", "-3 / 4", "3/-4", r"-\frac{3}{4}", r"\dfrac{-3}{4}", "-0.75"]),
    ("gsm8k", [r"\frac{1,200}{7}", "1200/7"]),
    ("math500", ["1/2", r"\frac12", r"\frac{1}{2}", r"\dfrac{1}{2}", "0.5", r"$\frac{1}{2}$", r"x=\frac{1}{2}"]),
    ("math500", ["58,500", "58500", r"58{,}500"]),
    ("math500", [r"90^\circ", r"90^{\circ}", "90"]),
    ("math500", [r"\text{east}", "east", "East"]),
    ("math500", [r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})"]),
    ("math500", [r"16\sqrt{3}", r"16 \sqrt{3}", r"16\sqrt3"]),
    ("arc", ["B", "b", "(B)", "B."]),
    ("countdown", ["3 + 4 * 5", "(4*5)+3", "3+(5 * 4)", r"4 \times 5 + 3"]),
    ("sudoku", ["1234", "12 34", "12\n34"]),
    ("general", ["a  b", "a b", " a\nb "]),
]  # fmt: skip


@pytest.mark.parametrize(("task", "answers"), EQUAL)
def test_equal_answers_vote_together_and_are_spelled_once(task, answers):
    (once,) = {normalise(task, answer) for answer in answers}
    assert normalise(task, once) == once


@pytest.mark.parametrize("task", ["gsm8k", "math500", "countdown", "arc"])
def test_different_answers_do_not(task):
    groups = [answers for name, answers in EQUAL if name == task]
    for one, other in itertools.combinations(groups, 2):
        assert normalise(task, one[0]) != normalise(task, other[0])


@pytest.mark.parametrize(
    ("one", "other"),
    [("2x", "2"), ("x+1", "x-1"), (r"\sqrt{2}", "2"), ("(1,2)", "12"), ("-1", "1")],
)
def test_formulas_are_not_numbers_with_units(one, other):
    assert normalise("math500", one) != normalise("math500", other)


@given(st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=10**4))
def test_a_number_keeps_its_value(value):
    assert normalise("gsm8k", f"{value}") == str(value)
    frac = f"\\frac{{{abs(value).numerator}}}{{{value.denominator}}}"
    assert normalise("math500", f"{'-' if value < 0 else ''}{frac}") == str(value)


def test_a_number_that_is_too_long_or_divided_by_zero_stays_as_it_is_written():
    assert normalise("gsm8k", f"{'9' * 40}.") == "9" * 40
    assert normalise("gsm8k", f"{'9' * 39}/{'3' * 39}") == "3"
    for written in ("9" * 41, "1/0"):
        assert normalise("math500", written) == written


@given(st.integers(-(10**9), 10**9))
def test_integers_by_any_spelling(value):
    spellings = [f"{value}", f"{value:,}", f"{value}.0", f"${value}$", f"{value} apples"]
    assert {normalise("gsm8k", s) for s in spellings} == {str(value)}


NUMBERS = st.integers(0, 99).map(str)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=8,
)  # fmt: skip


@given(EXPRESSIONS)
def test_the_canonical_expression_has_the_same_value_and_numbers(text):
    parsed = parse(text)
    again = parse(parsed.canonical())
    assert again.canonical() == parsed.canonical()
    assert sorted(again.operands) == sorted(parsed.operands)
    one, other = parsed.value(), again.value()
    assert (one is None) == (other is None)
    if one is not None:
        assert other == pytest.approx(one)


@given(EXPRESSIONS)
def test_the_calculator_agrees_with_python(text):
    parsed = parse(text)
    try:
        expected = eval(text, {"__builtins__": {}})  # the test's own text, never a model's
    except ZeroDivisionError:
        expected = None
    if expected is None or abs(expected) > 1e15:
        assert parsed.value() is None
    elif parsed.value() is not None:
        assert parsed.value() == pytest.approx(expected)


NONE = [
    "", "()", "3 +", "+ 3", "3 4", "3 ** 4", "3 // 4", "(3", "3)", "a + 1", "1 + (2", "9" * 500, "- - 3 x",
]  # fmt: skip


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_expression_is_none(text):
    assert parse(text) is None


def test_signs_bind_tightest():
    for text, value in (("-3 + 5", 2), ("2 * -3", -6), ("-(1 + 2)", -3), ("10 - 4 - 3", 3)):
        parsed = parse(text)
        assert parsed.value() == value
