"""9×9 Sudoku grids: random full ones, puzzles dug from them, and how many solutions a puzzle has.

A grid's split is read off its hash, after its digits are named in order of appearance: whatever is
dug from a test grid, and however its digits are named, training never sees that grid.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tools.tiny.problems.base import split_of

ALL = 0b111_111_111
BOX = [cell // 27 * 3 + cell % 9 // 3 for cell in range(81)]
PLACE = [(cell // 9, 9 + cell % 9, 18 + BOX[cell]) for cell in range(81)]


def solutions(puzzle: str, rng: random.Random | None = None) -> Iterator[str]:
    """Every grid that keeps rules and clues, in an order that `rng` mixes."""
    free, cells, empty = [ALL] * 27, list(puzzle), []
    for cell, mark in enumerate(puzzle):
        if mark == "0":
            empty.append(cell)
            continue
        bit = 1 << int(mark) - 1
        if not all(free[unit] & bit for unit in PLACE[cell]):
            return
        for unit in PLACE[cell]:
            free[unit] &= ~bit
    yield from _fill(free, cells, empty, rng)


def _fill(
    free: list[int], cells: list[str], empty: list[int], rng: random.Random | None
) -> Iterator[str]:
    """Fill the cell with the fewest candidates, then all others."""
    if not empty:
        yield "".join(cells)
        return
    fewest, at, left = 10, 0, 0
    for index, cell in enumerate(empty):
        row, column, box = PLACE[cell]
        candidates = free[row] & free[column] & free[box]
        count = candidates.bit_count()
        if count < fewest:
            fewest, at, left = count, index, candidates
            if count < 2:
                break
    if not fewest:
        return
    cell = empty[at]
    empty[at] = empty[-1]
    empty.pop()
    row, column, box = PLACE[cell]
    digits = [digit for digit in range(9) if left >> digit & 1]
    if rng is not None and len(digits) > 1:
        rng.shuffle(digits)
    for digit in digits:
        bit = 1 << digit
        free[row] ^= bit
        free[column] ^= bit
        free[box] ^= bit
        cells[cell] = str(digit + 1)
        yield from _fill(free, cells, empty, rng)
        free[row] ^= bit
        free[column] ^= bit
        free[box] ^= bit
    cells[cell] = "0"
    empty.append(cell)
    empty[at], empty[-1] = empty[-1], empty[at]


def renamed(grid: str) -> str:
    """The grid with its digits named in order of appearance: its first row is 123456789."""
    return grid.translate(str.maketrans(grid[:9], "123456789"))


def grids(split: str, seed: int | str) -> Iterator[str]:
    """Random full grids of a split, without end; the same seed gives the same ones."""
    rng = random.Random(f"sudoku9|{split}|{seed}")
    while True:
        grid = next(solutions("0" * 81, rng))
        if split_of(f"sudoku9|{renamed(grid)}") == split:
            yield grid


def opened(grid: str, blanks: int, rng: random.Random) -> str:
    """The grid with cells emptied at random; it may then have many solutions."""
    gone = set(rng.sample(range(81), blanks))
    return "".join("0" if cell in gone else mark for cell, mark in enumerate(grid))


def dug(grid: str, blanks: int, rng: random.Random) -> str | None:
    """The grid with cells emptied in random order while its solution stays the only one; None if
    that ends too early."""
    puzzle = grid
    for cell in rng.sample(range(81), 81):
        if puzzle.count("0") == blanks:
            return puzzle
        less = puzzle[:cell] + "0" + puzzle[cell + 1 :]
        if is_unique(less):
            puzzle = less
    return puzzle if puzzle.count("0") == blanks else None


def is_unique(puzzle: str) -> bool:
    found = solutions(puzzle)
    return next(found, None) is not None and next(found, None) is None
