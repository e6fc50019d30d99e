"""Puzzles of 9×9: what ships, how it was made, and files of one's own."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.answers.grids import is_solution
from s3dlm.errors import RecordError
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


@pytest.mark.parametrize("header", ["puzzle,solution", "quizzes,solutions", "question,answer"])
def test_puzzles_are_read_from_a_csv_file(header: str, tmp_path: Path) -> None:
    row = next(problems.unique_puzzles("validation"))
    path = tmp_path / "hard.csv"
    path.write_text(f"{header},rating\n{row['question']},{row['gold']},7\n")
    task = tasks.get(f"{path}:sudoku9")
    (sample,) = tasks.load(task, prompt_style="tiny").samples
    assert (sample.question, sample.gold) == (row["question"], row["gold"])
    assert (task.name, task.verifier, task.answer) == ("hard", "sudoku9", "sudoku9")


def test_a_csv_file_may_leave_the_solutions_out(tmp_path: Path) -> None:
    row = next(problems.unique_puzzles("validation"))
    path = tmp_path / "hard.csv"
    path.write_text(f"puzzle\n{row['question']}\n")
    (sample,) = tasks.load(tasks.get(f"{path}:sudoku9"), prompt_style="tiny").samples
    assert grade("sudoku9", str(row["gold"]), sample.gold, question=sample.question) == 1.0
    path.write_text("grid\n123\n")
    with pytest.raises(RecordError, match="'puzzle' and, if known, 'solution'"):
        tasks.load(tasks.get(f"{path}:sudoku9"), prompt_style="tiny")
