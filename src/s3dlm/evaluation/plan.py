"""What an evaluation runs, as plain data: conditions with stable hashes.

A condition is one cell of a table: a task, a label such as "s3", and all settings but the seed. This
is the only file of evaluation that knows which settings a method uses: a setting that is given for
several methods applies to those that use it, and two ways of writing the same run are one condition
(best-of-K depends on K = N·b alone), so that a sweep never pays for them twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from s3dlm import tasks as benchmarks
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.models import folder as models
from s3dlm.models.base import Model
from s3dlm.settings import Settings, fields
from s3dlm.tasks import Loaded

FIVE = ("baseline", "best_of_k", "tilting", "top_n", "s3")  # the paper's five methods

SettingsOf = Callable[[str, str | None], Settings]  # (method, task) → its settings by default
Overrides = Mapping[str, Any]  # settings by name


@dataclass(frozen=True, slots=True)
class Condition:
    """One cell of the grid; `settings.seed` is 0 here and set for each run.

    A sweep may use fewer problems and seeds than the main comparison. How many does not change what
    a record means, so it is not part of the hash.
    """

    task: str
    label: str
    settings: Settings
    problems: int | None = None  # only the first ones; None: all
    seeds: int | None = None
    main: bool = True  # part of the main comparison, not of a sweep

    __pydantic_config__ = ConfigDict(arbitrary_types_allowed=True)  # the settings check themselves

    @property
    def spec(self) -> str:
        """Twelve hex digits, equal for equal conditions on every machine, whatever the seed.

        Only what differs from the defaults is hashed; the manifest has every value.
        """
        defaults = Settings(type(self.settings.search)).to_json()
        plain = {"task": self.task}
        for name, value in self.settings.to_json().items():
            if name == "method" or (name != "seed" and value != defaults.get(name)):
                plain[name] = value
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def budget(self) -> tuple[int, int]:  # particles and branching
        return self.value("particles") or 1, self.value("branching") or 1

    @property
    def children(self) -> int:  # canvases per step
        return self.settings.search.size * self.settings.search.children

    @property
    def sampled(self) -> bool:
        """Whether another seed can give another result."""
        own = self.settings
        how = own.decoding
        chance = how.temperature > 0 or how.position_temperature > 0 or how.policy == "random"
        return chance or bool(self.value("rounds"))

    def value(self, name: str) -> Any:
        """One setting by name; None if the method does not use it."""
        return self.settings.to_json().get(name)

    def count(self, problems: int, seeds: int) -> int:
        """Samples of this condition in a run of so many problems and seeds."""
        return min(problems, self.problems or problems) * min(seeds, self.seeds or seeds)

    def to_json(self) -> dict[str, object]:
        plain = {name: getattr(self, name) for name in ("spec", "task", "label", *_COUNTS)}
        return {**plain, "settings": self.settings.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        fields = {name: data[name] for name in ("task", "label", *_COUNTS)}
        settings = Settings.from_json(data["settings"])
        return TypeAdapter(cls).validate_python({**fields, "settings": settings})


_COUNTS = ("problems", "seeds", "main")


@dataclass(frozen=True, slots=True)
class Plan:
    """All that decides the records, apart from the model."""

    conditions: Sequence[Condition]
    problems: Mapping[str, Loaded]  # by task
    seeds: Sequence[int] = (0,)
    split: str = "test"
    traces: int = 0  # problems per task whose searches are recorded step by step

    @property
    def nfe(self) -> int:
        """The most forward passes of the whole plan."""
        counts = {task: len(loaded.samples) for task, loaded in self.problems.items()}
        return sum(
            c.settings.most_nfe * c.count(counts[c.task], len(self.seeds)) for c in self.conditions
        )


def title_of(task: str) -> str:
    """A task's name in tables; accuracy on code is called pass@1 everywhere, so here, too."""
    row = benchmarks.get(task)
    return f"{row.title or task} (pass@1)" if row.answer == "code" else row.title or task


def recommendations(model: str | Model) -> SettingsOf:
    """The settings that a model, or the model of a name, recommends for each method and task."""
    recommended = models.defaults_of(model) if isinstance(model, str) else model.defaults
    return lambda method, task: Settings.recommended(recommended, method, task)


def settings_for(
    method: str, defaults: SettingsOf, overrides: Overrides | None = None, task: str | None = None
) -> Settings:
    """The defaults, then the overrides as far as the method uses them; equal runs have one form."""
    settings = defaults(method, task)
    settings = settings.replace(**settings.effective(overrides or {}))
    if "branching" in type(settings.search).model_fields and settings.search.children == 1:
        whole = settings.search.sized(settings.search.size)  # K = N·b in one form
        return settings.replace(**dict(whole))
    return settings


def grid(
    tasks: Sequence[str],
    labels: Sequence[str],
    defaults: SettingsOf,
    overrides: Overrides | None = None,
    sweeps: Mapping[str, Sequence[Any]] | None = None,
) -> list[Condition]:
    """Every condition of a sweep once, in the order of tasks, then sweep points, then labels.

    The main comparison is the point that s3 has by default, else the first.
    """
    axes = {name: values for name, values in (sweeps or {}).items() if values}
    _check_used(labels, defaults, overrides or {}, axes)
    s3 = defaults("s3", None).to_json()
    main = {n: s3[n] if s3.get(n) in values else values[0] for n, values in axes.items()}
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    conditions = []
    for task in tasks:
        for point in sorted(points, key=lambda point: point != main):
            for label in labels:
                settings = settings_for(label, defaults, {**(overrides or {}), **point}, task)
                conditions.append(Condition(task, label, settings, main=point == main))
    return unique(conditions)


def _check_used(
    labels: Sequence[str],
    defaults: SettingsOf,
    overrides: Overrides,
    axes: Mapping[str, Sequence[Any]],
) -> None:
    for name in (*overrides, *axes):
        if name == "seed":
            raise SettingsError("seed is set by --seeds N: problems are asked with 0, 1, … N − 1")
        if name not in fields():
            raise SettingsError(unknown_name("setting", name, fields()))
    changes = {**overrides, **{name: values[0] for name, values in axes.items()}}
    used = {n for label in labels for n in defaults(label, None).effective(changes)}
    for name in changes:
        if name not in used:
            raise SettingsError(
                f"{name} has no effect on {', '.join(labels)}; leave it out, or add a method "
                "that uses it (see `s3dlm list methods`)"
            )


def unique(conditions: Iterable[Condition]) -> list[Condition]:
    """The conditions without repeats; of equal ones the first counts."""
    first: dict[tuple[str, str], Condition] = {}
    for condition in conditions:
        first.setdefault((condition.label, condition.spec), condition)
    return list(first.values())


def as_sweep(conditions: Iterable[Condition], problems: int | None) -> list[Condition]:
    """The conditions outside the main comparison: one seed, and perhaps fewer problems."""
    return [replace(c, problems=problems, seeds=1, main=False) for c in conditions]


def load_problems(
    tasks: Iterable[str],
    prompt_style: str,
    *,
    data: Path | None = None,
    split: str = "test",
    limit: int | None = None,
) -> dict[str, Loaded]:
    """The problems of several tasks."""
    rows = {name: benchmarks.get(name) for name in tasks}
    return {
        name: benchmarks.load(row, prompt_style=prompt_style, data=data, split=split, limit=limit)
        for name, row in rows.items()
    }
