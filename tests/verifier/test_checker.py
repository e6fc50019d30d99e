"""The checker verifier: each feature moves the way it should, and the whole beats the paper's."""

import json
import math
import os
from pathlib import Path

import pytest

from s3dlm.answers import TASK_KINDS
from s3dlm.evaluation.score import score_file
from s3dlm.verifier import PARTS, Verifier, for_task
from s3dlm.verifier.base import CHECKABLE
from s3dlm.verifier.checker import FEATURES
from s3dlm.verifier.parsed import FreeText, ParsedText
from s3dlm.verifier.weights import (
    CHECKER,
    CHECKER_RULES,
    FROM_MODELS,
    PAPER,
    in_fit_half,
    was_in_fit,
)

QUESTION = (
    "Janet's ducks lay 16 eggs per day. She eats three for breakfast and bakes with four. "
    "She sells the rest for $2 each. How much does she make?"
)
GOOD = r"She uses 3 + 4 = 7 eggs. Then she has 16 - 7 = 9 left and makes 9 * 2 = 18 dollars. \boxed{18}"

FILE = Path(os.environ.get("S3DLM_DATA", "")) / "llada8b_outputs.jsonl"
with_data = pytest.mark.skipif(
    not (os.environ.get("S3DLM_DATA") and FILE.exists()),
    reason="S3DLM_DATA names no folder with llada8b_outputs.jsonl",
)


def total(text, task="gsm8k", question=QUESTION):
    return for_task(task, "checker").score(question, text).total


@pytest.mark.parametrize("task", TASK_KINDS)
def test_every_task_has_a_checker_with_the_same_six_parts(task):
    verifier = for_task(task, "checker")
    assert isinstance(verifier, Verifier)
    score = verifier.score(QUESTION, GOOD, 0.9)
    assert tuple(score.parts) == (PARTS if task not in FROM_MODELS else (*PARTS, CHECKABLE))
    assert math.fsum(verifier.weights.values()) == pytest.approx(1.0)
    assert all(weight >= 0 for weight in verifier.weights.values())
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in score.parts.values())
    whole = sum(verifier.weights[name] * value for name, value in score.parts.items())
    assert score.total == pytest.approx(whole)


@pytest.mark.parametrize("task", FROM_MODELS)
def test_it_says_when_a_text_has_nothing_to_check_and_that_moves_no_total(task):
    verifier = for_task(task, "checker")
    bare = "First, we need the total number of eggs. <answer>\\boxed{18}</answer>"
    assert [verifier.score(QUESTION, text).parts[CHECKABLE] for text in (GOOD, bare)] == [1.0, 0.0]
    assert verifier.weights[CHECKABLE] == 0.0


def test_the_tables_cover_every_task_and_name_only_features_there_are():
    assert {*CHECKER, *CHECKER_RULES} == set(PAPER)
    names = {name for group in FEATURES.values() for name in group}
    for weights in CHECKER.values():
        assert set(weights) <= names
        assert min(weights.values()) > 0
        assert sum(weights.values()) == pytest.approx(1, abs=0.011)  # rounded to per cents


@pytest.mark.parametrize(
    "worse",
    [
        GOOD.replace("16 - 7 = 9", "16 - 7 = 10"),  # a wrong equation
        GOOD.replace(r"\boxed{18}", r"\boxed{25}"),  # an answer from nowhere
        GOOD.replace(r"\boxed{18}", r"\boxed{-18}"),  # less than nothing
        GOOD.replace(r"\boxed{18}", r"\boxed{18"),  # an unclosed box
        GOOD.replace(r"\boxed{18}", r"\boxed{18} or \boxed{17}"),  # two answers
        GOOD.replace(r"\boxed{18}", ""),  # none
        r"She uses 3 + 4 = 7 eggs. \boxed{7}",  # numbers of the question left out
        r"\boxed{18}",
    ],
)
def test_what_is_worse_scores_lower(worse):
    assert total(worse) < total(GOOD)


@pytest.mark.parametrize("task", ["gsm8k", "arithmetic", "math500"])
@pytest.mark.parametrize("garbage", ["16 - slowStep = 9", "16 - bla = 9", "slowStep - 7 = 9"])
def test_a_word_in_place_of_a_number_counts_as_a_wrong_equation(task, garbage):
    worse = total(GOOD.replace("16 - 7 = 9", garbage), task)
    assert worse < total(GOOD, task) - 0.05


