"""The checker verifier: what is worse scores lower, and what looks wrong is doubted, where a search re-masks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3dlm.answers import TASK_KINDS
from s3dlm.verifier import PARTS, for_task
from s3dlm.verifier.base import CHECKABLE, doubts
from s3dlm.verifier.checker import FEATURES
from s3dlm.verifier.parsed import FreeText, ParsedText
from s3dlm.verifier.weights import CHECKER, PAPER, was_in_fit

QUESTION = (
    "Janet's ducks lay 16 eggs per day. She eats three for breakfast and bakes with four. "
    "She sells the rest for $2 each. How much does she make?"
)
GOOD = r"She uses 3 + 4 = 7 eggs. Then she has 16 - 7 = 9 left and makes 9 * 2 = 18 dollars. \boxed{18}"
FEW_SHOT = """Janet uses 3 + 4 = <<3+4=7>>7 eggs.
She has 16 - 7 = <<16-7=9>>9 left and makes 9 * $2 = $<<9*2=18>>18.
"""
GAME = "Numbers: 14, 3, 13. Target: 30."
CHOICE = "Which sum is 23?\nA. 10 + 12\nB. 7 + 26\nC. 8 + 15\nD. 9 + 5"


def total(text, task="gsm8k", question=QUESTION):
    return for_task(task, "checker").score(question, text).total


@pytest.mark.parametrize("task", TASK_KINDS)
def test_every_task_has_a_checker_with_the_same_six_parts(task):
    verifier = for_task(task, "checker")
    score = verifier.score(QUESTION, GOOD, 0.9)
    assert tuple(score.parts) == ((*PARTS, CHECKABLE) if CHECKER[task].from_models else PARTS)
    assert math.fsum(verifier.weights.values()) == pytest.approx(1.0)
    assert all(weight >= 0 for weight in verifier.weights.values())
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in score.parts.values())
    whole = sum(verifier.weights[name] * value for name, value in score.parts.items())
    assert score.total == pytest.approx(whole)


@pytest.mark.parametrize("task", ["gsm8k", "math500", "aime"])
def test_it_says_when_a_text_has_nothing_to_check_and_that_moves_no_total(task):
    verifier = for_task(task, "checker")
    bare = "First, we need the total number of eggs. <answer>\\boxed{18}</answer>"
    assert [verifier.score(QUESTION, text).parts[CHECKABLE] for text in (GOOD, bare)] == [1.0, 0.0]
    assert verifier.weights[CHECKABLE] == 0.0


def test_the_tables_cover_every_task_and_name_only_features_there_are():
    assert set(CHECKER) == set(PAPER)
    names = {name for group in FEATURES.values() for name in group}
    for weights in (row.features for row in CHECKER.values() if row.parts is None):
        assert set(weights) <= names
        assert min(weights.values()) > 0
        assert sum(weights.values()) == pytest.approx(1, abs=0.011)  # rounded to per cents


BOX = r"\boxed{18}"
FROM_BEST_TO_WORST = {
    "a wrong equation": ("gsm8k", QUESTION, GOOD, GOOD.replace("16 - 7 = 9", "16 - 7 = 10")),
    "an answer from nowhere": ("gsm8k", QUESTION, GOOD, GOOD.replace(BOX, r"\boxed{25}")),
    "less than nothing": ("gsm8k", QUESTION, GOOD, GOOD.replace(BOX, r"\boxed{-18}")),
    "an unclosed box": ("gsm8k", QUESTION, GOOD, GOOD.replace(BOX, r"\boxed{18")),
    "two answers": ("gsm8k", QUESTION, GOOD, GOOD.replace(BOX, rf"{BOX} or \boxed{{17}}")),
    "no answer": ("gsm8k", QUESTION, GOOD, GOOD.replace(BOX, "")),
    "numbers left out": ("gsm8k", QUESTION, GOOD, r"She uses 3 + 4 = 7 eggs. \boxed{7}"),
    "no reasoning": ("gsm8k", QUESTION, GOOD, BOX),
    "a box left open": (
        "gsm8k", QUESTION, FEW_SHOT + BOX, FEW_SHOT + r"\boxed{18", FEW_SHOT + r"\boxed{8}",
    ),
    "several values": ("gsm8k", QUESTION, FEW_SHOT + "The answer is 20.", FEW_SHOT + "The answer is 18 or 20."),
    "second thoughts": (
        "gsm8k", QUESTION, FEW_SHOT + "The answer is 18.",
        FEW_SHOT + "The answer is 18. The final answer is 20.",
    ),
    "a result that nobody needs": (
        "gsm8k", QUESTION, FEW_SHOT + "#### 18",
        FEW_SHOT.replace("She has", "There are 16 * 4 = 64 others. She has") + "#### 18",
    ),
    "ends early": ("gsm8k", QUESTION, FEW_SHOT, FEW_SHOT[: FEW_SHOT.index("She has")]),
    "not each number once": (
        "countdown", "Numbers: [4, 5, 9]\nTarget: 9",
        r"\boxed{9 * (5 - 4)}", r"\boxed{4 + 5}", r"\boxed{9 + 9}", "no idea",
    ),
    "more broken units": (
        "sudoku", "Sudoku: 1030341221034321",
        *(f"<answer>{grid}</answer>" for grid in (
            "1234341221434321", "1234341221034321", "1111341221434321", "1111111111111111")),
    ),
    "a reason for another option": (
        "choice", CHOICE, "Because 8 + 15 = 23 and 8 + 15 is C. Therefore the answer is C.",
        "Because 8 + 15 = 23 and 8 + 15 is B. Therefore the answer is B.",
    ),
    "a false reason": (
        "choice", CHOICE, "Because 8 + 15 = 23 and 8 + 15 is C. Therefore the answer is C.",
        "Because 7 + 26 = 23 and 7 + 26 is B. Therefore the answer is B.",
    ),
    "no reason": (
        "choice", CHOICE, "Because 8 + 15 = 23 and 8 + 15 is C. Therefore the answer is C.",
        "Because it is so, and that is all of it. Therefore the answer is C.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FROM_BEST_TO_WORST)
def test_what_is_worse_scores_lower(name):
    task, question, *texts = FROM_BEST_TO_WORST[name]
    scores = [total(text, task, question) for text in texts]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(texts)
    if name in ("a reason for another option", "a false reason"):
        assert scores[0] - scores[1] > 0.1


@pytest.mark.parametrize("task", ["gsm8k", "arithmetic", "math500"])
@pytest.mark.parametrize("garbage", ["16 - slowStep = 9", "16 - bla = 9", "slowStep - 7 = 9"])
def test_a_word_in_place_of_a_number_counts_as_a_wrong_equation(task, garbage):
    worse = total(GOOD.replace("16 - 7 = 9", garbage), task)
    assert worse < total(GOOD, task) - 0.05


@pytest.mark.parametrize(
    "named", ["16 - eggs = 9", "16 minus 7 = 9", "Total - 7 = 9 (Total is 16)"]
)
def test_named_quantities_are_not_garbage(named):
    assert ParsedText(QUESTION, GOOD.replace("16 - 7 = 9", named)).derivation.wrong == 0


def test_an_answer_is_traced_back_to_the_numbers_of_the_question():
    known = ParsedText(QUESTION, GOOD).derivation
    assert (known.question, known.source) == ((16, 3, 4, 2), {0, 1, 2, 3})
    left_out = r"One has 3 * 20 = 60 and the other 7 * 20 = 140. \boxed{80}"  # the last step
    question = "One has 3 packs, one 7, of 20 each. How many more?"
    assert ParsedText(question, left_out).derivation.source is not None
    assert ParsedText(question, left_out.replace("80", "81")).derivation.source is None
    boxed = ParsedText("q", r"it is 600 / 2 = \boxed{300}").derivation
    assert [step.right.value for step in boxed.equations] == [300]


def test_an_answer_is_computed_if_an_equation_gives_it():
    question = "Ann has 16 eggs and eats 7. How many are left?"
    for text, computed, just_named in (
        (r"16 - 7 = 9, so \boxed{9}", True, True),
        (r"She has 9 left: \boxed{9}", False, True),
        (r"9 are left, since 1, 2 and 3 are gone: \boxed{9}", False, False),
    ):
        parsed = ParsedText(question, text)
        features = FEATURES["reachability"]
        assert features["answer_computed"](parsed, parsed.derivation) == computed
        assert features["answer_just_named"](parsed, parsed.derivation) == just_named


def test_which_questions_were_in_the_fit():
    questions = [f"How many are {n} and {n}?" for n in range(200)]
    seen = [was_in_fit("gsm8k", "checker", question) for question in questions]
    assert 70 < sum(seen) < 130
    assert seen == [was_in_fit("gsm8k", "checker", f" {question}\n") for question in questions]
    assert seen == [was_in_fit("math500", "checker", question) for question in questions]
    assert not any(was_in_fit("gsm8k", "paper", question) for question in questions)
    assert not any(was_in_fit("countdown", "checker", question) for question in questions)


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
def test_gsm8k_is_read_in_the_formats_of_the_field(ending):
    text = FEW_SHOT + ending
    free = FreeText(QUESTION, text)
    assert free.derivation.answer == 18
    assert (free.derivation.claims, free.derivation.wrong) == (3, 0)
    assert total(text) > 0.8
    assert total(text) == pytest.approx(total(FEW_SHOT + "#### 18"), abs=0.06)
    assert total(text.replace("9*2=18>>18", "9*2=18>>16")) < total(text)  # the mark is right
    assert total(text.replace("<<9*2=18>>", "<<9*2=16>>")) < total(text)  # the text is right


def test_the_answer_of_a_free_text():
    free = FreeText(QUESTION, FEW_SHOT)  # without any delimiter the last result
    assert (free.answer.content, free.answer.delimiter) == ("18", "")
    assert free.derivation.computed
    assert free.derivation.traced == 1
    assert FreeText(QUESTION, FEW_SHOT + "The answer is 18 or 20.").derivation.answer is None
    twice = FreeText(QUESTION, FEW_SHOT + "The answer is 18. The final answer is 20.")
    assert twice.answers == {18.0, 20.0}
    assert FreeText(QUESTION, "The answer is 9 * 2 = 18.").answers == {18.0}


CHAIN = "Start with 8. Step 1: Divide by 2. Step 2: Add 13. Step 3: Multiply by 5."
BLANKS = "Solve the 4x4 sudoku 1000000000000000"
RIGHT_CHAIN = "Step 1: 8 / 2 = 4\nStep 2: 4 + 13 = 17\nStep 3: 17 * 5 = 85\nSo it is \\boxed{85}."
MISSED = "14 + 13 = 27. 27 - 3 = 24. <answer>14 + 13 - 3</answer>"


def weighed(task, prompt, text):
    return [*doubts(for_task(task, "checker").score(prompt, text).spans)]


def doubted(task, prompt, text):
    return [text[start:end] for start, end, weight in weighed(task, prompt, text) if weight > 0.5]


@pytest.mark.parametrize(
    ("task", "prompt", "text", "doubt"),
    [
        ("chain", CHAIN, RIGHT_CHAIN, []),
        ("countdown", GAME, "14 + 3 = 17. 17 + 13 = 30. <answer>14 + 3 + 13</answer>", []),
        ("sudoku", BLANKS, "<answer>1234341221434321</answer>", []),
        ("chain", CHAIN, "Step 1: 8 / 2 = 5", ["8 / 2 = 5"]),
        ("chain", CHAIN, "8 / 2 = 4\n6 + 13 = 19", ["6"]),  # from nowhere
        ("chain", CHAIN, "8 / 2 = 4\n4 + 13 = each7\n17 * 5 = 85", ["each7", "17"]),
        ("arithmetic", CHAIN, "8 / 2 = 4. Then 4 + Zoe = 17.", ["Zoe"]),
        ("countdown", GAME, "14 Divide by 3 = 17", ["Divide by"]),
        ("gsm8k", CHAIN, "8 times 2 = 16, and 8 divided by 2 = 4", []),
        ("gsm8k", CHAIN, "8 Times 2 = 16. 8 DIVIDED BY 2 = 4", []),
        ("gsm8k", "He walks 2 hours.", "2 * 60 = 120", []),  # not all work is shown
        ("chain", "Start with 2.", "2 * 60 = 120", ["60"]),
        ("math500", "Solve for x1 + x2", "x1 + 2 = 5, so x1 = 3. And x2 = 1.", []),
        ("countdown", GAME, MISSED, [MISSED]),  # as a whole
        ("countdown", GAME, "14 + 13 = 28. <answer>14 + 13 + 3</answer>", ["14 + 13 = 28"]),
        ("countdown", GAME, "", []),
        ("sudoku", BLANKS, "The grid: <answer>2134341221434321</answer>", ["2", "1", "2", "1"]),
        ("sudoku", BLANKS, "<answer>\n1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 2\n</answer>", ["2"] * 3),
        ("sudoku", BLANKS, "<answer>123434</answer>", ["123434"]),  # the wrong size
        ("sudoku", BLANKS, "no grid", []),
    ],
)
def test_what_looks_wrong_is_doubted(task, prompt, text, doubt):
    assert doubted(task, prompt, text) == doubt


def test_a_wrong_step_is_more_doubtful_than_what_follows_from_it():
    text = "8 / 2 = 5\n5 + 13 = 18\n18 * 5 = 90\n8 + 13 = 21"
    found = [(text[a:b], weight) for a, b, weight in weighed("chain", CHAIN, text)]
    assert found == [("8 / 2 = 5", 1.0), ("5 + 13 = 18", 0.3), ("18 * 5 = 90", 0.3)]
    text += "\n6 - 2 = 4"
    assert ("6", 0.6) in [(text[a:b], weight) for a, b, weight in weighed("chain", CHAIN, text)]


@pytest.mark.parametrize(
    ("grid", "wrong", "beside"),
    [
        # The last cell should be 1; beside it and its doubles: the rest of their rows, columns and boxes.
        ("1234341221434322", [7, 14, 15], [2, 3, 4, 5, 6, 10, 11, 12, 13]),
        (
            "1134341221434321",
            [1, 9],
            [2, 3, 4, 5, 8, 10, 11, 12, 13],
        ),  # a clue is right, its double not
    ],
)
def test_cells_that_stand_twice_and_those_beside_them(grid, wrong, beside):
    found = weighed("sudoku", BLANKS, f"<answer>{grid}</answer>")
    at = len("<answer>")
    assert [start - at for start, _, weight in found if weight == 0.9] == wrong
    assert [start - at for start, _, weight in found if weight == 0.5] == beside


@given(
    task=st.sampled_from(sorted(CHECKER)),
    text=st.text("0123456789+-*/= .\n<>answerZoe\\boxed{}", max_size=120),
)
def test_doubts_lie_in_the_text_and_in_order(task, text):
    for prompt in (CHAIN, GAME, BLANKS, ""):
        spans = list(for_task(task, "checker").score(prompt, text).spans)
        assert all(0 <= start < end <= len(text) for start, end, *_ in spans)
        assert spans == sorted(set(spans))
