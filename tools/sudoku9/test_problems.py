"""Puzzles of 9×9: what ships, and how it was made; and how their network is trained."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.answers.grids import is_solution
from s3dlm.models.transformer import Transformer
from tools.networks import initialise
from tools.sudoku9 import grids, problems
from tools.sudoku9.__main__ import CONFIG, hidden, loss_of

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


def test_training_hides_many_cells_and_teaches_places_and_biases() -> None:
    generator = torch.Generator().manual_seed(0)
    masked = hidden(2000, generator)
    counts = masked.sum(1)
    assert counts.min() >= 1
    assert counts.max() == 81
    assert 0.7 < (counts >= 40).float().mean() < 0.8
    network = Transformer(CONFIG)
    initialise(network, generator)
    solved = next(grids.grids("test", "unique"))
    cells = torch.tensor([[int(mark) - 1 for mark in solved]]).expand(4, -1)
    loss = loss_of(network, cells, masked[:4])
    assert loss.item() == pytest.approx(math.log(9), abs=0.05)
    loss.backward()
    assert network.grid is not None
    for parameter in network.grid.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0
