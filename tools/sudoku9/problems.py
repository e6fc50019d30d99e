"""The puzzles that ship with the package: `sudoku9_open` with 60 and 70 blanks, `sudoku9` with one
solution and 50 to 58 blanks. `python -m tools.tiny.problems` writes them beside the other problems."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from tools.sudoku9.grids import dug, grids, opened

COUNTS = {"test": 500, "validation": 200}  # of each task
OPEN = (60, 70)  # blanks, in turn
UNIQUE = range(50, 59)


def open_puzzles(split: str, blanks: tuple[int, ...] = OPEN) -> Iterator[dict[str, object]]:
    """Puzzles that may have many solutions, each of which counts."""
    rng = random.Random(f"sudoku9_open|{split}|{blanks}")
    for number, grid in enumerate(grids(split, f"open {blanks}")):
        count = blanks[number % len(blanks)]
        yield row("sudoku9_open", split, opened(grid, count, rng), grid)


def unique_puzzles(split: str) -> Iterator[dict[str, object]]:
    """Puzzles with exactly one solution; a grid that cannot be dug as deep as wanted is left out."""
    rng, source = random.Random(f"sudoku9|{split}"), grids(split, "unique")
    while True:
        blanks = rng.choice(UNIQUE)
        puzzle = None
        while puzzle is None:
            puzzle = dug(grid := next(source), blanks, rng)
        yield row("sudoku9", split, puzzle, grid)


def row(task: str, split: str, puzzle: str, grid: str) -> dict[str, object]:
    group = f"{puzzle.count('0')} blanks"
    question = puzzle.replace("0", ".")
    return {"task": task, "split": split, "question": question, "gold": grid, "group": group}


def bundled() -> Iterator[dict[str, object]]:
    for split, count in COUNTS.items():
        yield from islice(open_puzzles(split), count)
        yield from islice(unique_puzzles(split), count)
