"""Temperature and λ of every method, chosen on the validation split alone.

Every method gets its own best temperature, baselines included: a search that wins only because the
others sample badly has not won. λ is then chosen at that temperature for the methods that use it. The
test split is never read here.

python -m benchmarks.tune --model tiny --limit 100
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import study
from benchmarks.study import Evaluate, StudyConfig
from s3dlm.cli.options import print_table
from s3dlm.evaluation import frames
from s3dlm.evaluation.plan import Condition, grid
from s3dlm.evaluation.records import write_atomic
from s3dlm.settings import Settings

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
        used = "lam" in Settings(self.label).active and self.lam is not None
        return {"temperature": self.temperature, **({"lam": self.lam} if used else {})}


def tune(
    config: StudyConfig,
    run: Evaluate,
    labels: Sequence[str],
    folder: Path,
    temperatures: Sequence[float],
    lambdas: Sequence[float],
) -> list[Trial]:
    """Run both rounds (each resumable, like any evaluation) and write tuned.json."""
    tasks, rounds = list(config.problems), (folder / "temperature", folder / "lambda")
    conditions = grid(tasks, labels, config.defaults, sweeps={"temperature": temperatures})
    for place in rounds:
        run([(config.plan([replace(condition, timed=0) for condition in conditions]), place)])
        conditions = second_round(config, best_of(trials(rounds[0])), lambdas)
    rows = trials(*rounds)
    chosen = {label: trial.chosen() for label, trial in best_of(rows).items()}
    write_atomic(folder / "tuned.json", json.dumps(chosen, indent=1) + "\n")
    return rows


def second_round(
    config: StudyConfig, best: Mapping[str, Trial], lambdas: Sequence[float]
) -> list[Condition]:
    """The methods that use λ, at their best temperature, with every λ."""
    return [
        condition
        for label, trial in best.items()
        if "lam" in Settings(label).active
        for condition in grid(
            list(config.problems),
            [label],
            config.defaults,
            {"temperature": trial.temperature},
            {"lam": lambdas},
        )
    ]


def trials(*folders: Path) -> list[Trial]:
    """Every setting that was run, best first; of equal ones the lowest λ and temperature."""
    found: dict[tuple[str, float, float | None], dict[str, float]] = {}
    for folder in folders:
        for condition, cell in frames.read(folder).cells.items():
            key = (condition.label, condition.value("temperature"), condition.value("lam"))
            found.setdefault(key, {})[condition.task] = cell.accuracy.value
    rows = [Trial(*key, sum(tasks.values()) / len(tasks)) for key, tasks in found.items()]
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
