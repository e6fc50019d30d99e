"""What adaptive reveal costs and saves: accuracy and NFE of one greedy answer, rule by rule.

`python -m benchmarks.reveal [problems per task] [split]` prints a table for the bundled model.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import s3dlm

RULES: list[dict[str, Any]] = [
    {"reveal": "schedule"},
    {"reveal": "threshold", "reveal_threshold": 0.98},
    {"reveal": "threshold", "reveal_threshold": 0.9},
]


def measure(model: s3dlm.Model, rule: dict[str, Any], limit: int, split: str) -> str:
    """One line of the table: accuracy @ mean NFE of every task, and their means."""
    with tempfile.TemporaryDirectory() as folder:
        found = s3dlm.evaluate(
            model, methods="baseline", out=folder, limit=limit, split=split, temperature=0, **rule
        )
    cells = [found[task]["baseline"] for task in found]
    accuracy = [100 * one.accuracy.value for one in cells]
    nfe = [one.nfe for one in cells]
    pairs = [*zip(accuracy, nfe, strict=True), (sum(accuracy) / len(cells), sum(nfe) / len(cells))]
    name = ", ".join(str(value) for value in rule.values())
    return " | ".join([name, *(f"{right:.1f} @ {cost:.1f}" for right, cost in pairs)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=int, nargs="?", default=100, help="per task")
    parser.add_argument("split", nargs="?", default="validation", help="validation or test")
    given = parser.parse_args()
    model = s3dlm.load("tiny")
    print(" | ".join(["rule", *model.defaults.tasks, "mean"]))
    for rule in RULES:
        print(measure(model, rule, given.problems, given.split), flush=True)


if __name__ == "__main__":
    main()
