"""The table of the README: a few points of the frontier's curves, all on the same test problems.

python -m benchmarks.common_set --limit 60 --out runs/common

Temperatures and λ are those that the frontier chose on validation for these entries (docs/frontier.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import study
from benchmarks.frontier.entries import ENTRIES
from benchmarks.frontier.stages import settings_of
from s3dlm.evaluation import frames
from s3dlm.evaluation.plan import Condition, title_of

# Name in the table, entry, its point, and what validation chose for it.
ROWS: tuple[tuple[str, str, int, dict[str, float]], ...] = (
    ("LLaDA's greedy loop", "plain", 3, {}),
    ("`revise`, budget 8", "revise", 1, {"temperature": 2.0}),
    ("`revise`, budget 64", "revise", 4, {"temperature": 2.0}),
    ("`restarts`, budget 64", "restarts", 4, {"temperature": 2.0}),
    ("`verified_best_of_k`, budget 64", "verified_best_of_k", 4, {"temperature": 1.5}),
    ("`s3`, N = 8, b = 2, λ = 10", "s3", 3, {"temperature": 2.0, "lam": 10.0}),
    ("best-of-32, majority vote", "best_of_k", 4, {"temperature": 2.0}),
)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.common_set", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    study.add_options(parser)
    parser.set_defaults(limit=60)
    parser.add_argument("--out", type=Path, default=Path("runs/common"), help="folder of the run")
    options = parser.parse_args(arguments)
    with study.started(options, "test", options.limit) as (config, run):
        tasks = list(config.problems)
        conditions = []
        for task in tasks:
            for name, entry, point, chosen in ROWS:
                settings = settings_of(ENTRIES[entry], point, task, config.defaults, chosen)
                if entry == "plain":  # as many steps as the model recommends for the task
                    settings = settings.replace(
                        steps=config.defaults("greedy", task).decoding.steps
                    )
                conditions.append(Condition(task, name, settings, timed=0))
        run([(config.plan(conditions), options.out)])
    cells = frames.read(options.out).main_cells
    print(f"| | {' | '.join(title_of(task).lower() for task in tasks)} |")
    print(f"|{'---|' * (len(tasks) + 1)}")
    for name, *_ in ROWS:
        row = [cells[task][name] for task in tasks]
        words = [f"{100 * cell.accuracy.value:.1f} @ {cell.nfe:.1f}" for cell in row]
        print(f"| {name} | {' | '.join(words)} |")
    counts = sorted({cell.problems for row in cells.values() for cell in row.values()})
    print(f"\n{'–'.join(map(str, counts))} problems per task, the same for all rows, one seed.")


if __name__ == "__main__":
    study.main(lambda: main(sys.argv[1:]))
