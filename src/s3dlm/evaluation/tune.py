"""Temperature and λ, chosen on the validation split alone.

Every method gets the temperature it does best with, the rivals as well as s3: a search that wins
only because the others sample badly has not won. λ is then chosen at that temperature for the
methods that weigh by it. The test split is never read here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from s3dlm.evaluation import plan as plans
from s3dlm.evaluation import summary
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.run import Observer, Plan, Silent, evaluate
from s3dlm.models.base import Model
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings
from s3dlm.tasks import Loaded

TEMPERATURES = (0.7, 1.0, 1.5, 2.0)
LAMBDAS = (1.0, 10.0, 30.0, 100.0)  # scores differ by hundredths: λ = 1 hardly tilts
SPLIT = "validation"
REMEMBER = 2.0  # GiB; nothing is timed here


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting of one method and its accuracy, the mean over tasks."""

    label: str
    temperature: float
    lam: float
    accuracy: float


def weighs(label: str) -> bool:
    """Whether λ changes what a method does."""
    return METHODS[label].weight in ("tilt", "twist")


def first_round(
    tasks: Sequence[str], labels: Sequence[str], base: Settings, temperatures: Sequence[float]
) -> list[Condition]:
    """Every method at every temperature, with the base's λ."""
    return plans.grid(tasks, labels, base, {"temperature": temperatures})


def second_round(
    tasks: Sequence[str],
    best: Mapping[str, Tried],
    base: Settings,
    lambdas: Sequence[float],
) -> list[Condition]:
    """The methods that weigh by λ, at their own best temperature, with every λ."""
    return [
        condition
        for label, tried in best.items()
        if weighs(label)
        for condition in plans.grid(
            tasks, [label], base.replace(temperature=tried.temperature), {"lam": lambdas}
        )
    ]


def tried(*folders: Path) -> list[Tried]:
    """Every setting that was run, best first; ties go to the gentler setting."""
    found: dict[tuple[str, float, float], dict[str, float]] = {}
    for folder in folders:
        for cell in summary.cells(summary.read(folder)).values():
            settings = cell.condition.settings
            key = (cell.condition.label, settings.temperature, settings.lam)
            found.setdefault(key, {})[cell.condition.task] = cell.accuracy.value
    rows = [Tried(*key, sum(some.values()) / len(some)) for key, some in found.items()]
    return sorted(rows, key=lambda row: (-row.accuracy, row.lam, row.temperature))


def best_of(rows: Sequence[Tried]) -> dict[str, Tried]:
    """The best setting of each method."""
    found: dict[str, Tried] = {}
    for row in rows:
        found.setdefault(row.label, row)
    return found


def tune(
    model: Model,
    problems: Mapping[str, Loaded],
    labels: Sequence[str],
    base: Settings,
    folder: Path,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    lambdas: Sequence[float] = LAMBDAS,
    observe: Callable[[Plan], AbstractContextManager[Observer]] = lambda _: nullcontext(Silent()),
) -> list[Tried]:
    """Run both rounds (each resumable, like any evaluation) and write tuned.json."""
    tasks, rounds = list(problems), (folder / "temperature", folder / "lambda")
    conditions = first_round(tasks, labels, base, temperatures)
    for where in rounds:
        plan = Plan(conditions, base, problems, split=SPLIT, remember=REMEMBER)
        with observe(plan) as observer:
            evaluate(model, plan, where, observer=observer)
        conditions = second_round(tasks, best_of(tried(rounds[0])), base, lambdas)
    rows = tried(*rounds)
    chosen = {label: own(row) for label, row in best_of(rows).items()}
    write_atomic(folder / "tuned.json", json.dumps(chosen, indent=1) + "\n")
    return rows


def own(row: Tried) -> dict[str, float]:
    """What a method keeps of the setting it did best with."""
    if weighs(row.label):
        return {"temperature": row.temperature, "lam": row.lam}
    return {"temperature": row.temperature}
