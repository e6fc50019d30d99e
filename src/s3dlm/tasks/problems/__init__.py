"""Procedural problems for the bundled model: seeded, endless and split by hash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.tasks.problems import arithmetic, chain, choice, countdown, sudoku
from s3dlm.tasks.problems.base import SPLITS, Problem, split_of

__all__ = ["GENERATORS", "SPLITS", "Problem", "problems", "split_of", "stream"]

GENERATORS: dict[str, Callable[[random.Random], Problem]] = {
    "arithmetic": arithmetic.generate,
    "countdown": countdown.generate,
    "sudoku": sudoku.generate,
    "choice": choice.generate,
    "chain": chain.generate,
}

# A generator that yields nothing new this often in a row has run out of problems.
_PATIENCE = 2_000


def stream(task: str, split: str, seed: int | str) -> Iterator[Problem]:
    """Problems of one split without end, repeats allowed; the same seed gives the same stream."""
    if task not in GENERATORS:
        raise SettingsError(unknown_name("task", task, GENERATORS))
    if split not in SPLITS:
        raise SettingsError(unknown_name("split", split, SPLITS))
    rng = random.Random(f"{task}|{split}|{seed}")
    generate = GENERATORS[task]
    while True:
        problem = generate(rng)
        if problem.split == split:
            yield problem


def problems(task: str, split: str, count: int, seed: int = 0) -> list[Problem]:
    """`count` different problems of one split; a longer list starts with the shorter one."""
    found: dict[str, Problem] = {}
    repeats = 0
    source = stream(task, split, seed)
    while len(found) < count:
        problem = next(source)
        repeats = repeats + 1 if problem.question in found else 0
        found.setdefault(problem.question, problem)
        if repeats > _PATIENCE:
            raise SettingsError(
                f"count={count} is more than the {len(found)} different {split} problems "
                f"found for {task!r}; ask for fewer"
            )
    return list(found.values())