@pytest.mark.parametrize(
    "formula", ["16 - eggs = 9", "16 minus 7 = 9", "Total - 7 = 9 (Total is 16)"]
)
def test_named_quantities_are_not_garbage(formula):
    parsed = ParsedText(QUESTION, GOOD.replace("16 - 7 = 9", formula))
    assert parsed.derivation.wrong == 0


def test_an_answer_is_traced_back_to_the_numbers_of_the_question():
    known = ParsedText(QUESTION, GOOD).derivation
    assert known.question == (16, 3, 4, 2)
    assert known.source is not None
    assert known.source == {0, 1, 2, 3}


def test_a_last_step_left_out_is_found():
    text = r"One has 3 * 20 = 60 and the other 7 * 20 = 140. \boxed{80}"
    known = ParsedText("One has 3 packs, one 7, of 20 each. How many more?", text).derivation
    assert known.source is not None
    assert ParsedText("q", text.replace("80", "81")).derivation.source is None


def test_a_box_may_be_the_right_side_of_the_last_equation():
    known = ParsedText("q", r"it is 600 / 2 = \boxed{300}").derivation
    assert [step.right.value for step in known.equations] == [300]


def test_countdown_wants_each_number_exactly_once():
    question = "Numbers: [4, 5, 9]\nTarget: 9"
    scores = [
        total(text, "countdown", question)
        for text in (r"\boxed{9 * (5 - 4)}", r"\boxed{4 + 5}", r"\boxed{9 + 9}", "no idea")
    ]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


def test_sudoku_prefers_fewer_broken_units():
    question = "Sudoku: 1030341221034321"
    grids = ("1234341221434321", "1234341221034321", "1111341221434321", "1111111111111111")
    scores = [total(f"<answer>{grid}</answer>", "sudoku", question) for grid in grids]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4


@with_data
@pytest.mark.parametrize(("task", "floor"), [("gsm8k", 0.72), ("math500", 0.65)])
def test_checker_orders_pairs_of_questions_it_never_saw_better_than_the_papers(
    tmp_path, task, floor
):
    unseen = tmp_path / "unseen.jsonl"
    with FILE.open(encoding="utf-8") as lines:
        kept = [line for line in lines if not in_fit_half(json.loads(line)["question"])]
    unseen.write_text("".join(kept), encoding="utf-8")
    paper, checker = (
        score_file(unseen, task, verifier=name, grading="d1", draws=2).sections[0].components[0]
        for name in ("paper", "checker")
    )
    assert checker.pair_accuracy.value > max(floor, paper.pair_accuracy.value + 0.04)
    assert checker.auc.value > paper.auc.value + 0.03


def test_which_questions_were_in_the_fit():
    questions = [f"How many are {n} and {n}?" for n in range(200)]
    seen = [was_in_fit("gsm8k", "checker", question) for question in questions]
    assert 70 < sum(seen) < 130
    assert seen == [was_in_fit("gsm8k", "checker", f" {question}\n") for question in questions]
    assert not any(was_in_fit("gsm8k", "paper", question) for question in questions)
    assert not any(was_in_fit("countdown", "checker", question) for question in questions)
    assert seen == [was_in_fit("math500", "checker", question) for question in questions]


CHOICE = "Which sum is 23?\nA. 10 + 12\nB. 7 + 26\nC. 8 + 15\nD. 9 + 5"


def test_a_choice_is_better_when_its_reason_speaks_of_its_option_and_is_true():
    def score(text):
        return total(text, "choice", CHOICE)

    right = score("Because 8 + 15 = 23 and 8 + 15 is C. Therefore the answer is C.")
    other_letter = score("Because 8 + 15 = 23 and 8 + 15 is B. Therefore the answer is B.")
    false_sum = score("Because 7 + 26 = 23 and 7 + 26 is B. Therefore the answer is B.")
    no_reason = score("Because it is so, and that is all of it. Therefore the answer is C.")
    assert right > max(other_letter, false_sum, no_reason)
    assert right - other_letter > 0.1
    assert right - false_sum > 0.1


FEW_SHOT = """Janet uses 3 + 4 = <<3+4=7>>7 eggs.
She has 16 - 7 = <<16-7=9>>9 left and makes 9 * $2 = $<<9*2=18>>18.
"""


