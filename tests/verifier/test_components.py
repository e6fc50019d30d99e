"""The five parts S1–S5, and the worked examples of the paper's appendix: by name the two that break their own rules."""

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


def of(part, text, prompt=""):
    return part(ParsedText(prompt, text))


def counted(text):
    return count_equalities(plain_arithmetic(text))


ENDED = "one two three four five six seven eight nine ten<|eot_id|>" + "<|endoftext|>" * 90
PAPER = {
    "a full solution": (structure, r"Step 1: subtract 5: $3x=9$. Therefore $x=3$. \boxed{3}", 1.0),
    "a bare digit": (structure, "3", 0.25),
    "vacuous keywords fool it": (structure, r"step step therefore \boxed{42}", 0.867),
    "two true equalities": (arithmetic, r"$12 \times 4 = 48$, then $48 + 7 = 55$", 1.0),
    "no equality": (arithmetic, "There are no sums here.", 0.5),
    "breaks its rule S2: the paper says 0.5, but both equalities are wrong":
        (arithmetic, r"$12 \times 4 = 50$, then $50 + 7 = 55$", 0.0),
    "a computed answer": (reachability, r"We compute $6\times 7=42$. The answer is \boxed{42}", 1.0),
    "an answer from nowhere": (reachability, r"\boxed{42}", 0.3),
    "no answer": (reachability, "We compute 6*7", 0.2),
    "an incidental mention fools it": (reachability, r"this is not 42 \boxed{42}", 1.0),
    "breaks its rule S5: the paper says 0.3, but 12 words are not more than 12, and 4 of 11 bigrams differ":
        (non_degeneracy, "the answer is 42 the answer is 42 the answer is 42", 1.0),
    "a flood of end tokens inside the text": (non_degeneracy, "<|endoftext|> word " * 20 + "the end", 0.0),
    "a trailing run is how a diffusion model stops": (non_degeneracy, ENDED, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PAPER)
def test_an_example_of_the_paper(name):
    part, text, value = PAPER[name]
    assert of(part, text) == pytest.approx(value, abs=0.005)


EQUALITIES = {  # (found, true)
    (1, 1): [
        "3 + 4 = 7", "3+4=7", "10 − 4 = 6", "6 x 7 = 42", r"\(9 \times 2 = 18\)", r"$6 \cdot 7 = 42$",
        r"$84 \div 3 = 28$", r"$\frac{84}{3} = 28$", "1,200 + 300 = 1,500", "2.5 * 4 = 10", "0.1 + 0.2 = 0.3",
        "$5 + $3 = $8", r"\$5 + \$3 = \$8", "£5 * 2 = £10", "20% * 50 = 10", "100% - 40% = 60%",
        r"0.6 * 100 = 60\%", "12 / 20 = 60%", "<<48/2=24>>", "-5 + 3 = -2", "3 + 4 = 7 eggs", "x = 3 + 4 = 7",
    ],
    (1, 0): ["10 - 4 = 5", r"$\dfrac{84}{3} = 27$", "12 / 20 = 61%", "7 / 0 = 0"],
    (2, 2): ["6 × 7 = 42 and 84 ÷ 2 = 42"],
    (2, 1): ["3 + 4 = 7. Then 7 * 2 = 15."],
    (0, 0): [  # pieces of something larger are left alone, right or wrong
        "20 - 4 - 4 = 12", "2x + 3 + 5 = 14", "3x + 5 = 14", "x2 + 5 = 14", "(1 + 2) * 3 = 9", "10 -5 + 3 = 8",
        "3 + 4 = 7x", "3 + 4 = 5 + 2", "2^3 + 1 = 9", "x = 5", "= 7", "",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "counts"), [(text, counts) for counts, texts in EQUALITIES.items() for text in texts]
)
def test_equalities(text, counts):
    assert counted(text) == counts


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from("+-*"), st.integers(-3, 3))
def test_an_equality_is_verified_exactly_when_it_is_true(a, b, operator, error):
    value = {"+": a + b, "-": a - b, "*": a * b}[operator] + error
    # beyond ten million a unit lies within the paper's relative tolerance of 1e-6
    true = error == 0 or abs(error) <= max(abs(value) * 1e-6, 1e-4)
    assert counted(f"so {a} {operator} {b} = {value}.") == (1, int(true))


