"""Procedural problems for the bundled model: seeded, endless and split by hash.

The package ships the first test and validation problems as data (`python -m tools.tiny.problems`
writes them); training draws its own from here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice

from s3dlm.errors import SettingsError, unknown_name
from tools.tiny.problems import arithmetic, chain, choice, countdown, sudoku
from tools.tiny.problems.base import SPLITS, Problem, split_of

__all__ = ["GENERATORS", "SPLITS", "Problem", "distinct", "problems", "split_of", "stream"]

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


def distinct(task: str, split: str, seed: int = 0) -> Iterator[Problem]:
    """Different problems of one split, until the generator has run out of them."""
    seen: set[str] = set()
    repeats = 0
    for problem in stream(task, split, seed):
        repeats = repeats + 1 if problem.question in seen else 0
        if repeats > _PATIENCE:
            return
        if not repeats:
            seen.add(problem.question)
            yield problem


def problems(task: str, split: str, count: int, seed: int = 0) -> list[Problem]:
    """`count` different problems of one split; a longer list starts with the shorter one."""
    drawn = list(islice(distinct(task, split, seed), count))
    if len(drawn) < count:
        raise SettingsError(
            f"count={count} is more than the {len(drawn)} different {split} problems "
            f"found for {task!r}; ask for fewer"
        )
    return drawn
