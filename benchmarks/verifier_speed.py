"""What a score costs: the verifier runs for every child of every step, so it must be next to free.

    S3DLM_DATA=folder python benchmarks/verifier_speed.py [--profile paper] [--check]

Over the 128-token outputs in `$S3DLM_DATA/llada8b_outputs.jsonl` (without that folder, over a few
texts written here): the mean time of one score, and how it grows when the text is ten times as long.
Processor time, best of several rounds. `--check` fails above 100 µs (paper) or 300 µs (any other
profile), or above 12 times the time for 10 times the text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from s3dlm.verifier import Verifier, for_task

LIMITS = {"paper": 100.0}
OTHER_LIMIT = 300.0
GROWTH_LIMIT = 12.0
TASKS = ("gsm8k", "math500", "countdown", "sudoku")

_STAND_IN = {
    "gsm8k": (
        "Janet's ducks lay 16 eggs per day. She eats three and bakes four. She sells the rest for $2.",
        r"She uses \(3 + 4 = 7\) eggs a day. Therefore she has \(16 - 7 = 9\) eggs left to sell. "
        r"At $2 each she makes \(9 \times 2 = 18\) dollars per day.</reasoning><answer>\boxed{18}</answer>",
    ),
    "math500": (
        "What is the difference between the square root of 64 and the cube root of 64?",
        r"The square root of 64 is 8, because \(8 \times 8 = 64\). The cube root is 4. Thus the "
        r"difference is \(8 - 4 = 4\).</reasoning><answer>\boxed{4}</answer>",
    ),
    "countdown": (
        "Numbers: [49, 55, 53]\nTarget: 51",
        r"We can add 49 and 55 to get 104, and subtract 53. <answer>\boxed{49 + 55 - 53}</answer>",
    ),
    "sudoku": (
        "Solve the following Sudoku puzzle: 1030341221034321",
        "We fill the rows one after the other. <answer>\n1234341221434321\n</answer>",
    ),
}  # fmt: skip

Texts = Sequence[tuple[str, str]]


def load(task: str) -> Texts:
    """Question and output of every 128-token output of a task, or the stand-in."""
    file = Path(os.environ.get("S3DLM_DATA", "")) / "llada8b_outputs.jsonl"
    if not os.environ.get("S3DLM_DATA") or not file.exists():
        return [_STAND_IN[task]] * 200
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return [
        (r["question"], r["output"]) for r in rows if (r["task"], r["gen_length"]) == (task, 128)
    ]


def microseconds(verifier: Verifier, texts: Texts, rounds: int) -> float:
    """Mean time of one score, of the best round."""
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time()
        for question, output in texts:
            verifier.score(question, output)
        best = min(best, (time.thread_time() - start) / len(texts))
    return best * 1e6


def main() -> None:
    """Print the table; with --check, fail above the limits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--profile", default="paper")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    limit = LIMITS.get(arguments.profile, OTHER_LIMIT)
    failed = False
    print(f"{'task':<10} {'outputs':>7} {'µs':>7} {'10× text':>9}")
    for task in TASKS:
        verifier, texts = for_task(task, arguments.profile), load(task)
        once = microseconds(verifier, texts, arguments.rounds)
        few = texts[:100]
        longer = [(question, output * 10) for question, output in few]
        base = microseconds(verifier, few, arguments.rounds)
        growth = microseconds(verifier, longer, arguments.rounds) / base
        failed |= once > limit or growth > GROWTH_LIMIT
        print(f"{task:<10} {len(texts):>7} {once:>7.1f} {growth:>8.1f}×")
    if arguments.check and failed:
        sys.exit(f"above {limit:g} µs or {GROWTH_LIMIT:g} times the time")


if __name__ == "__main__":
    main()
