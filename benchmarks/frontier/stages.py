"""The two stages: temperature and λ chosen on validation, then every point on the test split.

Every entry has a run folder of its own, with records and manifest like any evaluation, so entries can
be run in any order, in several processes, and resumed. All entries are tuned alike: the same grid, on
the mean of the tasks, at one point of the curve (`Entry.tuned_at`). Only `best` without one piece keeps the
values of `best`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.frontier.entries import Entry
from benchmarks.study import Run, StudyConfig
from s3dlm.errors import RecordError
from s3dlm.evaluation import summary
from s3dlm.evaluation.plan import Condition, Defaults
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.summary import Evaluation
from s3dlm.settings import Settings

TEMPERATURES = (0.7, 1.0, 1.5, 2.0)  # and 0 for entries that decode one answer
LAMBDAS = (1.0, 3.0, 10.0, 30.0)
VALIDATION = "validation"
TUNED = "tuned.json"

Chosen = Mapping[str, Mapping[str, float]]  # temperature and λ by entry


def settings_of(
    entry: Entry, point: int, task: str, defaults: Defaults, chosen: Mapping[str, float]
) -> Settings:
    """The settings of one point; what was chosen on validation counts where the entry is free."""
    usual = defaults(entry.method, task)
    fixed = {**entry.overrides, **entry.points[point]}
    settings = usual.replace(**fixed)
    free = {name: value for name, value in chosen.items() if name not in fixed}
    return settings.replace(**settings.effective(free)) if free else settings


def conditions(
    entry: Entry,
    config: StudyConfig,
    chosen: Mapping[str, float],
    points: Iterable[int] | None = None,
) -> list[Condition]:
    """An entry's points on every task, cheapest first."""
    wanted = range(len(entry.points)) if points is None else points
    return [
        Condition(
            task,
            entry.name,
            settings_of(entry, point, task, config.defaults, chosen),
            problems=entry.problems,
            seeds=entry.seeds,
            main=point == entry.tuned_at,
            timed=0,
        )
        for task in config.problems
        for point in wanted
    ]


def run_all(
    entries: Sequence[Entry], config: StudyConfig, chosen: Chosen, folder: Path, run: Run
) -> Evaluation:
    """Every point of every entry; returns what is recorded."""
    where = [(entry, folder / config.split / entry.name) for entry in entries]
    run(
        [
            (config.plan(conditions(one, config, chosen.get(one.tuned_as, {}))), at)
            for one, at in where
        ]
    )
    return read(folder / config.split, [entry.name for entry in entries])


def read(folder: Path, names: Sequence[str]) -> Evaluation:
    """The records of several entries as one evaluation."""
    return summary.merge([(name, summary.read(folder / name)) for name in names])


def tune(entries: Sequence[Entry], config: StudyConfig, folder: Path, run: Run) -> dict[str, Any]:
    """Both rounds, resumable, and tuned.json; what other entries chose before stays in the file."""
    rounds: list[dict[str, list[Trial]]] = []
    entries = [entry for entry in entries if entry.tuned_as == entry.name]
    best: dict[str, dict[str, float]] = {entry.name: {} for entry in entries}
    for name, grid in (("temperature", TEMPERATURES), ("lam", LAMBDAS)):
        tried = _round(name, grid, entries, config, folder / "tuning" / name, best, run)
        for entry, rows in tried.items():
            best[entry] = max(rows, key=lambda row: row.accuracy).values
        rounds.append(tried)
    return _write(folder, best, rounds, config)


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice and its accuracy, the mean over tasks."""

    values: dict[str, float]
    accuracy: float


def _round(
    name: str,
    grid: Sequence[float],
    entries: Sequence[Entry],
    config: StudyConfig,
    folder: Path,
    best: Mapping[str, Mapping[str, float]],
    run: Run,
) -> dict[str, list[Trial]]:
    """Every value of the grid for every entry that is free to choose it."""
    tries: dict[str, list[tuple[dict[str, float], list[Condition]]]] = {}
    for entry in entries:
        for value in _values(name, grid, entry, config):
            values = {**best[entry.name], name: value}
            plain = replace(entry, problems=None, seeds=1)
            found = conditions(plain, config, values, [entry.tuned_at])
            tries.setdefault(entry.name, []).append((values, found))
    plans = {
        entry: config.plan([replace(c, main=False) for _, some in rows for c in some])
        for entry, rows in tries.items()
    }
    run([(plan, folder / entry) for entry, plan in plans.items()])
    return {entry: _tried(folder / entry, rows) for entry, rows in tries.items()}


def _values(name: str, grid: Sequence[float], entry: Entry, config: StudyConfig) -> list[float]:
    """What an entry may try; nothing if it fixes the setting or its method does not use it."""
    task = next(iter(config.problems))
    settings = settings_of(entry, entry.tuned_at, task, config.defaults, {})
    fixed = {**entry.overrides, **entry.points[entry.tuned_at]}
    if name in fixed or not settings.effective({name: 0.0}):
        return []
    return [0.0, *grid] if name == "temperature" and settings.size == 1 else [*grid]


def _tried(folder: Path, rows: Sequence[tuple[dict[str, float], list[Condition]]]) -> list[Trial]:
    cells = summary.cells(summary.read(folder))
    accuracy = {condition.spec: cell.accuracy.value for condition, cell in cells.items()}
    return [Trial(values, sum(accuracy[c.spec] for c in some) / len(some)) for values, some in rows]


def _write(
    folder: Path,
    best: Mapping[str, dict[str, float]],
    rounds: Sequence[Mapping[str, list[Trial]]],
    config: StudyConfig,
) -> dict[str, Any]:
    known = _read_file(folder) if (folder / TUNED).is_file() else {"chosen": {}, "tried": {}}
    tried = {
        entry: [{**row.values, "accuracy": round(row.accuracy, 6)} for r in rounds for row in r.get(entry, ())]
        for entry in best
    }  # fmt: skip
    data = {
        "split": config.split,
        "problems": {task: len(some.samples) for task, some in config.problems.items()},
        "temperatures": TEMPERATURES,
        "lambdas": LAMBDAS,
        "chosen": {**known["chosen"], **best},
        "tried": {**known["tried"], **tried},
    }
    write_atomic(folder / TUNED, json.dumps(data, indent=1) + "\n")
    return data


def _read_file(folder: Path) -> dict[str, Any]:
    path = folder / TUNED
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        dict(data["chosen"]), dict(data["tried"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path} cannot be read ({error}); delete it and run the command with --tune"
        ) from error
    return data


def tuned(folder: Path) -> Chosen | None:
    """What validation chose for each entry; None before tuning."""
    return _read_file(folder)["chosen"] if (folder / TUNED).is_file() else None
