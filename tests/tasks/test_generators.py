"""Generated problems are right, varied, and never in two splits: checked by independent code."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from fractions import Fraction
from itertools import islice, product

import pytest

from s3dlm.errors import SettingsError
from s3dlm.verifier import for_task
from tools.tiny.problems import GENERATORS, Problem, problems, split_of, stream
from tools.tiny.problems.choice import KINDS, OPPOSITES

COUNT = 400
EQUATION = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def value(text: str) -> Fraction:
    """An expression's exact value, by a walk over its syntax tree."""

    def walk(node: ast.expr) -> Fraction:
        if isinstance(node, ast.Constant):
            return Fraction(node.value)
        assert isinstance(node, ast.BinOp)
        left, right = walk(node.left), walk(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        return left * right if isinstance(node.op, ast.Mult) else left / right

    return walk(ast.parse(text, mode="eval").body)


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[Problem]]:
    return {task: problems(task, "train", COUNT, seed=3) for task in GENERATORS}


@pytest.mark.parametrize("task", GENERATORS)
def test_splits_are_disjoint_and_stable(task: str) -> None:
    kept = {split: problems(task, split, 150) for split in ("train", "validation", "test")}
    keys = {split: {p.key for p in found} for split, found in kept.items()}
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["validation"]
    assert not keys["validation"] & keys["test"]
    for split, found in kept.items():
        assert {split_of(f"{p.task}|{p.key}") for p in found} == {split}
        assert len({p.question for p in found}) == 150
    assert kept["test"] == problems(task, "test", 150)
    assert kept["test"][:20] == problems(task, "test", 20)
    assert kept["test"] != problems(task, "test", 150, seed=1)


def asked(problem: Problem) -> object:
    """What a problem asks, read from its text alone and independently of its key."""
    numbers = re.findall(r"\d+", problem.question)
    if problem.task in ("arithmetic", "chain"):
        steps = EQUATION.findall(problem.response)
        return tuple(
            (sign, *(sorted((a, b)) if sign in "+*" else (a, b))) for a, sign, b, _ in steps
        )
    if problem.task == "countdown":
        return numbers[0], tuple(sorted(numbers[1:]))
    if problem.task == "sudoku":
        names: dict[str, int] = {"0": 0}
        return tuple(names.setdefault(digit, len(names)) for digit in numbers[-1])
    words, *options = problem.question.split("\n")
    kind = words.removeprefix("Which ").split(maxsplit=2 if "of these" in words else 1)[-1]
    return kind, frozenset(option[3:] for option in options)


@pytest.mark.parametrize("task", GENERATORS)
def test_nothing_that_is_asked_in_training_is_asked_in_another_split(task: str) -> None:
    """By what is asked, not by its wording: most arithmetic questions share their equations."""
    trained = {asked(problem) for problem in islice(stream(task, "train", 7), 4_000)}
    for split in ("validation", "test"):
        held = {asked(problem) for problem in problems(task, split, 500)}
        assert not trained & held
    assert len(trained) > 1_000


@pytest.mark.parametrize("task", GENERATORS)
def test_what_is_asked_alone_decides_the_split(task: str) -> None:
    """Other names, wordings, orders of options or digits leave a problem in its split."""
    splits: dict[object, set[str]] = {}
    worded: dict[object, set[str]] = {}
    rng = random.Random(1)
    for _ in range(6_000):
        problem = GENERATORS[task](rng)
        splits.setdefault(asked(problem), set()).add(problem.split)
        worded.setdefault(asked(problem), set()).add(problem.question)
    assert all(len(found) == 1 for found in splits.values())
    assert sum(len(found) > 1 for found in worded.values()) > 2


def test_the_split_of_a_key_never_changes() -> None:
    """Published accuracies stand on this split: these keys were taken down when it was made."""
    keys = [f"key {number}" for number in range(400)]
    assert [key for key in keys if split_of(key) == "test"][:3] == TEST_KEYS


TEST_KEYS = ["key 5", "key 20", "key 21"]


def test_every_task_has_enough_test_problems() -> None:
    for task in GENERATORS:
        assert len(problems(task, "test", 500)) == 500


