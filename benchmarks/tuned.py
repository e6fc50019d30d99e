"""The methods of the paper's comparison on the test split, each at the temperature and λ that
`benchmarks.tune` chose for it jointly.

python -m benchmarks.tuned --limit 100 --out runs/tuned
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import study
from s3dlm.evaluation import comparisons, frames, tables
from s3dlm.evaluation.plan import grid

CHOSEN = Path(__file__).with_name("tuned.json")
METHODS = "best_of_k,s3_paper,s3,s3_verified,verified_best_of_k"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.tuned", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    study.add_options(parser)
    parser.set_defaults(limit=100, task="arithmetic,countdown,sudoku,choice")
    parser.add_argument("--method", default=METHODS, help="separated by commas")
    parser.add_argument("--out", type=Path, default=Path("runs/tuned"), help="folder of the run")
    options = parser.parse_args(arguments)
    with study.started(options, "test", options.limit) as (config, run):
        settings = study.tuned_in(CHOSEN, config.defaults)
        conditions = grid(list(config.problems), study.names(options.method), settings)
        run([(config.plan(conditions), options.out)])
    found = frames.read(options.out)
    for table in (tables.summary(found, "best_of_k"), comparisons.comparisons(found, "best_of_k")):
        print(table.to_markdown() + "\n")


if __name__ == "__main__":
    study.main(lambda: main(sys.argv[1:]))
