"""Sudoku grids of 4×4 and 9×9: reading the puzzle from a question, and counting the rules kept.

A grid of n²×n² is a string of n⁴ digits, row by row, with `0` for an empty cell.
"""

from __future__ import annotations

import re
from functools import lru_cache

from s3dlm.errors import PromptError, short_repr

ORDERS = {n**4: n for n in (2, 3)}
CELL_MARKS = "123456789"
BLANKS = "0._"
RULING = " \t\r\n|+-=,"  # may stand anywhere between cells

_RUN = re.compile(r"[0-9.]{16,}")
_ROW = re.compile(r"^(?:[^\S\n]|\|)*+((?:[0-9.][\s|,]*){4,9})$", re.MULTILINE)


@lru_cache(maxsize=256)
def puzzle_in(question: str) -> str | None:
    """The puzzle a question gives, as one string with `0` for empty cells; the last one wins."""
    whole = [run for run in _RUN.findall(question) if len(run) in ORDERS]
    if whole:
        return str(whole[-1]).replace(".", "0")
    rows = "".join(re.sub(r"[^0-9.]", "", row) for row in _ROW.findall(question[:4000]))
    return rows.replace(".", "0") if len(rows) in ORDERS else None


def read_puzzle(text: str, order: int) -> str:
    """The n²×n² puzzle that a text is, or that stands in it, with `0` for empty cells; else an error
    that says what is wrong with it."""
    side, size = order**2, order**4
    remedy = (
        f"write {size} cells row by row, digits for clues and . or 0 for empty cells, in one line or "
        f"in {side}"
    )
    cells = "".join(mark for mark in text if mark not in RULING)
    stranger = next((mark for mark in cells if mark not in CELL_MARKS[:side] + BLANKS), None)
    if stranger is None:
        puzzle = re.sub("[._]", "0", cells)
    elif (puzzle := puzzle_in(text) or "") == "":
        raise PromptError(f"a Sudoku of {side}×{side} cannot contain {stranger!r}; {remedy}")
    if len(puzzle) != size:
        raise PromptError(f"{short_repr(text)} has {len(puzzle)} cells, not {size}; {remedy}")
    for index, unit in enumerate(units(order)):
        clues = [puzzle[cell] for cell in unit if puzzle[cell] != "0"]
        double = next((mark for mark in clues if clues.count(mark) > 1), None)
        if double is not None:
            name = ("row", "column", "box")[index // side]
            raise PromptError(
                f"the clues of the Sudoku contradict each other: {double} occurs twice in {name} "
                f"{index % side + 1}; correct the puzzle"
            )
    if "0" not in puzzle:
        raise PromptError(f"the Sudoku has no empty cell, so there is nothing to fill; {remedy}")
    return puzzle


@lru_cache(maxsize=8)
def units(order: int) -> tuple[tuple[int, ...], ...]:
    """The 3·n² rows, columns and boxes of an n²×n² grid, as cell indices."""
    side = order * order
    rows = [tuple(range(r * side, (r + 1) * side)) for r in range(side)]
    columns = [tuple(range(c, side * side, side)) for c in range(side)]
    boxes = [
        tuple((top + r) * side + left + c for r in range(order) for c in range(order))
        for top in range(0, side, order)
        for left in range(0, side, order)
    ]
    return tuple(rows + columns + boxes)


@lru_cache(maxsize=8)
def symbols(order: int) -> frozenset[str]:
    """The n² marks a filled grid is made of."""
    return frozenset(CELL_MARKS[: order * order])


def satisfied(cells: str) -> float:
    """The share of the 3·n² units that hold every symbol exactly once."""
    order = ORDERS[len(cells)]
    wanted = symbols(order)
    kept = sum({cells[i] for i in unit} == wanted for unit in units(order))
    return kept / (3 * order * order)


def free_of_doubles(cells: str) -> float:
    """The share of the 3·n² units that hold no symbol twice and nothing but symbols and blanks."""
    order = ORDERS[len(cells)]
    wanted = symbols(order)
    kept = 0
    for unit in units(order):
        filled = [cells[i] for i in unit if cells[i] != "0"]
        kept += bool(filled) and len(set(filled)) == len(filled) and wanted.issuperset(filled)
    return kept / (3 * order * order)


def broken(cells: str, puzzle: str | None) -> list[int]:
    """The cells that are no symbol, stand twice in a unit or contradict a clue; a cell that is a clue
    is right, and its double is not."""
    order = ORDERS[len(cells)]
    clues = puzzle or "0" * len(cells)
    doubled = set[int]()
    for unit in units(order):
        marks = [cells[cell] for cell in unit]
        doubled.update(cell for cell in unit if marks.count(cells[cell]) > 1)
    return [
        cell
        for cell, mark in enumerate(cells)
        if (clues[cell] not in ("0", mark))
        or (clues[cell] == "0" and (cell in doubled or mark not in symbols(order)))
    ]


@lru_cache(maxsize=8)
def _units_of(order: int) -> tuple[tuple[int, ...], ...]:
    """For every cell the numbers of its row, column and box."""
    return tuple(
        tuple(number for number, unit in enumerate(units(order)) if cell in unit)
        for cell in range(order**4)
    )


def conflicts(cells: str, puzzle: str | None) -> tuple[int, int]:
    """What is wrong with a grid of which only the cells that hold a mark are known: marks that are none
    or stand twice in a unit or contradict a clue; and unknown cells that no mark fits any more."""
    order = ORDERS[len(cells)]
    bits = {mark: 1 << place for place, mark in enumerate(sorted(symbols(order)))}
    used, unknown, wrong = [0] * (3 * order * order), [], 0
    for cell, own in enumerate(_units_of(order)):
        mark, clue = cells[cell], puzzle[cell] if puzzle else "0"
        wrong += mark.isalnum() and (mark not in bits or clue not in ("0", mark))
        bit = bits.get(mark, bits.get(clue, 0))
        if not bit:
            unknown.append(own)
        for unit in own:
            wrong += used[unit] & bit != 0
            used[unit] |= bit
    full = (1 << order * order) - 1
    return wrong, sum(used[a] | used[b] | used[c] == full for a, b, c in unknown)


def clues_kept(cells: str, puzzle: str) -> float:
    """The share of the puzzle's clues that stand in the grid; 1 when it has none."""
    clues = [(mark, cell) for mark, cell in zip(puzzle, cells, strict=True) if mark != "0"]
    return sum(mark == cell for mark, cell in clues) / len(clues) if clues else 1.0


def is_solution(cells: str, question: str) -> bool:
    """Whether a grid keeps every rule and every clue of the puzzle in a question."""
    puzzle = puzzle_in(question)
    if puzzle is None or len(puzzle) != len(cells):
        return False
    return satisfied(cells) == 1.0 and clues_kept(cells, puzzle) == 1.0
