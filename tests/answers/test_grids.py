"""Sudoku grids: what is wrong with one, cell by cell, against the rules written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from s3dlm.answers.grids import (
    broken,
    clues_kept,
    conflicts,
    free_of_doubles,
    is_solution,
    puzzle_in,
    read_puzzle,
    satisfied,
    symbols,
    units,
)
from s3dlm.errors import PromptError

SOLVED = "1234341221434321"
PUZZLE = "1000000000000021"


def changed(cell: int, mark: str, cells: str = SOLVED) -> str:
    return cells[:cell] + mark + cells[cell + 1 :]


def together(cell: int) -> set[int]:
    """The other cells of a row, a column or a box, of a 4×4 grid."""
    row, column = divmod(cell, 4)
    return {
        4 * r + c
        for r, c in itertools.product(range(4), repeat=2)
        if (r == row or c == column or (r // 2, c // 2) == (row // 2, column // 2))
    } - {cell}


def test_a_puzzle_is_read_as_people_write_it() -> None:
    for text in (
        PUZZLE,
        "1... .... .... ..21",
        "1___\n____\n____\n__21",
        f"Solve {PUZZLE}, please.",
    ):
        assert read_puzzle(text, 2) == PUZZLE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 5 0 0 / 0 0 0 0", "cannot contain '5'; write 16 cells"),
        ("100000000000002", "has 15 cells, not 16"),
        ("1100000000000000", "1 occurs twice in row 1"),
        ("1000100000000000", "1 occurs twice in column 1"),
        ("1000010000000000", "1 occurs twice in box 1"),
        (SOLVED, "has no empty cell"),
    ],
)
def test_a_wrong_puzzle_is_refused_with_its_reason(text: str, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        read_puzzle(text, 2)


def test_a_unit_is_a_row_a_column_or_a_box() -> None:
    for cell in range(16):
        assert {other for unit in units(2) if cell in unit for other in unit} - {cell} == together(
            cell
        )
    assert [len(units(order)) for order in (2, 3)] == [12, 27]
    assert [len(symbols(order)) for order in (2, 3)] == [4, 9]


def test_a_solution_has_nothing_wrong() -> None:
    assert broken(SOLVED, PUZZLE) == broken(SOLVED, None) == []
    assert conflicts(SOLVED, PUZZLE) == (0, 0)
    assert (satisfied(SOLVED), free_of_doubles(SOLVED), clues_kept(SOLVED, PUZZLE)) == (1, 1, 1)
    assert is_solution(SOLVED, f"Solve {PUZZLE}")
    assert not is_solution(changed(5, "1"), f"Solve {PUZZLE}")
    assert not is_solution(SOLVED, f"Solve {changed(0, '2', PUZZLE)}")
    assert not is_solution(SOLVED, "Solve it")


@pytest.mark.parametrize("mark", "1234x9")
@pytest.mark.parametrize("cell", range(16))
def test_a_cell_is_broken_if_it_is_no_symbol_or_doubled_or_against_a_clue(
    cell: int, mark: str
) -> None:
    grid = changed(cell, mark)
    doubles = {other for other in together(cell) if grid[other] == mark}
    wrong = doubles | ({cell} if doubles or mark not in "1234" else set())
    assert broken(grid, None) == sorted(wrong)
    clues = {place for place, clue in enumerate(PUZZLE) if clue != "0"}
    against = {cell} & clues if mark != SOLVED[cell] else set[int]()
    assert broken(grid, PUZZLE) == sorted((wrong - clues) | against)


def test_a_blank_is_broken_by_itself_and_by_another() -> None:
    assert broken(changed(5, "0"), None) == [5]


@pytest.mark.parametrize("seed", range(20))
def test_units_are_counted_as_their_definitions_say(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = "".join(rng.choice([*"01234"], size=16, p=[0.4, 0.15, 0.15, 0.15, 0.15]))
    marks = [[grid[cell] for cell in unit] for unit in units(2)]
    filled = [[mark for mark in unit if mark != "0"] for unit in marks]
    assert satisfied(grid) == sum(sorted(unit) == [*"1234"] for unit in marks) / 12
    free = [bool(unit) and len(unit) == len(set(unit)) for unit in filled]
    assert free_of_doubles(grid) == sum(free) / 12
    doubles = sum(len(unit) - len(set(unit)) for unit in filled)
    stuck = [
        cell
        for cell in range(16)
        if grid[cell] == "0" and {grid[other] for other in together(cell)} >= set("1234")
    ]
    assert conflicts(grid.replace("0", "."), None) == (doubles, len(stuck))
    clues = [(a, b) for a, b in zip(grid, SOLVED, strict=True) if a != "0"]
    assert clues_kept(SOLVED, grid) == sum(a == b for a, b in clues) / len(clues)


def test_a_puzzle_is_read_from_a_line_or_from_rows() -> None:
    assert puzzle_in(f"First {SOLVED}, then {PUZZLE}") == PUZZLE
    assert puzzle_in("Solve\n1...\n....\n| . . | . . |\n. . 2 1\n") == PUZZLE
    assert puzzle_in("Solve\n1...\n....\n. . 2 1\n") is None
    assert puzzle_in(PUZZLE[1:]) is None