@pytest.mark.parametrize(
    "ending",
    [
        "#### 18",
        "#### 18You are an AI assistant. User will you give you a task with 5 steps.",
        "The answer is 18.",
        "The answer is: 18\n\nQuestion: Tom has 5 cats. How many?\nAnswer: 2 + 2 = 5. #### 99",
        r"<answer>\boxed{18}</answer><|endoftext|>",
    ],
)
def test_gsm8k_is_read_in_the_formats_of_the_field(ending: str) -> None:
    text = FEW_SHOT + ending
    free = FreeText(QUESTION, text)
    assert free.derivation.answer == 18
    assert (free.derivation.claims, free.derivation.wrong) == (3, 0)
    assert total(text) > 0.8
    assert total(text) == pytest.approx(total(FEW_SHOT + "#### 18"), abs=0.06)
    assert total(text.replace("9*2=18>>18", "9*2=18>>16")) < total(text)  # the mark is right
    assert total(text.replace("<<9*2=18>>", "<<9*2=16>>")) < total(text)  # the text is right


def test_a_box_left_open_is_an_answer_that_counts_less() -> None:
    left_open = total(FEW_SHOT + r"\boxed{18")
    assert total(FEW_SHOT + r"\boxed{8}") < left_open < total(FEW_SHOT + r"\boxed{18}")


def test_an_answer_that_names_several_values_states_none() -> None:
    assert FreeText(QUESTION, FEW_SHOT + "The answer is 18 or 20.").derivation.answer is None
    assert total(FEW_SHOT + "The answer is 18 or 20.") < total(FEW_SHOT + "The answer is 20.")


def test_without_any_delimiter_the_last_result_is_the_answer() -> None:
    free = FreeText(QUESTION, FEW_SHOT)
    assert (free.answer.content, free.answer.delimiter) == ("18", "")
    assert free.derivation.computed
    assert free.derivation.traced == 1
    assert total(FEW_SHOT[: FEW_SHOT.index("She has")]) < total(FEW_SHOT)


def test_second_thoughts_and_results_that_nobody_needs_count_against_a_text() -> None:
    twice = FEW_SHOT + "The answer is 18. The final answer is 20."
    assert FreeText(QUESTION, twice).answers == {18.0, 20.0}
    assert total(twice) < total(FEW_SHOT + "The answer is 18.")
    unused = FEW_SHOT.replace("She has", "There are 16 * 4 = 64 others. She has")
    assert total(unused + "#### 18") < total(FEW_SHOT + "#### 18")


SAMPLES = Path(os.environ.get("S3DLM_DATA", "")) / "dlm_samples_gsm8k.jsonl"


@pytest.mark.skipif(not SAMPLES.exists(), reason="S3DLM_DATA has no dlm_samples_gsm8k.jsonl")
def test_shipped_weights_are_the_fitted_ones_and_order_few_shot_outputs_they_never_saw() -> None:
    from benchmarks import free_text

    groups = free_text.read()
    fitted = free_text.fit([group for group in groups if in_fit_half(group.question)])
    shipped = [CHECKER["gsm8k"][name] for name in free_text.NAMES]
    assert fitted.tolist() == pytest.approx(shipped, abs=0.011)
    held = [(g, g.shipped) for g in groups if g.mixed and not in_fit_half(g.question)]
    few_shot = [pair for pair in held if "few-shot" in pair[0].model]
    assert free_text.pair_accuracy(few_shot) > 0.72
    assert free_text.pair_accuracy((g, g.paper) for g, _ in few_shot) < 0.72


def test_an_answer_is_computed_if_an_equation_gives_it() -> None:
    """Features without a weight today are those that a fit may choose tomorrow."""
    feature = {name: f for group in FEATURES.values() for name, f in group.items()}
    question = "Ann has 16 eggs and eats 7. How many are left?"
    for text, computed, just_named in (
        (r"16 - 7 = 9, so \boxed{9}", True, True),
        (r"She has 9 left: \boxed{9}", False, True),
        (r"9 are left, since 1, 2 and 3 are gone: \boxed{9}", False, False),
    ):
        parsed = ParsedText(question, text)
        assert feature["answer_computed"](parsed, parsed.derivation) == computed
        assert feature["answer_just_named"](parsed, parsed.derivation) == just_named
