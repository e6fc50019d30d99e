"""Curves of accuracy over forward passes for all methods, and differences at equal NFE.

python -m benchmarks.frontier runs/frontier --tune --workers 2
python -m benchmarks.frontier runs/frontier --workers 2 --page docs/appendix/frontier.md
python -m benchmarks.frontier runs/look --quick --entries revise,restarts,greedy
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.frontier import entries, page, stages
from benchmarks.frontier.curves import curves_of
from benchmarks.frontier.page import Page
from benchmarks.frontier.tables import Frontier
from s3dlm.cli.options import print_table
from s3dlm.evaluation.frames import RecordedRun

QUICK = 20  # problems per task, with one seed
TUNING = 40


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.frontier",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("out", type=Path, help="folder of the run; the same command resumes it")
    parser.add_argument(
        "--tune",
        action="store_true",
        help="first stage: choose temperature and λ of every entry on validation",
    )
    study.add_options(parser)
    parser.add_argument("--entries", help="entries, separated by commas; a wrong name lists them")
    parser.add_argument("--seeds", type=int, default=3, help="seeds per problem: 0, 1, …")
    parser.add_argument("--quick", action="store_true", help="20 problems per task, one seed")
    parser.add_argument("--split", default="test", help="split of the second stage")
    parser.add_argument(
        "--show", action="store_true", help="run nothing; show the entries that have records"
    )
    parser.add_argument(
        "--unshared",
        action="store_true",
        help="draw over the passes that would be made without sharing",
    )
    parser.add_argument(
        "--page",
        type=Path,
        help="also put the tables into this page, between its marks, and the figures into `images` beside it",
    )
    return parser.parse_args(arguments)


def frontier(arguments: Sequence[str]) -> None:
    """Both stages: tune on validation, or run the test split and write the page."""
    options = parse(arguments)
    chosen = entries.chosen(study.names(options.entries))
    if options.show:
        evaluation = stages.recorded(chosen, options.out, options.split)
        _write(evaluation, options, arguments)
        return
    split = stages.VALIDATION if options.tune else options.split
    limit = options.limit or (QUICK if options.quick else TUNING if options.tune else None)
    seeds = 1 if options.quick or options.tune else options.seeds
    with study.started(options, split, limit, seeds) as (config, run):
        if options.tune:
            _print_choice(stages.tune(chosen, config, options.out, run), options)
            return
        values = stages.tuned(options.out) or {}
        evaluation = stages.run_all(chosen, config, values, options.out, run)
    _write(evaluation, options, arguments)


def _write(evaluation: RecordedRun, options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Tables and figures of what is recorded."""
    made = Frontier(evaluation, curves_of(evaluation), stages.tuned(options.out))
    command = f"python -m benchmarks.frontier {shlex.join(arguments)}"
    _print_page(
        page.write(made, options.out, command, options.page, options.unshared), options.json
    )


def _print_choice(data: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(data["chosen"]))
        return
    rows = [
        (name, *(f"{values[key]:g}" if key in values else "–" for key in ("temperature", "lam")))
        for name, values in data["chosen"].items()
    ]
    print_table(("entry", "temperature", "λ"), rows, "Chosen on validation")
    print(f"written to {options.out / 'tuned.json'}; the command without --tune uses them")


def _print_page(made: Page, as_json: bool) -> None:
    if as_json:
        plain = {"tables": [t.to_json() for t in made.tables], "page": str(made.path)}
        print(json.dumps(plain, ensure_ascii=False))
        return
    for table in made.tables[:2]:  # a terminal has no room for intervals
        rows = [[re.sub(r" \[[^]]*\]", "", cell) for cell in row] for row in table.rows]
        print_table(table.columns, rows, table.title)
    print(f"page: {made.path.resolve()}")


if __name__ == "__main__":
    study.main(lambda: frontier(sys.argv[1:]))