def test_unknown_names_and_exhausted_pools_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="task='soduku' is unknown"):
        problems("soduku", "test", 1)
    with pytest.raises(SettingsError, match="split='tests' is unknown"):
        problems("sudoku", "tests", 1)
    monkeypatch.setattr("tools.tiny.problems._PATIENCE", 20)
    with pytest.raises(SettingsError, match="ask for fewer"):
        problems("countdown", "test", 100_000)


def test_arithmetic_steps_hold_and_lead_to_the_gold(drawn: dict[str, list[Problem]]) -> None:
    for problem in drawn["arithmetic"]:
        equations = EQUATION.findall(problem.response)
        assert 2 <= len(equations) <= 4
        for a, sign, b, c in equations:
            assert value(f"{a} {sign} {b}") == int(c), problem
        assert equations[-1][3] == problem.gold
        assert problem.response.endswith(f"Therefore the answer is \\boxed{{{problem.gold}}}.")


def test_arithmetic_uses_every_number_of_the_story(drawn: dict[str, list[Problem]]) -> None:
    """Operands come from the story or from earlier results; nothing told is left out."""
    for problem in drawn["arithmetic"]:
        told = re.findall(r"\d+", problem.question) + ["2"] * problem.question.count("doubles")
        known = list(told)
        for a, _, b, c in EQUATION.findall(problem.response):
            assert a in known, problem
            assert b in known, problem
            known.append(c)
        used = [n for a, _, b, _ in EQUATION.findall(problem.response) for n in (a, b)]
        assert set(told) <= set(used), problem


def test_arithmetic_is_varied(drawn: dict[str, list[Problem]]) -> None:
    shapes = {re.sub(r"\d+", "#", problem.question) for problem in drawn["arithmetic"]}
    assert len(shapes) > COUNT * 0.9
    starts = {re.sub(r"\d+", "#", p.response).split(" #")[0] for p in drawn["arithmetic"]}
    assert starts == {"Step", "First,"}
    assert sum(": compute" in problem.response for problem in drawn["arithmetic"]) > 20
    assert {len(EQUATION.findall(p.response)) for p in drawn["arithmetic"]} == {2, 3, 4}


def test_chain_works_out_what_the_question_says(drawn: dict[str, list[Problem]]) -> None:
    signs = {"Add": "+", "Subtract": "-", "Multiply by": "*", "Divide by": "/"}
    for problem in drawn["chain"]:
        start, *orders = problem.question.removesuffix(".").split(". ")
        value_now = Fraction(start.removeprefix("Start with "))
        lines = problem.response.split("\n")
        assert problem.group == f"n={len(orders)}"
        assert 2 <= len(orders) <= 10
        assert len(lines) == len(orders) + 1
        for order, line in zip(orders, lines[:-1], strict=True):
            step, _, told = order.partition(": ")
            word, number = told.rsplit(" ", 1)
            assert line.startswith(f"{step}: {value_now} {signs[word]} {number} = ")
            value_now = value(line.removeprefix(f"{step}: ").split(" = ")[0])
            assert line.endswith(f" = {value_now}")
            assert 1 <= value_now <= 99
        assert lines[-1] == f"Therefore the answer is \\boxed{{{problem.gold}}}."
        assert problem.gold == str(value_now)


def test_chain_has_all_lengths_equally_often(drawn: dict[str, list[Problem]]) -> None:
    lengths = Counter(problem.group for problem in drawn["chain"])
    assert set(lengths) == {f"n={n}" for n in range(2, 11)}
    assert min(lengths.values()) > COUNT / 9 / 2


def test_countdown_hits_the_target_with_each_number_once(drawn: dict[str, list[Problem]]) -> None:
    for problem in drawn["countdown"]:
        asked = re.fullmatch(r"Target: (\d+) Numbers: (\d+), (\d+), (\d+)", problem.question)
        assert asked is not None
        target, *numbers = asked.groups()
        assert problem.gold == f"{target}|{','.join(numbers)}"
        expression = re.search(r"<answer> (.*)</answer>$", problem.response)
        assert expression is not None
        assert value(expression.group(1)) == int(target)
        assert sorted(re.findall(r"\d+", expression.group(1))) == sorted(numbers)
        equations = EQUATION.findall(problem.response)
        assert len(equations) == 2
        for a, sign, b, c in equations:
            assert value(f"{a} {sign} {b}") == int(c), problem
        assert equations[-1][3] == target