def test_diverging_values_scale_the_arithmetic_score_and_zeros_are_left_out():
    chains = [([], 1.0), ([1, 0, 5], 1.0), ([1, 10, 10**5], 0.5), ([2, -3], 1.0)]
    assert [chain_share(values) for values, _ in chains] == [share for _, share in chains]
    assert of(arithmetic, "3 + 4 = 7. x = 90000. y = 90001.") == pytest.approx(1 / 2)


def test_structure_counts_distinct_keywords_up_to_three_of_fourteen():
    assert len(set(KEYWORDS)) == 14
    assert {"step", "therefore", "thus", "compute", "subtract"} <= set(KEYWORDS)
    base = of(structure, "words without any signal")
    values = [of(structure, f"words {k}") - base for k in ("step", "step step", "step thus")]
    assert values == pytest.approx([0.4 / 3, 0.4 / 3, 0.8 / 3])


@pytest.mark.parametrize("text", [r"\boxed{}", r"\boxed{3", "<answer></answer>", "#### ", "answer"])
def test_a_delimiter_around_nothing_does_not_count(text):
    assert of(structure, text) <= 0.25


def test_structure_of_choice_wants_a_letter():
    letter, digit = (of(structure_of_choice, f"The answer is {answer}.") for answer in "B7")
    assert letter - digit == pytest.approx(0.35, abs=0.02)


@given(st.text(max_size=80))
def test_density_is_the_share_of_letters_digits_and_space(text):
    expected = sum(c.isalnum() or c.isspace() for c in text) / len(text) if text else 0.0
    assert density(text) == pytest.approx(expected)


NAMED = [  # the answer stands in the reasoning
    r"so 18.0 in all \boxed{18}", r"so 1,200 in all \boxed{1200}", r"so 1200 in all \boxed{1,200}",
    r"we get -5 in the end \boxed{-5}", r"we get −5 in the end \boxed{-5}",
    r"we get x = - 5 in the end \boxed{-5}", r"we get 10 - 5 and nothing else \boxed{5}",
    r"she lost -$5 \boxed{-\$5}", r"it takes 120 minutes \boxed{120\text{ minutes}}",
    r"the side is X + 1 \boxed{x + 1}", "so 9 of them. The answer is 9.",
]  # fmt: skip
UNNAMED = [
    r"so 142 in all \boxed{42}", r"we get 5 in the end \boxed{-5}", r"we get -5 in the end \boxed{5}",
    r"we get -5.0 in the end \boxed{5}", r"we get 10 - 5 and nothing else \boxed{-5}",
    r"so 4.2 and 0.42 \boxed{42}", r"the side is y \boxed{x + 1}",
]  # fmt: skip


@pytest.mark.parametrize("text", [*NAMED, *UNNAMED])
def test_reachability(text):
    assert of(reachability, text) == (1.0 if text in NAMED else 0.3)


@pytest.mark.parametrize(
    ("stated", "value"), [(None, 0.5), (0.3, 0.3), (-1.0, 0.0), (7.0, 1.0), (float("nan"), 0.5)]
)
def test_confidence_is_clipped_and_neutral_without_one(stated, value):
    assert confidence(ParsedText("", "text", stated)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("too short", 0.2),
        ("", 0.2),
        ("a " * 40, 0.05),
        ("a b c d " * 4 + "a", 0.3),
        ("word " * 6 + "<|mdm_mask|>" * 6, 0.05),
        ("one two three four five six seven eight", 1.0),
    ],
)
def test_non_degeneracy(text, value):
    assert of(non_degeneracy, text) == value


@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=13, max_size=120))
def test_the_short_cut_for_rich_vocabularies_changes_nothing(words):
    def share(size):
        pieces = list(zip(*(words[at:] for at in range(size)), strict=False))
        return len(set(pieces)) / len(pieces)

    expected = 0.05 if share(2) < 0.15 else 0.3 if share(2) < 0.3 else 1.0
    if expected == 1.0 and len(words) > 30 and share(3) < 0.25:
        expected = 0.2
    assert of(non_degeneracy, " ".join(words)) == expected
