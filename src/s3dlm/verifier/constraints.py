"""What a task's own rules say about a text: Countdown, Sudoku and multiple choice.

The paper's rules, and the sharper ones of the `plus` verifier. Everything is read from the question
itself, never from a gold answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from s3dlm.answers import expressions, grids
from s3dlm.answers.extract import expression_in, extract, last_expression, options
from s3dlm.verifier.components import keyword_share
from s3dlm.verifier.reading import Reading

CHOICE_KEYWORDS = (
    "because", "therefore", "eliminat", "thus", "since", "hence", "correct", "reason", "implies",
    "however", "conclude",
)  # fmt: skip

_TARGET = re.compile(
    r"target(?:\s++number)?+\s*+(?:(?:is|of|=|:)\s*+)?+(-?[0-9]{1,15}(?:\.[0-9]{1,6})?)", re.I
)
_POOL = re.compile(
    r"numbers\s*+(?:(?:are|is|=|:)\s*+)?+(?:[\[(]\s*+)?+([0-9]{1,15}(?:(?:\s*+,\s*+|\s++)[0-9]{1,15})*)",
    re.I,
)
_LETTER = re.compile(r"(?<![A-Za-z0-9'’])[A-H](?![A-Za-z0-9'’])")


class Puzzle(NamedTuple):
    """What a Countdown question asks: None where it cannot be read."""

    target: float | None
    pool: Counter[float] | None


@lru_cache(maxsize=256)
def countdown_puzzle(prompt: str) -> Puzzle:
    """The target and the pool, whichever comes first; the last of each wins."""
    targets, pools = _TARGET.findall(prompt), _POOL.findall(prompt)
    pool = Counter(float(n) for n in re.findall("[0-9]+", pools[-1])) if pools else None
    return Puzzle(float(targets[-1]) if targets else None, pool)


def countdown(reading: Reading) -> float:
    """0.6 for the target (0.3 within 1, else 0.1) and 0.4 for the numbers (else 0.1).

    A text without any expression gets 0: there is nothing to match. The same when the question
    cannot be read; any expression gets 0.7 there.
    """
    parsed = countdown_expression(reading)
    value = parsed.value() if parsed else None
    if parsed is None or value is None:
        return 0.0
    target, pool = countdown_puzzle(reading.prompt)
    if target is None and pool is None:
        return 0.7
    return _target_match(value, target) + (0.4 if _drawn_from(pool, parsed.operands) else 0.1)


def countdown_expression(reading: Reading) -> expressions.Expression | None:
    """The delimited expression; a text that has not come to its answer yet may show one already."""
    answer = reading.answer
    written = expression_in(answer.content) if answer else last_expression(reading.text)
    return written[1] if written else None


def _target_match(value: float, target: float | None) -> float:
    if target is None or abs(value - target) > 1:
        return 0.1
    return 0.6 if abs(value - target) <= 1e-6 else 0.3


def _drawn_from(pool: Counter[float] | None, operands: list[float]) -> bool:
    """Whether the operands are a sub-multiset of the pool."""
    return pool is not None and Counter(operands) <= pool


def sudoku(reading: Reading) -> float:
    """0.75 for the share of rows, columns and boxes that are complete, 0.25 for the clues kept."""
    cells = extract("grid", reading.text)
    puzzle = grids.puzzle_in(reading.prompt)
    if cells is None:
        return 0.0
    if puzzle is not None:
        cells = cells[: len(puzzle)].ljust(len(puzzle), "0")
    elif len(cells) not in grids.ORDERS:
        return 0.0
    clues = grids.clues_kept(cells, puzzle) if puzzle is not None else 1.0
    return 0.75 * grids.satisfied(cells) + 0.25 * clues


def choice(reading: Reading) -> float:
    """A clear letter 0.3, reasoning words up to 0.3, that letter named most 0.2, not a stub 0.2."""
    letter = extract("choice", reading.text, reading.prompt)
    score = 0.3 * keyword_share(reading.lower, CHOICE_KEYWORDS)
    if letter is not None:
        counts = Counter(_LETTER.findall(reading.text))
        score += 0.3 + 0.2 * (counts[letter] >= max(counts.values(), default=0))
    return min(score + 0.2 * (len(reading.text) >= 30), 1.0)


def plus_countdown(reading: Reading) -> float:
    """As the paper's, but the numbers count in full only when each is used exactly once.

    What cannot be read from the question counts as missed; if nothing can be read, it is 0.7.
    """
    parsed = countdown_expression(reading)
    value = parsed.value() if parsed else None
    if parsed is None or value is None:
        return 0.0
    target, pool = countdown_puzzle(reading.prompt)
    if target is None and pool is None:
        return 0.7
    used = Counter(parsed.operands)
    numbers = 0.1
    if pool is not None:
        numbers = 0.4 if used == pool else 0.25 if used <= pool else 0.1
    if target is None:
        return numbers + 0.1
    distance = abs(value - target)
    return numbers + (0.6 if distance <= 1e-6 else 0.1 + 0.2 / (1 + distance))


def plus_sudoku(reading: Reading) -> float:
    """The paper's share of complete units, and a share for units that at least hold no digit twice."""
    cells, puzzle = extract("grid", reading.text), grids.puzzle_in(reading.prompt)
    if cells is None or (puzzle is None and len(cells) not in grids.ORDERS):
        return 0.0
    if puzzle is not None:
        whole = len(cells) == len(puzzle)
        cells = cells[: len(puzzle)].ljust(len(puzzle), "0")
        clues = grids.clues_kept(cells, puzzle)
    else:
        whole, clues = True, 1.0
    return (
        0.45 * grids.satisfied(cells)
        + 0.25 * grids.free_of_doubles(cells)
        + 0.25 * clues
        + 0.05 * whole
    )


def plus_choice(reading: Reading) -> float:
    """The paper's share, and more for a letter whose option the reasoning speaks of last."""
    paper = choice(reading)
    letter = extract("choice", reading.text, reading.prompt)
    last = {letter: reading.lower.rfind(text.lower()) for letter, text in options(reading.prompt)}
    spoken = max(last.values(), default=-1)
    if letter not in last or spoken < 0:
        return 0.5 * paper
    named = 1.0 if last[letter] == spoken else 0.4 if last[letter] >= 0 else 0.0
    return 0.5 * paper + 0.5 * named


def none(reading: Reading) -> float:
    """The tasks without rules of their own, whose weight for this is 0."""
    return 0.0


CONSTRAINTS: dict[str, Callable[[Reading], float]] = {
    "none": none,
    "countdown": countdown,
    "sudoku": sudoku,
    "choice": choice,
}

PLUS_CONSTRAINTS: dict[str, Callable[[Reading], float]] = {
    "none": none,
    "countdown": plus_countdown,
    "sudoku": plus_sudoku,
    "choice": plus_choice,
}
