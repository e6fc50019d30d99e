"""Temperature and λ, chosen on the validation split alone.

Every method gets its own best temperature, baselines included: a search that wins only because the
others sample badly has not won. λ is then chosen at that temperature for the methods that use it. The
test split is never read here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from s3dlm.evaluation import summary
from s3dlm.evaluation.plan import Condition, Defaults, Plan, grid, uses
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.run import Observer, Silent, evaluate
from s3dlm.models.base import Model
from s3dlm.tasks import Loaded

SPLIT = "validation"
ROW_CACHE = 2.0  # GiB; nothing is timed here


@dataclass(frozen=True, slots=True)
class Tried:
    """One setting of one method and its accuracy, the mean over tasks."""

    label: str
    temperature: float
    lam: float | None  # None: the method does not use it
    accuracy: float

    def chosen(self) -> dict[str, Any]:
        """The values that a method keeps."""
        used = uses(self.label, "lam") and self.lam is not None
        return {"temperature": self.temperature, **({"lam": self.lam} if used else {})}


def tune(
    model: Model,
    problems: Mapping[str, Loaded],
    labels: Sequence[str],
    defaults: Defaults,
    folder: Path,
    *,
    temperatures: Sequence[float],
    lambdas: Sequence[float],
    observe: Callable[[Plan], AbstractContextManager[Observer]] = lambda _: nullcontext(Silent()),
) -> list[Tried]:
    """Run both rounds (each resumable, like any evaluation) and write tuned.json."""
    tasks, rounds = list(problems), (folder / "temperature", folder / "lambda")
    conditions = grid(tasks, labels, defaults, sweeps={"temperature": temperatures})
    for where in rounds:
        untimed = [replace(one, timed=0) for one in conditions]
        plan = Plan(untimed, problems, split=SPLIT, row_cache=ROW_CACHE)
        with observe(plan) as observer:
            evaluate(model, plan, where, observer=observer)
        conditions = second_round(tasks, best_of(tried(rounds[0])), defaults, lambdas)
    rows = tried(*rounds)
    chosen = {label: row.chosen() for label, row in best_of(rows).items()}
    write_atomic(folder / "tuned.json", json.dumps(chosen, indent=1) + "\n")
    return rows


def second_round(
    tasks: Sequence[str], best: Mapping[str, Tried], defaults: Defaults, lambdas: Sequence[float]
) -> list[Condition]:
    """The methods that use λ, at their best temperature, with every λ."""
    return [
        condition
        for label, row in best.items()
        if uses(label, "lam")
        for condition in grid(
            tasks, [label], defaults, {"temperature": row.temperature}, {"lam": lambdas}
        )
    ]


def tried(*folders: Path) -> list[Tried]:
    """Every setting that was run, best first; of equal ones the lowest λ and temperature."""
    found: dict[tuple[str, float, float | None], dict[str, float]] = {}
    for folder in folders:
        for cell in summary.cells(summary.read(folder)).values():
            condition = cell.condition
            key = (condition.label, condition.value("temperature"), condition.value("lam"))
            found.setdefault(key, {})[condition.task] = cell.accuracy.value
    rows = [Tried(*key, sum(some.values()) / len(some)) for key, some in found.items()]
    return sorted(rows, key=lambda row: (-row.accuracy, row.lam or 0, row.temperature))


def best_of(rows: Sequence[Tried]) -> dict[str, Tried]:
    """The best setting of each method."""
    found: dict[str, Tried] = {}
    for row in rows:
        found.setdefault(row.label, row)
    return found
