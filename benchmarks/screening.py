"""What `screen=K` is worth: restarts, and `best`, with and without it, at equal budgets.

    python -m benchmarks.screening --task sudoku,chain --limit 60
    python -m benchmarks.screening --model sudoku9 --task sudoku9_open --limit 40 --screen 64 --threshold 0.6,0.9

Every row is `best` with λ for screening alone (its look-ahead weight is `none`); `restarts` begins every
round afresh. A line has the per cent solved with at most 16, 32 and 64 forward passes, and the mean
number of passes; one run with the largest budget gives all columns, since a search stops when its verifier is
satisfied. The last column is the difference to the first line of the same kind and task at the middle
budget, with its 95 % interval over problems. One seed; choose on validation, report on test.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, run
from s3dlm.search.methods import METHODS, UNTILTED
from s3dlm.settings import Settings
from s3dlm.tasks.data import load as load_samples

BUDGETS = (16, 32, 64)
ROW = dataclasses.replace(METHODS["best"], weight="none", beside=UNTILTED)
KINDS: dict[str, dict[str, Any]] = {"restarts": {"remask": "all"}, "best": {}}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.screening", description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", help="separated by commas; default: the model's own")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--kind", default="restarts", help="restarts, best or both, with a comma")
    parser.add_argument("--screen", default="8,16,64")
    parser.add_argument("--lam", default="10")
    parser.add_argument("--verifier", default="plus,plus_solver")
    parser.add_argument("--threshold", default="", help="of the reveal rule; default: the model's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    return parser.parse_args(arguments)


def rows(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line's name and settings, those without screening first."""
    fixed = {
        name: float(n) if "." in n else int(n) for name, n in (s.split("=") for s in options.set)
    }
    for kind in options.kind.split(","):
        for tau in options.threshold.split(","):
            given = {**KINDS[kind], **fixed}
            given |= {"reveal": "threshold", "reveal_threshold": float(tau)} if tau else {}
            name = f"{kind}{f', threshold {tau}' if tau else ''}"
            yield name, given
            lists = (options.verifier.split(","), options.screen.split(","), options.lam.split(","))
            for verifier, k, lam in itertools.product(*lists):
                more = {"verifier": verifier, "screen": int(k), "lam": float(lam)}
                yield f"{name}, screen {k} by {verifier}, λ {lam}", {**given, **more}


def main(arguments: Sequence[str]) -> None:
    options = parse(arguments)
    model, first = s3dlm.load(options.model), dict[tuple[str, str], np.ndarray]()
    for task in (options.task or ",".join(model.defaults.tasks)).split(","):
        made = tasks.get(task)
        samples = load_samples(
            made, prompt_style="tiny", split=options.split, limit=options.limit
        ).samples
        for name, given in rows(options):
            settings = Settings.for_model(model, ROW, task, **{"budget": BUDGETS[-1], **given})
            jobs = [Job(one.question, task, settings, one.id) for one in samples]
            ends = {at: end for at, end in run(model, jobs) if isinstance(end, s3dlm.Result)}
            results = [ends[at] for at in range(len(samples))]
            right = np.array([
                grade(made.answer, result.text, one.gold, "fixed", one.question) == 1.0
                for one, result in zip(samples, results, strict=True)
            ])  # fmt: skip
            nfe = np.array([result.nfe for result in results])
            middle = right & (nfe <= BUDGETS[1])
            gap = 100.0 * (middle - 1.0 * first.setdefault((task, name.split(",")[0]), middle))
            draws = np.random.default_rng(0).choice(gap, (2000, gap.size)).mean(axis=1)
            solved = " | ".join(f"{100 * (right & (nfe <= most)).mean():.0f}" for most in BUDGETS)
            low, high = np.quantile(draws, [0.025, 0.975])
            cells = f"{solved} | {nfe.mean():.1f} | {gap.mean():+.0f} [{low:.0f}, {high:.0f}]"
            print(f"| {task} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
