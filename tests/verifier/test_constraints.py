import pytest

from s3dlm.verifier import for_task
from s3dlm.verifier.constraints import countdown_puzzle

SOLVED_4 = "1234341221434321"
PUZZLE_4 = "1030341221034321"
SOLVED_9 = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def constraint(task, prompt, text):
    return for_task(task).score(prompt, text).parts["constraint"]


@pytest.mark.parametrize(
    "prompt",
    [
        "Target: 51 Numbers: 49, 55, 53",
        "Numbers: [49, 55, 53]\nTarget: 51",
        "Use only the provided numbers to reach the target.\n\nNumbers: [49, 55, 53]\nTarget: 51",
        "Using the numbers 49, 55, 53, make the target number 51.",
    ],
)
def test_countdown_reads_target_and_pool_from_the_question(prompt):
    target, pool = countdown_puzzle(prompt)
    assert target == 51
    assert pool is not None
    assert sorted(pool.elements()) == [49, 53, 55]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"\boxed{49 + 55 - 53}", 1.0),
        (r"\boxed{49 + 55 - 53 = 51}", 1.0),
        (r"\boxed{51 = 49 + 55 - 53}", 1.0),
        ("<answer>49 + 55 - 53</answer>", 1.0),
        (r"\boxed{(49 + 55) - 53}", 1.0),
        (r"\boxed{49 + 55 - 54}", 0.3 + 0.1),
        (r"\boxed{51 + 0}", 0.6 + 0.1),
        (r"\boxed{53 - 49}", 0.1 + 0.4),
        (r"\boxed{49 + 49 - 47}", 0.6 + 0.1),
        (r"\boxed{49 \times 55}", 0.1 + 0.4),
        (r"\boxed{55 / 0}", 0.0),
        (r"\boxed{none}", 0.0),
        ("I do not know", 0.0),
    ],
)
def test_countdown(text, value):
    assert constraint("countdown", "Numbers: [49, 55, 53]\nTarget: 51", text) == pytest.approx(
        value
    )


def test_countdown_of_a_question_that_cannot_be_read():
    assert constraint("countdown", "Play!", r"\boxed{1 + 2}") == 0.7
    assert constraint("countdown", "Play!", "no sum") == 0.0


@pytest.mark.parametrize(
    ("prompt", "better", "worse"),
    [
        ("Reach the target 51 with them.", r"\boxed{49 + 2}", r"\boxed{49 + 3}"),
        ("Numbers: [49, 55, 53]", r"\boxed{49 + 55 - 53}", r"\boxed{1 + 2}"),
    ],
)
def test_checker_countdown_uses_the_half_of_a_question_that_can_be_read(prompt, better, worse):
    def score(text):
        return for_task("countdown", "checker").score(prompt, text).parts["constraint"]

    assert 0 < score(worse) < score(better) < 1


def test_countdown_uses_a_number_no_more_often_than_the_pool_has_it():
    prompt = "Numbers: [24, 24, 34]\nTarget: 34"
    assert constraint("countdown", prompt, r"\boxed{34 - 24 + 24}") == pytest.approx(1.0)
    assert constraint("countdown", prompt, r"\boxed{34 + 34 - 34}") == pytest.approx(0.7)


@pytest.mark.parametrize(
    "question", ["Solve the following Sudoku puzzle: {}\n", "Solve the 4x4 Sudoku: {}"]
)
def test_sudoku_counts_twelve_units_of_a_4x4_grid_and_the_clues(question):
    prompt = question.format(PUZZLE_4)
    assert constraint("sudoku", prompt, f"<answer>\n{SOLVED_4}\n</answer>") == pytest.approx(1.0)
    swapped = SOLVED_4[1] + SOLVED_4[0] + SOLVED_4[2:]  # breaks two columns and one clue, no box
    expected = 0.75 * 10 / 12 + 0.25 * 12 / 13
    assert sum(c != "0" for c in PUZZLE_4) == 13
    assert constraint("sudoku", prompt, f"<answer>{swapped}</answer>") == pytest.approx(expected)


def test_sudoku_pads_and_cuts_to_the_size_of_the_puzzle():
    prompt = f"Sudoku: {PUZZLE_4}"
    short = constraint("sudoku", prompt, f"<answer>{SOLVED_4[:8]}</answer>")
    assert 0 < short < 1
    assert constraint("sudoku", prompt, f"<answer>{SOLVED_4}99</answer>") == pytest.approx(1.0)
    assert constraint("sudoku", prompt, "no grid") == 0.0


def test_choice_adds_its_four_parts():
    full = "Because of A, and since B holds, therefore the answer is B. B it is."
    assert constraint("arc", "", full) == pytest.approx(1.0)
    assert constraint("arc", "", r"\boxed{B}") == pytest.approx(0.3 + 0.2)
    assert constraint("arc", "", "I have nothing at all to say about it") == pytest.approx(0.2)
    outvoted = "A and A and A could all be it, yet the answer is B"
    assert constraint("arc", "", outvoted) == pytest.approx(0.3 + 0.2)


def test_tasks_without_rules_have_a_constraint_of_zero():
    assert constraint("gsm8k", "", r"\boxed{3}") == 0.0
