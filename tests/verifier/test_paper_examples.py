"""The worked examples of the paper's appendix, and by name the two that break their own rules."""

import pytest

from s3dlm.verifier import for_task
from s3dlm.verifier.components import arithmetic, non_degeneracy, reachability, structure
from s3dlm.verifier.parsed import ParsedText


def part(function, text, prompt=""):
    return function(ParsedText(prompt, text))


def test_structure_of_a_full_solution_is_one():
    text = r"Step 1: subtract 5: $3x=9$. Therefore $x=3$. \boxed{3}"
    assert part(structure, text) == pytest.approx(1.0)


def test_structure_of_a_bare_digit_is_a_quarter():
    assert part(structure, "3") == pytest.approx(0.25)


def test_structure_is_fooled_by_vacuous_keywords():
    assert part(structure, r"step step therefore \boxed{42}") > 0.8


def test_arithmetic_of_two_true_equalities_is_one():
    assert part(arithmetic, r"$12 \times 4 = 48$, then $48 + 7 = 55$") == 1.0


def test_arithmetic_without_equalities_is_neutral():
    assert part(arithmetic, "There are no sums here.") == 0.5


def test_paper_example_that_breaks_its_rule_s2_two_wrong_equalities_score_zero_not_a_half():
    """The paper says 0.5; but 12 × 4 = 50 and 50 + 7 = 55 are *both* wrong. The rule wins."""
    assert part(arithmetic, r"$12 \times 4 = 50$, then $50 + 7 = 55$") == 0.0


def test_reachability_of_a_computed_answer_is_one():
    text = r"We compute $6\times 7=42$. The answer is \boxed{42}"
    assert part(reachability, text) == 1.0


def test_reachability_of_an_answer_from_nowhere():
    assert part(reachability, r"\boxed{42}") == 0.3


def test_reachability_without_an_answer():
    assert part(reachability, "We compute 6*7") == 0.2


def test_reachability_is_fooled_by_an_incidental_mention():
    assert part(reachability, r"this is not 42 \boxed{42}") == 1.0


def test_paper_example_that_breaks_its_rule_s5_the_repeated_42_scores_one_not_0_3():
    """12 words are not "> 12", and 4 of 11 bigrams are distinct: by the rules 1.0. The rules win."""
    text = "the answer is 42 the answer is 42 the answer is 42"
    assert len(text.split()) == 12
    assert part(non_degeneracy, text) == 1.0


def test_a_flood_of_end_tokens_inside_the_text_is_degenerate():
    assert part(non_degeneracy, "<|endoftext|> word " * 20 + "the end") == 0.0


def test_a_trailing_run_of_end_tokens_is_how_a_diffusion_model_stops():
    text = "one two three four five six seven eight nine ten"
    assert part(non_degeneracy, text + "<|eot_id|>" + "<|endoftext|>" * 90) == 1.0


def test_countdown_example_of_the_paper():
    verifier = for_task("countdown")
    prompt = "Target: 952 Numbers: 100, 75, 50, 25, 6, 3"
    solved = verifier.score(prompt, r"\boxed{((100 + 6) * 3 * 75 - 50) / 25}").parts["constraint"]
    assert solved == pytest.approx(1.0)
