"""Search where early decisions are not final: `noisy9`, which denoises uniform noise, at equal passes.

python -m benchmarks.uniform_noise --limit 100

Restarts, S³ and revise have equally many settings tuned on validation puzzles, within 32 passes; then all
solve the same test puzzles with 48 blanks. A grid counts if all rules and all clues are kept. Prints a table with
Wilson intervals, and the difference of each to restarts with a paired bootstrap interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import s3dlm
from s3dlm.answers.grids import is_solution
from s3dlm.evaluation.statistics import compare, wilson
from tools.sudoku9.problems import open_puzzles

TASK, BLANKS, TUNED_WITHIN, BUDGETS = "sudoku9_open", 48, 32, (32, 64)
CANDIDATES: dict[str, list[dict[str, Any]]] = {
    "restarts": [
        {"particles": 1, "steps": 12}, {"particles": 1, "steps": 24},
        {"particles": 2, "steps": 24},
    ],
    "s3": [
        {"particles": 4, "branching": 2, "lam": 10.0, "steps": 12},
        {"particles": 1, "branching": 2, "lam": 10.0, "steps": 24},
        {"particles": 2, "branching": 2, "lam": 30.0, "steps": 12},
    ],
    "revise": [
        {"particles": 1, "rounds": 0, "steps": 24},
        {"particles": 1, "rounds": 0, "steps": 24, "remask": "doubted"},
        {"particles": 1, "rounds": 0, "steps": 24, "remask": "random"},
    ],
}  # fmt: skip


def solved(
    model: s3dlm.Model, puzzles: Sequence[str], method: str, options: Mapping[str, Any]
) -> list[float]:
    """Which of the puzzles a method solves."""
    results = s3dlm.generate_batch(
        model, puzzles, task=TASK, method=method, sample_ids=range(len(puzzles)), **options
    )
    pairs = zip(results, puzzles, strict=True)
    return [float(is_solution(result.text, puzzle)) for result, puzzle in pairs]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.uniform_noise", description=__doc__)
    parser.add_argument("--limit", type=int, default=100, help="test puzzles")
    parser.add_argument("--validation", type=int, default=24, help="validation puzzles")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = s3dlm.load("noisy9", device="cpu")

    def load(split: str, limit: int) -> list[str]:
        return [str(row["question"]) for row in islice(open_puzzles(split, (BLANKS,)), limit)]

    validation, test, best = load("validation", args.validation), load("test", args.limit), {}
    for method, rows in CANDIDATES.items():
        shares = []
        for options in rows:
            hits = solved(model, validation, method, {**options, "budget": TUNED_WITHIN})
            shares.append(sum(hits) / len(hits))
            print(f"{method} {options}: {shares[-1]:.2f}", file=sys.stderr, flush=True)
        best[method] = rows[shares.index(max(shares))]
    found: dict[str, dict[str, Any]] = {}
    right = {"greedy": solved(model, test, "greedy", {"steps": 24})}
    for budget in BUDGETS:
        for method, options in best.items():
            right[f"{method} {budget}"] = solved(model, test, method, {**options, "budget": budget})
            print(f"{method} {budget}: {right[f'{method} {budget}']}", file=sys.stderr, flush=True)
    print("| method, passes | solved, % | against restarts |\n|---|---|---|")
    for name, each in right.items():
        share = sum(each) / len(each)
        interval, line = wilson(share, len(each)), ""
        found[name] = {"share": share, "interval": [interval.low, interval.high]}
        method, _, passes = name.partition(" ")
        if passes and method != "restarts":
            gaps = [a - b for a, b in zip(each, right[f"restarts {passes}"], strict=True)]
            gap = compare([gaps]).difference
            line = f"{100 * gap.value:+.0f} [{100 * gap.low:+.0f}, {100 * gap.high:+.0f}]"
            found[name]["against_restarts"] = [gap.value, gap.low, gap.high]
        print(
            f"| {name} | {100 * share:.0f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}] | {line} |"
        )
    if args.out is not None:
        args.out.write_text(
            json.dumps({"settings": best, "puzzles": len(test), "solved": found}, indent=1)
        )


if __name__ == "__main__":
    main()
