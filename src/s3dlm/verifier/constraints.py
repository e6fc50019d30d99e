"""What a task's own rules say about a text: Countdown, Sudoku and multiple choice.

The paper's rules, and the sharper ones of the `checker` verifier. Everything is read from the question
itself, never from a gold answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial

from s3dlm.answers import grids
from s3dlm.answers.extraction import expression_in, last_expression, options_of
from s3dlm.answers.kinds import extract
from s3dlm.verifier.components import keyword_share
from s3dlm.verifier.parsed import ParsedText

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


@lru_cache(maxsize=256)
def countdown_puzzle(prompt: str) -> tuple[float | None, Counter[float] | None]:
    """The target and the pool of numbers, None where the question cannot be read; the last ones win."""
    targets, pools = _TARGET.findall(prompt), _POOL.findall(prompt)
    pool = Counter(float(n) for n in re.findall("[0-9]+", pools[-1])) if pools else None
    return float(targets[-1]) if targets else None, pool


def countdown(parsed: ParsedText, *, sharp: bool = False) -> float:
    """0.6 for the target (0.3 within 1, else 0.1) and 0.4 for the numbers (else 0.1).

    A text without any expression gets 0: there is nothing to match. If nothing can be read from the
    question, any expression gets 0.7; what cannot be read of it counts as missed. The sharp rule of
    `checker` tells more distances apart, and numbers count in full only when each is used exactly once.
    """
    # A text that has not come to its answer yet may show an expression already.
    answer = parsed.answer
    written = expression_in(answer.content) if answer else last_expression(parsed.text)
    value = written[1].value() if written else None
    if written is None or value is None:
        return 0.0
    target, pool = countdown_puzzle(parsed.prompt)
    if target is None and pool is None:
        return 0.7
    used, numbers = Counter(written[1].operands), 0.1
    if pool is not None and used <= pool:
        numbers = 0.25 if sharp and used != pool else 0.4
    distance = math.inf if target is None else abs(value - target)
    if distance <= 1e-6:
        return numbers + 0.6
    if sharp:
        return numbers + (0.1 + 0.2 / (1 + distance))
    return numbers + (0.1 if distance > 1 else 0.3)


checker_countdown = partial(countdown, sharp=True)


def sudoku(parsed: ParsedText) -> float:
    """0.75 for the share of rows, columns and boxes that are complete, 0.25 for the clues kept."""
    grid = _grid(parsed)
    return 0.75 * grids.satisfied(grid[0]) + 0.25 * grid[1] if grid else 0.0


def checker_sudoku(parsed: ParsedText) -> float:
    """The paper's share of complete units, and a share for units that at least hold no digit twice."""
    grid = _grid(parsed)
    if grid is None:
        return 0.0
    cells, clues, whole = grid
    complete, free_of_doubles = grids.satisfied(cells), grids.free_of_doubles(cells)
    return 0.45 * complete + 0.25 * free_of_doubles + 0.25 * clues + 0.05 * whole


def _grid(parsed: ParsedText) -> tuple[str, float, bool] | None:
    """The cells at the puzzle's size, the share of clues kept, and whether the size was right."""
    cells, puzzle = extract("grid", parsed.text), grids.puzzle_in(parsed.prompt)
    if cells is None or (puzzle is None and len(cells) not in grids.ORDERS):
        return None
    if puzzle is None:
        return cells, 1.0, True
    sized = cells[: len(puzzle)].ljust(len(puzzle), "0")
    return sized, grids.clues_kept(sized, puzzle), len(cells) == len(puzzle)


def choice(parsed: ParsedText) -> float:
    """A clear letter 0.3, reasoning words up to 0.3, that letter named most 0.2, not a stub 0.2."""
    letter = extract("choice", parsed.text, parsed.prompt)
    score = 0.3 * keyword_share(parsed.lower, CHOICE_KEYWORDS)
    if letter is not None:
        counts = Counter(_LETTER.findall(parsed.text))
        score += 0.3 + 0.2 * (counts[letter] >= max(counts.values(), default=0))
    return min(score + 0.2 * (len(parsed.text) >= 30), 1.0)


def checker_choice(parsed: ParsedText) -> float:
    """The paper's share, and more for a letter whose option the reasoning speaks of last."""
    letter = extract("choice", parsed.text, parsed.prompt)
    last = {name: parsed.lower.rfind(text.lower()) for name, text in options_of(parsed.prompt)}
    spoken = max(last.values(), default=-1)
    if letter not in last or spoken < 0:
        return 0.5 * choice(parsed)
    named = 1.0 if last[letter] == spoken else 0.4 if last[letter] >= 0 else 0.0
    return 0.5 * choice(parsed) + 0.5 * named


def nothing(parsed: ParsedText) -> float:
    """For tasks without rules of their own, whose weight for this is 0."""
    return 0.0


CONSTRAINTS: dict[str, Callable[[ParsedText], float]] = {
    "none": nothing, "countdown": countdown, "sudoku": sudoku, "choice": choice,
}  # fmt: skip
