"""Countdown with three numbers: reach a target with each number used exactly once.

Every target can be reached with the numbers in the order in which they stand. That is no rule: any
expression that is right counts. The worked solution is canonical (the first in a fixed order of
operations), so that a small model learns one way to reach a target instead of averaging over many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tools.tiny.problems.base import Problem

LARGEST_NUMBER = 15
LARGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Solution:
    """(a first b) second c."""

    a: int
    first: str
    b: int
    second: str
    c: int

    def values(self) -> tuple[int, int]:
        """The value of the pair, and of the whole."""
        pair = apply(self.first, self.a, self.b)
        assert pair is not None
        whole = apply(self.second, pair, self.c)
        assert whole is not None
        return pair, whole

    def text(self) -> str:
        """Both steps and the answer's expression."""
        pair, whole = self.values()
        return (
            f"First, {self.a} {self.first} {self.b} = {pair}. "
            f"Then {pair} {self.second} {self.c} = {whole}. "
            f"<answer> ( {self.a} {self.first} {self.b} ) {self.second} {self.c}</answer>"
        )


def apply(sign: str, a: int, b: int) -> int | None:
    """a sign b, or None where it is no whole number between 1 and LARGEST_VALUE."""
    if sign == "/":
        value = a // b if b and a % b == 0 else 0
    else:
        value = a + b if sign == "+" else a - b if sign == "-" else a * b
    return value if 1 <= value <= LARGEST_VALUE else None


def solutions(numbers: tuple[int, ...]) -> Iterator[tuple[int, Solution]]:
    """Every (target, solution) of three numbers in their given order: easy operations first."""
    a, b, c = numbers
    for first, second in _SIGNS:
        pair = apply(first, a, b)
        whole = None if pair is None else apply(second, pair, c)
        if whole is not None:
            yield whole, Solution(a, first, b, second, c)


# Sums before products before quotients: the order in which a person would try.
_SIGNS = sorted(
    ((first, second) for first in "+-*/" for second in "+-*/"),
    key=lambda pair: (sum("+-*/".index(sign) for sign in pair), pair),
)


@cache
def targets(numbers: tuple[int, ...]) -> tuple[tuple[Solution, ...], tuple[float, ...]]:
    """The canonical solution of every target that these numbers reach, and how often it is asked."""
    best: dict[int, Solution] = {}
    for target, solution in solutions(numbers):
        if target not in numbers:
            best.setdefault(target, solution)
    known = tuple(best.values())
    return known, tuple(_weight(solution) for solution in known)


def _weight(solution: Solution) -> float:
    """Mostly sums; quotients are rare and hard."""
    signs = {solution.first, solution.second}
    return 0.05 if "/" in signs else 1.0 if "*" in signs else 2.5


def generate(rng: random.Random) -> Problem:
    """One solvable problem for three random numbers."""
    numbers = [rng.randint(1, LARGEST_NUMBER) for _ in range(3)]
    solution = rng.choices(*targets(tuple(numbers)))[0]
    target = solution.values()[1]
    shown = ", ".join(map(str, numbers))
    key = f"{target}|{','.join(map(str, sorted(numbers)))}"
    return Problem(
        task="countdown",
        question=f"Target: {target} Numbers: {shown}",
        response=solution.text(),
        gold=f"{target}|{','.join(map(str, numbers))}",
        key=key,
    )
