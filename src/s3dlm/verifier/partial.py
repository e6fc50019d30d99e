"""What is wrong already in a text of which only a part is known: rules for each kind of task.

Every rule takes the question and a text with a `HOLE` for each token that is not known, and counts what
no later token can mend: 1 while there is nothing, 1/2 with one mistake, 1/3 with two. Text beside a hole
may be half a word or half a number, so nothing is concluded from it. `sudoku_with_solver` also takes a step of
a solver, beyond what is written: cells that no mark fits any more. Its gain is the solver's as much as the
model's, so that verifier has a name of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from s3dlm.answers import delimiters, grids
from s3dlm.answers.extraction import options_of
from s3dlm.verifier.base import HOLE, Score
from s3dlm.verifier.constraints import countdown_puzzle
from s3dlm.verifier.equations import Equation, equations_in
from s3dlm.verifier.parsed import COMMON, question_numbers, same

BINDS = "^"  # beside a number it leaves open what the number belongs to, as a hole does

_DIGITS = re.compile("[0-9]*")
_BETWEEN_CELLS = re.compile(r"[\s|,;_+-]+")
_NUMBER = re.compile(rf"(?<![{HOLE}0-9.])[0-9]{{1,12}}(?![{HOLE}0-9.])")
_STEP = re.compile(r"^Step ([0-9]{1,3}): (-?[0-9]{1,12}) [-+*/]", re.MULTILINE)
_RESULT = re.compile(r"^Step ([0-9]{1,3}):[^=\n]{1,80}= (-?[0-9]{1,12})\n", re.MULTILINE)
_START = re.compile(r"Start with (-?[0-9]{1,12})\.")
_BOXED = re.compile(r"boxed\{(-?[0-9]{1,12})\}")
_ANSWER_LETTER = re.compile(r"answer is \(?([A-H])(?=[).,;\s])")


def counted(**wrong: int) -> Score:
    """The score of so many mistakes of each kind."""
    parts = {name: 1 / (1 + number) for name, number in wrong.items()}
    return Score(1 / (1 + sum(wrong.values())), parts)


def sudoku_so_far(prompt: str, text: str, *, solver: bool = False) -> Score:
    """Marks that stand twice in a unit or contradict a clue; to a solver, cells that no mark fits any more."""
    puzzle = grids.puzzle_in(prompt)
    cells = _cells(text, None if puzzle is None else len(puzzle))
    doubles, dead = (0, 0) if cells is None else grids.conflicts(cells, puzzle)
    return counted(duplicates=doubles, **({"candidates": dead} if solver else {}))


sudoku_with_solver = partial(sudoku_so_far, solver=True)


def _cells(text: str, size: int | None) -> str | None:
    """The cells of a grid, each a mark or a hole; None if they cannot be told. A hole is one cell if
    there are as many of both as the grid has; else only the marks before the first hole are sure."""
    answer = _answer(text)
    content, whole = answer or (text, True)
    inside = _BETWEEN_CELLS.sub("", content[: delimiters.MAX_ANSWER])
    plain = all(mark.isalnum() or mark == HOLE for mark in inside)
    if plain and whole and len(inside) in ({size} if size else grids.ORDERS):
        return inside
    known = _DIGITS.match(inside)
    return known[0][:size].ljust(size, HOLE) if known and size and answer else None


def _answer(text: str) -> tuple[str, bool] | None:
    """What is known of a delimited answer, and whether its end is; None before it has begun."""
    start, opening = max((text.rfind(tag), tag) for tag in ("<answer>", "boxed{"))
    if start < 0:
        return None
    content, end, _ = text[start + len(opening) :].partition("</" if opening[0] == "<" else "}")
    return content, bool(end)


def equations_so_far(prompt: str, text: str) -> Score:
    """Equations that are known to their end and do not hold."""
    return counted(equations=sum(not equation.holds for equation in _known_equations(text)))


def _known_equations(text: str) -> list[Equation]:
    return equations_in(text.replace(HOLE, BINDS))


def steps_so_far(prompt: str, text: str) -> Score:
    """Also numbers from nowhere, results that are not carried on, and an answer that is not the last."""
    found = _known_equations(text)
    wrong, carried = sum(not equation.holds for equation in found), 0
    seen, known = set(question_numbers(prompt)) | COMMON, text.partition(HOLE)[0]
    for equation in found:
        if equation.left.start < len(known):
            carried += any(operand not in seen for operand in equation.left.operands)
        seen.add(equation.right.value)
    answer = _BOXED.search(text, found[-1].span[1]) if found else None
    if answer and HOLE not in text[found[-1].span[1] : answer.start()]:
        carried += not same(found[-1].right.value, float(answer[1]))
    if start := _START.search(prompt):
        results = {int(step): int(value) for step, value in _RESULT.findall(text)}
        results[0] = int(start[1])
        for step, operand in _STEP.findall(text):
            carried += results.get(int(step) - 1, int(operand)) != int(operand)
    return counted(equations=wrong, carried=carried)


def countdown_so_far(prompt: str, text: str) -> Score:
    """Wrong equations, and an answer with numbers that are not there or used up."""
    _, pool = countdown_puzzle(prompt)
    parts = {"equations": sum(not equation.holds for equation in _known_equations(text))}
    if pool is not None:
        answer, _ = _answer(text) or ("", False)
        used = Counter(map(float, _NUMBER.findall(answer.partition("=")[0])))
        parts["numbers"] = (used - pool).total()
    return counted(**parts)


def choice_so_far(prompt: str, text: str) -> Score:
    """An answer that is no option, and an option that is named with the letter of another."""
    texts = dict(options_of(prompt))
    if not texts:
        return counted(options=0)
    wrong = sum(letter not in texts for letter in _ANSWER_LETTER.findall(text))
    for letter, option in texts.items():
        _, *after = text[-delimiters.MAX_ANSWER :].split(f" {option} is ")
        for rest in after:
            named = rest[:1] in texts and rest[1:2] in tuple(".,;")
            wrong += named and texts[rest[0]] != option and rest[0] != letter
    return counted(options=wrong)
