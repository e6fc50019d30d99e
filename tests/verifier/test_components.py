import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3dlm.verifier.components import (
    KEYWORDS,
    arithmetic,
    chain_share,
    confidence,
    count_equalities,
    density,
    non_degeneracy,
    plain_arithmetic,
    reachability,
    structure,
    structure_of_choice,
)
from s3dlm.verifier.parsed import ParsedText


def counted(text):
    return count_equalities(plain_arithmetic(text))


@pytest.mark.parametrize(
    ("text", "total", "verified"),
    [
        ("3 + 4 = 7", 1, 1),
        ("3+4=7", 1, 1),
        ("10 - 4 = 5", 1, 0),
        ("10 − 4 = 6", 1, 1),
        ("6 × 7 = 42 and 84 ÷ 2 = 42", 2, 2),
        ("6 x 7 = 42", 1, 1),
        (r"\(9 \times 2 = 18\)", 1, 1),
        (r"$6 \cdot 7 = 42$", 1, 1),
        (r"$84 \div 3 = 28$", 1, 1),
        (r"$\frac{84}{3} = 28$", 1, 1),
        (r"$\dfrac{84}{3} = 27$", 1, 0),
        ("1,200 + 300 = 1,500", 1, 1),
        ("2.5 * 4 = 10", 1, 1),
        ("0.1 + 0.2 = 0.3", 1, 1),
        ("$5 + $3 = $8", 1, 1),
        (r"\$5 + \$3 = \$8", 1, 1),
        ("£5 * 2 = £10", 1, 1),
        ("20% * 50 = 10", 1, 1),
        ("100% - 40% = 60%", 1, 1),
        (r"0.6 * 100 = 60\%", 1, 1),
        ("12 / 20 = 60%", 1, 1),
        ("12 / 20 = 61%", 1, 0),
        ("<<48/2=24>>", 1, 1),
        ("-5 + 3 = -2", 1, 1),
        ("7 / 0 = 0", 1, 0),
        ("3 + 4 = 7. Then 7 * 2 = 15.", 2, 1),
        ("3 + 4 = 7 eggs", 1, 1),
        ("x = 3 + 4 = 7", 1, 1),
        # pieces of something larger are left alone, right or wrong
        ("20 - 4 - 4 = 12", 0, 0),
        ("2x + 3 + 5 = 14", 0, 0),
        ("3x + 5 = 14", 0, 0),
        ("x2 + 5 = 14", 0, 0),
        ("(1 + 2) * 3 = 9", 0, 0),
        ("10 -5 + 3 = 8", 0, 0),
        ("3 + 4 = 7x", 0, 0),
        ("3 + 4 = 5 + 2", 0, 0),
        ("2^3 + 1 = 9", 0, 0),
        ("x = 5", 0, 0),
        ("= 7", 0, 0),
        ("", 0, 0),
    ],
)
def test_equalities(text, total, verified):
    assert counted(text) == (total, verified)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from("+-*"), st.integers(-3, 3))
def test_an_equality_is_verified_exactly_when_it_is_true(a, b, operator, error):
    value = {"+": a + b, "-": a - b, "*": a * b}[operator] + error
    # beyond ten million a unit lies within the paper's relative tolerance of 1e-6
    true = error == 0 or abs(error) <= max(abs(value) * 1e-6, 1e-4)
    assert counted(f"so {a} {operator} {b} = {value}.") == (1, int(true))


def test_chain_leaves_zeros_out_and_counts_neighbours():
    assert chain_share([]) == 1.0
    assert chain_share([1, 0, 5]) == 1.0
    assert chain_share([1, 10, 10**5]) == 0.5
    assert chain_share([2, -3]) == 1.0


def test_diverging_values_scale_the_arithmetic_score():
    text = "3 + 4 = 7. x = 90000. y = 90001."
    assert arithmetic(ParsedText("", text)) == pytest.approx(1 / 2)


