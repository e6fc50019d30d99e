"""The two stages: temperature and λ chosen on validation, then every point on the test split.

Every entry has a run folder of its own, with records and manifest like any evaluation, so entries can
be run in any order, in several processes, and resumed. All entries are tuned alike: the same grid, on
the mean of the tasks, at one point of the curve (`Entry.tuned_at`). Only `revise` without one piece keeps the
values of `revise`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.frontier.entries import ENTRIES, Entry
from benchmarks.study import Evaluate, StudyConfig
from s3dlm.errors import RecordError
from s3dlm.evaluation import frames
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import Condition, SettingsOf
from s3dlm.evaluation.records import write_atomic
from s3dlm.evaluation.statistics import mean
from s3dlm.settings import Settings

TEMPERATURES = (0.7, 1.0, 1.5, 2.0)  # and 0 for entries that decode one answer
LAMBDAS = (1.0, 3.0, 10.0, 30.0)
VALIDATION = "validation"
TUNED = "tuned.json"

Chosen = Mapping[str, Mapping[str, float]]  # temperature and λ by entry


def settings_of(
    entry: Entry, point: int, task: str, defaults: SettingsOf, chosen: Mapping[str, float]
) -> Settings:
    """The settings of one point; what was chosen on validation counts where the entry is free."""
    fixed = {**entry.overrides, **entry.points[point]}
    settings = defaults(entry.method, task).replace(**fixed)
    free = {name: value for name, value in chosen.items() if name not in fixed}
    return settings.replace(**settings.effective(free)) if free else settings


def conditions(
    entry: Entry,
    config: StudyConfig,
    chosen: Mapping[str, float],
    points: Iterable[int] | None = None,
) -> list[Condition]:
    """An entry's points on every task, cheapest first."""
    return [
        Condition(
            task,
            entry.name,
            settings_of(entry, point, task, config.defaults, chosen),
            problems=entry.problems,
            seeds=entry.seeds,
            main=point == entry.tuned_at,
        )
        for task in config.problems
        for point in points or range(len(entry.points))
    ]


def run_all(
    entries: Sequence[Entry], config: StudyConfig, chosen: Chosen, folder: Path, run: Evaluate
) -> RecordedRun:
    """Every point of every entry; returns what is recorded."""
    folders = [folder / config.split / entry.name for entry in entries]
    plans = [config.plan(conditions(e, config, chosen.get(e.tuned_as, {}))) for e in entries]
    run(list(zip(plans, folders, strict=True)))
    return frames.read(*folders)


def recorded(entries: Sequence[Entry], folder: Path, split: str) -> RecordedRun:
    """What is recorded of these entries."""
    folders = [folder / split / entry.name for entry in entries]
    found = [each for each in folders if each.is_dir()]
    if not found:
        raise RecordError(f"{folder / split} has no records of these entries; run them first")
    return frames.read(*found)


@dataclass(frozen=True, slots=True)
class Trial:
    """One choice for an entry and its accuracy, the mean over tasks."""

    entry: str
    values: dict[str, float]
    accuracy: float


def tune(
    entries: Sequence[Entry], config: StudyConfig, folder: Path, run: Evaluate
) -> dict[str, Any]:
    """Both rounds, resumable, and tuned.json; what other entries chose before stays in the file."""
    best: dict[str, dict[str, float]] = {e.name: {} for e in entries if e.tuned_as == e.name}
    trials: list[Trial] = []
    for setting, grid in (("temperature", TEMPERATURES), ("lam", LAMBDAS)):
        made = _round(setting, grid, best, config, folder / "tuning" / setting, run)
        for name in best:
            ours = [trial for trial in made if trial.entry == name]
            best[name] = max(ours, key=lambda trial: trial.accuracy).values if ours else best[name]
        trials += made
    known = _read_file(folder) if (folder / TUNED).is_file() else {"chosen": {}, "tried": {}}
    tried: dict[str, list[dict[str, float]]] = {name: [] for name in best}
    for trial in trials:
        tried[trial.entry].append({**trial.values, "accuracy": round(trial.accuracy, 6)})
    data = {
        "split": config.split,
        "problems": {task: len(loaded.samples) for task, loaded in config.problems.items()},
        "temperatures": TEMPERATURES,
        "lambdas": LAMBDAS,
        "chosen": {**known["chosen"], **best},
        "tried": {**known["tried"], **tried},
    }
    write_atomic(folder / TUNED, json.dumps(data, indent=1) + "\n")
    return data


def _round(
    setting: str,
    grid: Sequence[float],
    best: Mapping[str, Mapping[str, float]],
    config: StudyConfig,
    folder: Path,
    run: Evaluate,
) -> list[Trial]:
    """Every value of the grid for every entry that is free to choose it."""
    tries: dict[str, list[tuple[dict[str, float], list[Condition]]]] = {}
    for name, before in best.items():
        entry = replace(ENTRIES[name], problems=None, seeds=1)
        for value in _values(setting, grid, entry, config):
            values = {**before, setting: value}
            points = conditions(entry, config, values, [entry.tuned_at])
            tries.setdefault(name, []).append((values, [replace(c, main=False) for c in points]))
    plans = {n: config.plan([c for _, points in rows for c in points]) for n, rows in tries.items()}
    run([(plan, folder / name) for name, plan in plans.items()])
    trials = []
    for name, rows in tries.items():
        cells = frames.read(folder / name).cells
        accuracy = {condition.spec: cell.accuracy.value for condition, cell in cells.items()}
        trials += [Trial(name, v, mean(accuracy[c.spec] for c in points)) for v, points in rows]
    return trials


def _values(setting: str, grid: Sequence[float], entry: Entry, config: StudyConfig) -> list[float]:
    """What an entry may try; nothing if it fixes the setting or its method does not use it."""
    task = next(iter(config.problems))
    settings = settings_of(entry, entry.tuned_at, task, config.defaults, {})
    fixed = {**entry.overrides, **entry.points[entry.tuned_at]}
    if setting in fixed or not settings.effective({setting: 0.0}):
        return []
    return [0.0, *grid] if setting == "temperature" and settings.search.size == 1 else [*grid]


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
