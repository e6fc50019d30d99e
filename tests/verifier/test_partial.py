"""Partial texts: what is wrong already is seen, and what may still become right is left alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import pytest

from s3dlm.answers import grids
from s3dlm.verifier import HOLE, Verifier, for_task
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
def problems(task: str, count: int = 40) -> tuple[Problem, ...]:
    rng = random.Random(7)
    return tuple(MAKERS[task](rng) for _ in range(count))


def reveals(text: str, rng: random.Random) -> Iterator[str]:
    """A text that becomes known in random order, or mostly from left to right."""
    tokens = pieces(text)
    spread = rng.choice([0.0, 3.0, 1e6])
    order = sorted(range(len(tokens)), key=lambda place: place + rng.random() * spread)
    for count in range(len(tokens) + 1):
        yield read(tokens, set(order[:count]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("task", MAKERS)
def test_nothing_is_wrong_with_a_part_of_a_right_answer(task: str, level: str) -> None:
    verifier, rng = for_task(task, level), random.Random(1)
    assert verifier.score_partial is not None
    for problem in problems(task):
        for text in reveals(problem.response, rng):
            score = verifier.score_partial(problem.question, text)
            assert score.total == 1.0, (problem.question, text, score)


def spoilt(problem: Problem, rng: random.Random) -> str:
    """The answer with one or two digits or letters changed."""
    text = list(problem.response)
    places = [at for at, letter in enumerate(text) if letter.isdigit() or letter in "ABCD"]
    for at in rng.sample(places, min(2, len(places))):
        text[at] = rng.choice("123456789") if text[at].isdigit() else rng.choice("ABCDEF")
    return "".join(text)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("task", MAKERS)
def test_what_is_wrong_stays_wrong_whatever_is_revealed(task: str, level: str) -> None:
    verifier, rng, seen = for_task(task, level), random.Random(2), 0
    for problem in problems(task):
        wrong = ""
        for text in reveals(spoilt(problem, rng), rng):
            total = verifier.score_partial(problem.question, text).total
            assert 0.0 <= total <= 1.0
            assert not wrong or total < 1.0, (problem.question, wrong, text)
            wrong = text if total < 1.0 else wrong
        seen += bool(wrong)
    assert seen > len(problems(task)) / 5  # not blind, either


@pytest.mark.parametrize("size", [4, 9, 16])
def test_a_grid_of_any_box(size: int) -> None:
    order = {4: 2, 9: 3, 16: 4}[size]
    marks = "123456789ABCDEFG"[:size]
    solved = "".join(
        marks[(order * (row % order) + row // order + column) % size]
        for row in range(size)
        for column in range(size)
    )
    rng = random.Random(3)
    empty = "".join("0" if rng.random() < 0.7 else mark for mark in solved)
    for hidden in (0.2, 0.5, 0.9):
        part = "".join(HOLE if rng.random() < hidden else mark for mark in solved)
        assert grids.conflicts(part, empty) == (0, 0)
        assert grids.conflicts(part, None) == (0, 0)
    twice = solved[0] + solved[0] + HOLE * (size * size - 2)
    assert grids.conflicts(twice, None)[0] >= 1


def sudoku_score(level: str, grid: str, puzzle: str) -> float:
    verifier: Verifier = for_task("sudoku9" if len(puzzle) == 81 else "sudoku", level)
    return verifier.score_partial(f"Solve this Sudoku: {puzzle}", grid).total


def test_the_two_levels_of_sudoku() -> None:
    puzzle = "0" * 16
    doubled = "11" + HOLE * 14
    assert (
        sudoku_score("checker", doubled, puzzle)
        == sudoku_score("checker_solver", doubled, puzzle)
        < 1
    )
    # 1 2 in the row, 3 and 4 in the columns: the third cell has no candidate, and nothing is double.
    dead = "12" + HOLE * 8 + "3" + HOLE * 3 + "4" + HOLE
    assert sudoku_score("checker", dead, puzzle) == 1.0
    assert sudoku_score("checker_solver", dead, puzzle) < 1.0
    # A clue counts before it is revealed.
    assert sudoku_score("checker", "1" + HOLE * 15, "0100000000000000") < 1.0
    assert sudoku_score("checker", "1" + HOLE * 15, "2000000000000000") < 1.0
    nine = "5" + HOLE * 7 + "5" + HOLE * 72
    assert sudoku_score("checker", nine, "0" * 81) < 1.0
    assert sudoku_score("checker", "<answer>" + nine, "0" * 81) == 1.0  # its end is not known
    assert sudoku_score("checker", "<answer>55" + HOLE * 79, "0" * 81) < 1.0  # these cells are sure
    assert sudoku_score("checker", nine[:40], "0" * 81) == 1.0  # tokens that are no cells


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


HEAD = "def add(a, b):\n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (f"def add(a, b):\n    if a:\n        {HOLE}", True),
        (f"def add(a, b):\n    return (a +\n{HOLE}", True),
        (f'def add(a, b):\n    """Adds\n{HOLE}', True),
        (f"def add(a, b)\n    return{HOLE}", False),
        (f"def add(a, b):\n    x = = 1\n{HOLE}", False),
        (f"def add(a, b):\n    x = = {HOLE}", True),  # the line is not whole
        (f"    return a +* b\n{HOLE}", False),
        (f"    return a + b\n{HOLE}", True),
        (f"Here is the function:\n{HOLE}", True),  # no code yet
        (f"```python\ndef add(a, b):\n    return a + b\n```\nIt {HOLE}", True),
        (f"def add(a, b):\n{'(' * 5000}\n{HOLE}", False),
        ("def add(a, b):\n    return a + b\n", True),
    ],
)
def test_code_that_no_line_can_mend(text: str, right: bool) -> None:
    verifier = for_task("code")
    assert verifier.score_partial is not None
    assert (verifier.score_partial(HEAD, text).total == 1.0) is right
    if not right:  # and the whole text that it may become is judged alike
        assert verifier.score(HEAD, text.replace(HOLE, "a")).parts["parses"] < 1.0


def test_a_target_out_of_reach_is_a_solvers_step() -> None:
    question = "Target: 25 Numbers: 11, 13, 1"
    off = f"First, 11 - 1 = 10. Then {HOLE}"
    assert for_task("countdown", "checker").score_partial(question, off).total == 1.0
    assert for_task("countdown", "checker_solver").score_partial(question, off).total < 1.0


def test_both_levels_judge_whole_texts_alike_and_the_paper_reads_no_part() -> None:
    for task in MAKERS:
        checker, solver = (for_task(task, level) for level in LEVELS)
        for problem in problems(task)[:5]:
            judged = [v.score(problem.question, problem.response, 0.9) for v in (checker, solver)]
            assert judged[0] == judged[1]
        assert checker.satisfied_at == solver.satisfied_at
        assert for_task(task, "paper").score_partial is None
    assert for_task("general", "checker").score_partial("x", "2 + 2 = 5.\n").total < 1
