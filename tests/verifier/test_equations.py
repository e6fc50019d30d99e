"""Equations of any shape: found where they stand, and whether they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3dlm.verifier.equations import equations_in, wrong_equalities


def read(text):
    return [(text[slice(*e.span)], e.holds) for e in equations_in(text)]


TRUE = [
    "20 - 4 - 4 = 12", "25% of (20 - 4) = 4", "100 minutes + 20 minutes = 120", r"\frac{84}{3} = 28",
    r"\frac{60 \text{ snowballs}}{12 \text{ an hour}} = 5", "200 GB / 2 GB/minute = 100", "(12/20) * 100% = 60%",
    r"9 \times 2 = 18", "10/3 = 3.33", "half of 48 = 24", "3/4 of 20 = 15", "6.00 + $4.00 + $5.00 = $15.00",
    "100% - 20% = 80%", "20 + 40 = 60%", "30% + 30% = 0.6", "5 - 8 = -3", "2 * (3 + 4) = 14", "5 boxes * 3 apples/box = 15",
]  # fmt: skip
WRONG = [
    "3 + 4 = 8", "20 - 4 - 4 = 13", "25% of 20 = 6", "100 minutes + 20 minutes = 130", r"\frac{84}{3} = 27.5",
    "2 * (3 + 4) = 10", "63 = 7 * 8",
]  # fmt: skip
NO_VALUE = [
    "2x + 3 = 7", "x^2 + 3 + 4 = 9", r"\sqrt{16} + 3 = 19", "f(1) + 5 = 45", "2(3) + 5 = 10",
    r"2\frac{3}{4} = 5 + 1", "n! + 3 = 4", "10 jars = 10 * $50", "Total = 4 + 5", "a = 5", "3 + 4 = 7x",
    r"3 + 4 = 7\sqrt{2}",
    "10 / 3 = 3",  # a quotient may be rounded to a whole number
]  # fmt: skip


@pytest.mark.parametrize("text", [*TRUE, *WRONG, *NO_VALUE])
def test_equations_are_found_where_they_stand(text):
    """A power, a root or a variable beside a side leaves it without a value: nothing is said of it."""
    whole = f"First 1 + 1 = 2. Then {text} in all."
    assert read(whole)[1:] == ([] if text in NO_VALUE else [(text, text in TRUE)])
    assert [whole[start:end] for start, end in wrong_equalities(whole)] == [text] * (text in WRONG)
    assert text not in NO_VALUE or read(text) == []


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("63 = 7 * 9", {True}),
        ("63 = 7 * 8", {False}),
        (r"Notice that \(242 = 2 \times 121\)", {True}),
        (r"\[ 20\% \text{ of } 80 = 0.20 \times 80 = 16 \]", {True}),
        (r"\[ 25\% \text{ of} \, \$400 = 0.25 \times 400 = \$100 \]", {True}),
    ],
)
def test_a_number_may_stand_on_the_left(text, holds):
    assert {e.holds for e in equations_in(text)} == holds


def test_chains_are_read_link_by_link_and_running_totals_are_forgiven():
    assert [holds for _, holds in read("5 + 3 = 8 = 16 / 2")] == [True, True]
    assert [holds for _, holds in read("0.2 * 50 = 10 = 5 + 6")] == [True, False]
    assert [holds for _, holds in read("3 + 4 = 7 * 2 = 14")] == [True, True]


def test_lines_do_not_run_into_each_other():
    assert read("- 2 males\n\nTotal = 4 + 2\n- 3 + 4 = 7") == [("3 + 4 = 7", True)]


@given(st.integers(1, 999), st.integers(1, 999), st.integers(1, 999), st.integers(-2, 2))
def test_a_sum_of_three_is_wrong_exactly_when_it_is(a, b, c, error):
    text = f"we get {a} + {b} - {c} = {a + b - c + error} at last"
    assert bool(wrong_equalities(text)) == (error != 0)


@given(st.text(alphabet="0123456789+-*/=()%$ xofa.,\\{}\n", max_size=80))
def test_spans_lie_in_the_text_and_in_order(text):
    spans = wrong_equalities(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert spans == sorted(spans)


def test_only_a_share_multiplies_what_follows_of():
    assert read("5 boxes of 6 + 4 = 10") == [("6 + 4 = 10", True)]
    assert read("1/2 of 6 + 4 = 7") == [("1/2 of 6 + 4 = 7", True)]
