"""Temperature and λ of every method, chosen on the validation split alone.

Every method gets its own best pair of both, baselines included: a search that wins only because the
others sample badly has not won. The two are tuned jointly, on the whole grid, because the best λ depends on
the temperature. The test split is never read here.

python -m benchmarks.tune --model tiny --limit 100
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.study import Evaluate, StudyConfig
from s3dlm.cli.options import print_table
from s3dlm.evaluation import frames
from s3dlm.evaluation.plan import grid
from s3dlm.evaluation.records import write_atomic
from s3dlm.search.methods import find_method
from s3dlm.settings import has

SPLIT = "validation"


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of one method and its accuracy, the mean over tasks."""

    label: str
    temperature: float
    lam: float | None  # None: the method does not use it
    accuracy: float

    def chosen(self) -> dict[str, Any]:
        """The values that a method keeps."""
        return {"temperature": self.temperature, **({} if self.lam is None else {"lam": self.lam})}


def tune(
    config: StudyConfig,
    run: Evaluate,
    labels: Sequence[str],
    folder: Path,
    temperatures: Sequence[float],
    lambdas: Sequence[float],
    also: Sequence[Path] = (),
) -> list[Trial]:
    """Run the grid (resumable, like any evaluation) and write tuned.json."""
    conditions = [
        condition
        for label in labels
        for condition in grid(
            list(config.problems),
            [label],
            config.defaults,
            sweeps={"temperature": temperatures}
            | ({"lam": lambdas} if has(find_method(label), "lam") else {}),
        )
    ]
    tasks = list(config.problems)
    conditions.sort(key=lambda c: (tasks.index(c.task), c.value("temperature")))
    run([(config.plan(conditions), folder)])
    rows = trials(*also, folder)
    chosen = {label: trial.chosen() for label, trial in best_of(rows).items()}
    write_atomic(folder / "tuned.json", json.dumps(chosen, indent=1) + "\n")
    return rows


def trials(*folders: Path) -> list[Trial]:
    """Every setting that was run on all tasks, best first; of equal ones the lowest λ and temperature.
    Of a task that several folders have, the last one counts."""
    found: dict[tuple[str, float, float | None], dict[str, float]] = {}
    for folder in folders:
        for condition, cell in frames.read(folder).cells.items():
            key = (condition.label, condition.value("temperature"), condition.value("lam"))
            found.setdefault(key, {})[condition.task] = cell.accuracy.value
    most = max(map(len, found.values()), default=0)
    whole = {key: tasks for key, tasks in found.items() if len(tasks) == most}
    rows = [Trial(*key, sum(tasks.values()) / most) for key, tasks in whole.items()]
    return sorted(rows, key=lambda trial: (-trial.accuracy, trial.lam or 0, trial.temperature))


def best_of(rows: Sequence[Trial]) -> dict[str, Trial]:
    """The best setting of each method."""
    best: dict[str, Trial] = {}
    for trial in rows:
        best.setdefault(trial.label, trial)
    return best


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.tune", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    study.add_options(parser)
    parser.set_defaults(limit=50)
    parser.add_argument("--method", default="best_of_k,tilting,s3", help="separated by commas")
    parser.add_argument("--temperature", default="0.7,1.0,1.5,2.0", help="temperatures to try")
    parser.add_argument("--lam", default="1,10,30,100", help="values of λ to try")
    parser.add_argument("--out", type=Path, help="folder of the runs; default: runs/tune-MODEL")
    parser.add_argument("--also", nargs="*", type=Path, default=[], metavar="FOLDER",
                        help="folders of earlier calls, for other tasks")  # fmt: skip
    options = parser.parse_args(arguments)
    folder = options.out or Path("runs") / f"tune-{options.model.replace('/', '-')}"
    with study.started(options, SPLIT, options.limit) as (config, run):
        rows = tune(
            config,
            run,
            study.names(options.method),
            folder,
            [float(value) for value in study.names(options.temperature)],
            [float(value) for value in study.names(options.lam)],
            options.also,
        )
    best = {label: trial.chosen() for label, trial in best_of(rows).items()}
    if options.json:
        print(json.dumps(best))
        return
    ordered = sorted(rows, key=lambda trial: (trial.label, trial.temperature, trial.lam or 0))
    table = [
        (
            trial.label,
            f"{trial.temperature:g}",
            "–" if trial.lam is None else f"{trial.lam:g}",
            f"{100 * trial.accuracy:.1f}",
        )
        for trial in ordered
    ]
    print_table(("method", "temperature", "λ", "accuracy (%)"), table, "Validation")
    print(f"best: {json.dumps(best)} (written to {folder / 'tuned.json'})")


if __name__ == "__main__":
    study.main(lambda: main(sys.argv[1:]))
