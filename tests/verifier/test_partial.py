"""Partial texts: what is wrong already is seen, and what may still become right is left alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import pytest

from s3dlm.verifier import HOLE, for_task
from s3dlm.verifier.partial import steps_so_far
from tools.tiny.problems import arithmetic, chain, choice, countdown, sudoku
from tools.tiny.problems.base import Problem

MAKERS = {
    "arithmetic": arithmetic.generate,
    "chain": chain.generate,
    "choice": choice.generate,
    "countdown": countdown.generate,
    "sudoku": sudoku.generate,
}
LEVELS = ("checker", "checker_solver")
RULES = [*((task, LEVELS[0]) for task in MAKERS), ("sudoku", LEVELS[1])]


def pieces(text: str) -> list[str]:
    """Tokens as the bundled model has them: a digit each, and words with their space."""
    made: list[str] = []
    for letter in text:
        glued = made and letter not in " 0123456789\n" and made[-1][-1] not in "0123456789\n"
        if glued and (letter.isalpha() or made[-1] == "<" or letter in "</>{}\\"):
            made[-1] += letter
        else:
            made.append(letter)
    return made


def read(tokens: list[str], known: set[int]) -> str:
    return "".join(t if place in known else HOLE for place, t in enumerate(tokens))


@cache
def problems(task: str, count: int = 25) -> tuple[Problem, ...]:
    rng = random.Random(7)
    return tuple(MAKERS[task](rng) for _ in range(count))


def reveals(text: str, rng: random.Random) -> Iterator[str]:
    """A text that becomes known in random order, or mostly from left to right."""
    tokens = pieces(text)
    spread = rng.choice([0.0, 3.0, 1e6])
    order = sorted(range(len(tokens)), key=lambda place: place + rng.random() * spread)
    for count in range(len(tokens) + 1):
        yield read(tokens, set(order[:count]))


def spoilt(problem: Problem, rng: random.Random) -> str:
    """The answer with one or two digits or letters changed."""
    text = list(problem.response)
    places = [at for at, letter in enumerate(text) if letter.isdigit() or letter in "ABCD"]
    for at in rng.sample(places, min(2, len(places))):
        text[at] = rng.choice("123456789") if text[at].isdigit() else rng.choice("ABCDEF")
    return "".join(text)


@pytest.mark.parametrize(("task", "level"), RULES)
def test_nothing_is_wrong_with_a_part_of_a_right_answer_and_what_is_wrong_stays_wrong(
    task: str, level: str
) -> None:
    verifier, rng, seen = for_task(task, level), random.Random(2), 0
    for problem in problems(task):
        for text in reveals(problem.response, rng):
            score = verifier.score_partial(problem.question, text)
            assert score.total == 1.0, (problem.question, text, score)
        wrong = ""
        for text in reveals(spoilt(problem, rng), rng):
            total = verifier.score_partial(problem.question, text).total
            assert 0.0 <= total <= 1.0
            assert not wrong or total < 1.0, (problem.question, wrong, text)
            wrong = text if total < 1.0 else wrong
        seen += bool(wrong)
    assert seen > len(problems(task)) / 5  # not blind, either


DEAD = (
    "12" + HOLE * 8 + "3" + HOLE * 3 + "4" + HOLE
)  # no mark fits the third cell, and none is double
NINE = "5" + HOLE * 7 + "5" + HOLE * 72
SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


@pytest.mark.parametrize(
    ("grid", "puzzle", "checker", "solver"),
    [
        ("11" + HOLE * 14, "0" * 16, 1 / 3, 1 / 3),
        (DEAD, "0" * 16, 1.0, 0.5),
        ("1" + HOLE * 15, "0100000000000000", 1 / 3, 1 / 3),  # a clue counts before it is revealed
        ("1" + HOLE * 15, "2000000000000000", 0.5, 0.5),
        (NINE, "0" * 81, 0.5, 0.5),
        (SOLVED.replace("7", HOLE), SOLVED.replace("1", "0"), 1.0, 1.0),
        ("<answer>" + NINE, "0" * 81, 1.0, 1.0),  # its end is not known
        ("<answer>55" + HOLE * 79, "0" * 81, 1 / 3, 1 / 3),  # these cells are sure
        (NINE[:40], "0" * 81, 1.0, 1.0),  # tokens that are no cells
    ],
)
def test_the_two_levels_of_sudoku(grid: str, puzzle: str, checker: float, solver: float) -> None:
    task, question = "sudoku9" if len(puzzle) == 81 else "sudoku", f"Solve this Sudoku: {puzzle}"
    found = [for_task(task, level).score_partial(question, grid).total for level in LEVELS]
    assert found == [checker, solver]


@pytest.mark.parametrize(
    ("task", "question", "text", "right"),
    [
        ("arithmetic", "Leo has 21 cards and sells 4.", "First, 21 - 4 = 18. Then", False),
        ("arithmetic", "Leo has 21 cards and sells 4.", f"First, 21 - 4 = 1{HOLE}. Then", True),
        ("arithmetic", "Leo has 21 cards and sells 4.", f"First, 21 - 4 = 18{HOLE}", True),
        ("arithmetic", "Leo has 21 cards and sells 4.", f"First, {HOLE}1 - 4 = 18. Then", True),
        ("arithmetic", "Leo has 21 cards and sells 4.", f"5 {HOLE} 21 - 4 = 18. Then", True),
        ("arithmetic", "Leo has 21 cards and sells 4.", "First, 33 - 4 = 29. Then", False),
        ("arithmetic", "Leo has 21 cards and sells 4.", f"{HOLE} 3. 33 - 4 = 29. Then", True),
        ("arithmetic", "He has 21, sells 4.", "21 - 4 = 17. The answer is \\boxed{18}.", False),
        ("arithmetic", "He has 21, sells 4.", f"21 - 4 = 17. {HOLE} is \\boxed{{18}}.", True),
        ("chain", "Start with 5. Step 1: Add 3.", f"Step 1: 6 + {HOLE}", False),
        ("chain", "Start with 5. Step 1: Add 3.", f"Step 1: 5{HOLE} + {HOLE}", True),
        ("chain", "Start with 5.", f"Step 1: 5 {HOLE} 3 = 8\nStep 2: 9 + {HOLE}", False),
        ("chain", "Start with 5.", f"Step 1: 5 {HOLE} 3 = 8{HOLE}Step 2: 9 + {HOLE}", True),
        ("countdown", "Target: 25 Numbers: 11, 13, 1", f"<answer> ( 11 + 11{HOLE}", True),
        ("countdown", "Target: 25 Numbers: 11, 13, 1", f"<answer> ( 11 + 11 ){HOLE}", False),
        ("countdown", "Target: 25 Numbers: 11, 13, 1", "<answer>11 + 13 + 1 = 25</answer>", True),
        ("choice", "Which?\nA. x\nB. y", f"{HOLE} the answer is C.", False),
        ("choice", "Which?\nA. x\nB. y", f"{HOLE} the answer is C{HOLE}", True),
        ("choice", "Which is even?\nA. 60\nB. 97", f"{HOLE} and 60 is B. {HOLE}", False),
        ("choice", "Which is even?\nA. 60\nB. 97", f"{HOLE} and{HOLE}60 is B. {HOLE}", True),
    ],
)  # fmt: skip
def test_by_hand(task: str, question: str, text: str, right: bool) -> None:
    for level in LEVELS:
        score = for_task(task, level).score_partial(question, text)
        assert (score.total == 1.0) is right
        assert all(0.0 <= part <= 1.0 for part in score.parts.values())


def test_both_levels_judge_whole_texts_alike_and_the_paper_reads_no_part() -> None:
    for task in MAKERS:
        checker, solver = (for_task(task, level) for level in LEVELS)
        for problem in problems(task)[:5]:
            judged = [v.score(problem.question, problem.response, 0.9) for v in (checker, solver)]
            assert judged[0] == judged[1]
        assert checker.satisfied_at == solver.satisfied_at
        assert for_task(task, "paper").score_partial is None
    assert for_task("general", "checker").score_partial("x", "2 + 2 = 5.\n").total < 1


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 10, 12, 24, 30, 52, 60, 100, 365, 1000])
def test_counts_of_clocks_and_calendars_need_no_source(number: int) -> None:
    question = "Tom rests 5 of them a day. How many is that?"
    assert steps_so_far(question, f"5 * {number} = {5 * number}. So{HOLE}").total == 1.0
    assert steps_so_far(question, f"17 * {number} = {17 * number}. So{HOLE}").total < 1.0
