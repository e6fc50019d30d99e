"""Sudoku: 4×4 (d1's 500 puzzles, of which it evaluates 256, or generated) and 9×9."""

from __future__ import annotations

from s3dlm.tasks.base import FORMAT, Hub, Row, Source, Task

INSTRUCTION = (
    "Solve this {size}×{size} Sudoku. The grid is given row by row as a string of {cells} digits "
    "in which 0 is an empty cell. Fill it so that each row, each column and each {box}×{box} box "
    "holds every digit from 1 to {size} exactly once. Reason step by step, then give the filled "
    "grid as a string of {cells} digits.\n" + FORMAT.format(answer="{cells}-digit string")
)


def parse(row: Row, index: int) -> tuple[str, object]:
    """Data sets write empty cells as 0 or as a dot; the question always has zeros."""
    puzzle = str(row.get("Puzzle", row.get("question"))).replace(".", "0")
    solution = str(row.get("Solution", row.get("answer")))
    return f"Solve the following Sudoku puzzle: {puzzle}\n", solution


TASK = Task(
    name="sudoku",
    title="Sudoku 4×4",
    profile="sudoku",
    answer="sudoku",
    instruction=INSTRUCTION.format(size=4, cells=16, box=2),
    source=Source(files=("sudoku_4x4_test.csv", "sudoku.csv"), parse=parse, count=500, subset=256),
    generated=True,
)

NINE = Task(
    name="sudoku9",
    title="Sudoku 9×9",
    profile="sudoku",
    answer="sudoku",
    instruction=INSTRUCTION.format(size=9, cells=81, box=3),
    source=Source(
        files=("sudoku_9x9_test.csv", "sudoku9.csv"),
        parse=parse,
        hub=Hub("sapientinc/sudoku-extreme", "default", "test"),
    ),
)
