"""4×4 Sudoku as strings, with exactly one solution.

There are only 288 full grids, so uniqueness is a look-up: each clue keeps a set of grids (the bits
of an int), and a puzzle is sound when one grid is left.
"""

from __future__ import annotations

import random
from functools import lru_cache

from tools.tiny.problems.base import Problem

# Fewer clues are harder; 4 is the least that can pin a grid down.
CLUES = (4, 5, 6)
CLUE_WEIGHTS = (6, 3, 1)
LEAST_ROUNDS = 4  # of filling every cell with one candidate left: what is done sooner is too easy


def _peers(cell: int) -> list[int]:
    row, column = divmod(cell, 4)
    return [
        other
        for other in range(16)
        if other != cell
        and (
            other // 4 == row
            or other % 4 == column
            or (other // 8 == row // 2 and other % 4 // 2 == column // 2)
        )
    ]


_PEERS = [_peers(cell) for cell in range(16)]


@lru_cache(maxsize=1)
def grids() -> tuple[str, ...]:
    """All full grids, in order."""
    partial = [""]
    for cell in range(16):
        partial = [
            grid + digit
            for grid in partial
            for digit in "1234"
            if all(grid[peer] != digit for peer in _PEERS[cell] if peer < cell)
        ]
    return tuple(partial)


@lru_cache(maxsize=1)
def _holders() -> dict[tuple[int, str], int]:
    """For a cell and its digit, the set of grids that agree."""
    sets = {(cell, digit): 0 for cell in range(16) for digit in "1234"}
    for number, grid in enumerate(grids()):
        for cell, digit in enumerate(grid):
            sets[cell, digit] |= 1 << number
    return sets


def solved_by(puzzle: str) -> int:
    """How many grids fit the clues."""
    left = (1 << len(grids())) - 1
    for cell, digit in enumerate(puzzle):
        if digit != "0":
            left &= _holders()[cell, digit]
    return left.bit_count()


def _dig(solution: str, clues: int, rng: random.Random) -> str:
    """Empty cells in random order while the solution stays the only one."""
    cells = list(solution)
    for cell in rng.sample(range(16), 16):
        if 16 - cells.count("0") == clues:
            break
        kept, cells[cell] = cells[cell], "0"
        if solved_by("".join(cells)) != 1:
            cells[cell] = kept
    return "".join(cells)


def rounds(puzzle: str) -> int:
    """How often every cell with one candidate left must be filled until none is left to fill."""
    cells, count = list(puzzle), 0
    while True:
        left = {
            cell: set("1234") - {cells[peer] for peer in peers}
            for cell, peers in enumerate(_PEERS)
            if cells[cell] == "0"
        }
        settled = {cell: digits.pop() for cell, digits in left.items() if len(digits) == 1}
        if not settled:
            return count
        count += 1
        for cell, digit in settled.items():
            cells[cell] = digit


def _renamed(puzzle: str) -> str:
    """The puzzle with its digits named in order of appearance: renaming digits asks nothing new."""
    order = list(dict.fromkeys(puzzle.replace("0", "")))
    return "".join("0" if digit == "0" else str(order.index(digit) + 1) for digit in puzzle)


def generate(rng: random.Random) -> Problem:
    """One puzzle; where the wanted number of clues cannot be reached it keeps a few more."""
    while True:
        solution = rng.choice(grids())
        puzzle = _dig(solution, rng.choices(CLUES, CLUE_WEIGHTS)[0], rng)
        if rounds(puzzle) >= LEAST_ROUNDS:
            break
    return Problem(
        task="sudoku",
        question=f"Solve the 4x4 Sudoku: {puzzle}",
        response=f"<answer>{solution}</answer>",
        gold=solution,
        key=_renamed(puzzle),
    )
