"""Writes the problems that ship with the package: python -m tools.tiny.problems."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections.abc import Iterator

from s3dlm.tasks.data import PROBLEMS_FILE
from tools.sudoku9 import problems as sudoku9
from tools.tiny.problems import GENERATORS, Problem, distinct

SPLITS = ("test", "validation")
COUNT = 1000  # per task and split; countdown with three numbers has fewer


def bundled(task: str, split: str, count: int = COUNT) -> Iterator[dict[str, object]]:
    """The first problems of a split as they are shipped, without their worked responses."""
    for problem in itertools.islice(distinct(task, split), count):
        row = {"task": task, "split": split, "question": problem.question, "gold": gold(problem)}
        yield row | ({"group": problem.group} if problem.group else {})


def gold(problem: Problem) -> object:
    """The gold answer in the form that grading reads: for countdown, the numbers and the target."""
    if problem.task != "countdown":
        return problem.gold
    target, _, numbers = problem.gold.partition("|")
    return [[int(number) for number in numbers.split(",")], int(target)]


def main() -> None:
    rows = [row for task in GENERATORS for split in SPLITS for row in bundled(task, split)]
    rows += sudoku9.bundled()
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    PROBLEMS_FILE.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{len(rows):,} problems, {PROBLEMS_FILE.stat().st_size:,} bytes: {PROBLEMS_FILE}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