def test_countdown_split_does_not_see_the_order_of_numbers() -> None:
    held = {problem.key for problem in problems("countdown", "test", 300)}
    seen = {problem.key for problem in problems("countdown", "train", 2000)}
    for key in held | seen:
        numbers = [int(number) for number in key.split("|")[1].split(",")]
        assert numbers == sorted(numbers)
    assert not held & seen


def test_sudoku_has_exactly_one_solution(drawn: dict[str, list[Problem]]) -> None:
    units = [
        *([4 * i + j for j in range(4)] for i in range(4)),
        *([4 * j + i for j in range(4)] for i in range(4)),
        *([8 * i + 2 * j + k for k in (0, 1, 4, 5)] for i in range(2) for j in range(2)),
    ]

    def solve(cells: list[str]) -> list[str]:
        if "0" not in cells:
            return ["".join(cells)]
        cell = cells.index("0")
        found = []
        for digit in "1234":
            if all(cell not in unit or digit not in (cells[i] for i in unit) for unit in units):
                found += solve([*cells[:cell], digit, *cells[cell + 1 :]])
        return found

    for problem in drawn["sudoku"][:60]:
        puzzle = problem.question.removeprefix("Solve the 4x4 Sudoku: ")
        assert solve(list(puzzle)) == [problem.gold]
        assert problem.response == f"<answer>{problem.gold}</answer>"
        assert puzzle.count("0") >= 6


def judge(asked: str, option: str) -> bool | Fraction:
    """Whether an option fits the question (or how well, where the best one is asked for)."""
    if "largest" in asked or "smallest" in asked:
        return Fraction(option) * (1 if "largest" in asked else -1)
    if "longest" in asked or "shortest" in asked:
        return Fraction(len(option)) * (1 if "longest" in asked else -1)
    if "even" in asked or "odd" in asked:
        return int(option) % 2 == ("odd" in asked)
    if found := re.search(r"multiple of (\d+)", asked):
        return int(option) % int(found.group(1)) == 0
    if found := re.search(r"sum is (\d+)", asked):
        return value(option) == int(found.group(1))
    if found := re.search(r"starts with (\w)", asked):
        return option.startswith(found.group(1))
    if found := re.search(r"opposite of (\w+)", asked):
        return {option, found.group(1)} in [set(pair) for pair in OPPOSITES]
    return next(option in words for kind, words in KINDS.items() if kind in asked)


def test_choice_has_one_right_letter(drawn: dict[str, list[Problem]]) -> None:
    for problem in drawn["choice"]:
        asked, *lines = problem.question.split("\n")
        options = dict(line.split(". ") for line in lines)
        assert list(options) == list("ABCD")
        assert len(set(options.values())) == 4
        marks = {letter: judge(asked, option) for letter, option in options.items()}
        best = [letter for letter, mark in marks.items() if mark == max(marks.values())]
        assert best == [problem.gold], problem
        assert problem.response.endswith(f"Therefore the answer is {problem.gold}.")


def test_choice_is_balanced_and_varied(drawn: dict[str, list[Problem]]) -> None:
    letters = [problem.gold for problem in drawn["choice"]]
    assert all(letters.count(letter) > COUNT / 8 for letter in "ABCD")
    assert len({problem.question.split("\n")[0] for problem in drawn["choice"]}) > 60


def test_kinds_of_words_do_not_overlap() -> None:
    for one, other in product(KINDS, KINDS):
        assert one == other or not set(KINDS[one]) & set(KINDS[other])


@pytest.mark.parametrize("name", ["paper", "plus"])
def test_the_verifier_of_chain_doubts_a_wrong_line(
    drawn: dict[str, list[Problem]], name: str
) -> None:
    verifier = for_task("chain", name)
    for problem in drawn["chain"][:50]:
        head, _, result = problem.response.split("\n")[1].rpartition(" ")
        wrong = problem.response.replace(f"{head} {result}\n", f"{head} {int(result) + 1}\n")
        scores = [verifier.score(problem.question, t).total for t in (problem.response, wrong)]
        assert scores[0] > scores[1]
