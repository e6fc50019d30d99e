"""Puzzles of 9×9: what ships, and how it was made."""

from __future__ import annotations

from itertools import islice

import pytest

from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.answers.grids import is_solution
from tools.sudoku9 import grids, problems

BY_TASK = {"sudoku9_open": problems.open_puzzles, "sudoku9": problems.unique_puzzles}


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize("task", BY_TASK)
def test_shipped_puzzles_are_what_the_generator_makes(task: str, split: str) -> None:
    shipped = tasks.load(tasks.get(task), prompt_style="tiny", split=split, limit=8).samples
    for sample, row in zip(shipped, islice(BY_TASK[task](split), 8), strict=True):
        assert (sample.question, sample.gold, sample.group) == (
            row["question"], row["gold"], row["group"],
        )  # fmt: skip


@pytest.mark.parametrize("task", BY_TASK)
def test_shipped_puzzles_are_sound_and_their_grids_are_not_trained_on(task: str) -> None:
    seen = set()
    for split, count in problems.COUNTS.items():
        samples = tasks.load(tasks.get(task), prompt_style="tiny", split=split, limit=count).samples
        for sample in samples:
            grid = str(sample.gold)
            assert is_solution(grid, sample.question)
            assert grids.split_of(f"sudoku9|{grids.renamed(grid)}") == split
            assert sample.group == f"{sample.question.count('.')} blanks"
            seen.add(sample.question)
    assert len(seen) == sum(problems.COUNTS.values())


def test_unique_puzzles_have_one_solution_and_open_ones_several() -> None:
    samples = tasks.load(tasks.get("sudoku9"), prompt_style="tiny", limit=60).samples
    for sample in samples:
        puzzle = sample.question.replace(".", "0")
        assert list(islice(grids.solutions(puzzle), 2)) == [sample.gold]
        assert 50 <= puzzle.count("0") <= 58
    (sample,) = tasks.load(tasks.get("sudoku9_open"), prompt_style="tiny", limit=1).samples
    first, second = islice(grids.solutions(sample.question.replace(".", "0")), 2)
    assert first != second
    for grid in (first, second):  # any of them counts
        assert grade("sudoku9_open", grid, sample.gold, question=sample.question) == 1.0
    swapped = second[::-1]
    assert grade("sudoku9_open", swapped, sample.gold, question=sample.question) == 0.0