def test_there_are_fourteen_keywords_with_the_papers_own():
    assert len(set(KEYWORDS)) == 14
    assert {"step", "therefore", "thus", "compute", "subtract"} <= set(KEYWORDS)


def test_structure_counts_distinct_keywords_up_to_three():
    base = structure(ParsedText("", "words without any signal"))
    values = [structure(ParsedText("", f"words {k}")) for k in ("step", "step step", "step thus")]
    assert values[0] == pytest.approx(base + 0.4 / 3)
    assert values[1] == values[0]
    assert values[2] == pytest.approx(base + 0.8 / 3)


@pytest.mark.parametrize("text", [r"\boxed{}", r"\boxed{3", "<answer></answer>", "#### ", "answer"])
def test_a_delimiter_around_nothing_does_not_count(text):
    assert structure(ParsedText("", text)) <= 0.25


def test_structure_of_choice_wants_a_letter():
    with_letter = structure_of_choice(ParsedText("", "The answer is B."))
    without = structure_of_choice(ParsedText("", "The answer is 7."))
    assert with_letter - without == pytest.approx(0.35, abs=0.02)


@given(st.text(max_size=80))
def test_density_is_the_share_of_letters_digits_and_space(text):
    expected = sum(c.isalnum() or c.isspace() for c in text) / len(text) if text else 0.0
    assert density(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"so 18.0 in all \boxed{18}", 1.0),
        (r"so 1,200 in all \boxed{1200}", 1.0),
        (r"so 1200 in all \boxed{1,200}", 1.0),
        (r"so 142 in all \boxed{42}", 0.3),
        (r"we get 5 in the end \boxed{-5}", 0.3),
        (r"we get -5 in the end \boxed{-5}", 1.0),
        (r"we get −5 in the end \boxed{-5}", 1.0),
        (r"we get x = - 5 in the end \boxed{-5}", 1.0),
        (r"we get -5 in the end \boxed{5}", 0.3),
        (r"we get -5.0 in the end \boxed{5}", 0.3),
        (r"we get 10 - 5 and nothing else \boxed{5}", 1.0),
        (r"we get 10 - 5 and nothing else \boxed{-5}", 0.3),
        (r"she lost -$5 \boxed{-\$5}", 1.0),
        (r"so 4.2 and 0.42 \boxed{42}", 0.3),
        (r"it takes 120 minutes \boxed{120\text{ minutes}}", 1.0),
        (r"the side is X + 1 \boxed{x + 1}", 1.0),
        (r"the side is y \boxed{x + 1}", 0.3),
        ("so 9 of them. The answer is 9.", 1.0),
        ("none", 0.2),
    ],
)
def test_reachability(text, value):
    assert reachability(ParsedText("", text)) == value


@pytest.mark.parametrize(
    ("given_value", "value"),
    [(None, 0.5), (0.3, 0.3), (-1.0, 0.0), (7.0, 1.0), (float("nan"), 0.5)],
)
def test_confidence_is_clipped_and_neutral_without_one(given_value, value):
    assert confidence(ParsedText("", "text", given_value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("too short", 0.2),
        ("", 0.2),
        ("a " * 40, 0.05),
        ("a b c d " * 4 + "a", 0.3 if 4 / 16 < 0.30 else 1.0),
        ("word " * 6 + "<|mdm_mask|>" * 6, 0.05),
        ("one two three four five six seven eight", 1.0),
    ],
)
def test_non_degeneracy(text, value):
    assert non_degeneracy(ParsedText("", text)) == value


@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=13, max_size=120))
def test_the_short_cut_for_rich_vocabularies_changes_nothing(words):
    def share(size):
        pieces = list(zip(*(words[at:] for at in range(size)), strict=False))
        return len(set(pieces)) / len(pieces)

    expected = 0.05 if share(2) < 0.15 else 0.3 if share(2) < 0.3 else 1.0
    if expected == 1.0 and len(words) > 30 and share(3) < 0.25:
        expected = 0.2
    assert non_degeneracy(ParsedText("", " ".join(words))) == expected
