"""What is to be evaluated, as plain data: a grid of conditions, each with a stable hash.

A condition is one cell of a table: a task, a label such as "s3", and all settings but the seed.
Two ways of writing the same run are one condition: best-of-K knows only K = N·b, and the baseline
has neither particles nor branches, so a sweep never pays for them twice.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings

# "greedy" is the baseline without sampling: what LLaDA's own decoding does by default.
# "s3_paper" is s3 with the paper's λ, whatever was tuned.
ALIASES: Mapping[str, Mapping[str, object]] = {
    "greedy": {"method": "baseline", "temperature": 0.0},
    "s3_paper": {"method": "s3", "lam": 1.0},
}

ABLATION = ("baseline", "best_of_k", "tilting", "look_ahead", "s3")  # the paper's five rows
AXES = ("particles", "branching", "block_length", "lam", "temperature")  # what a sweep may vary


DEFAULTS = Settings().to_json()

Tuned = Mapping[str, Mapping[str, object]]  # settings that one label alone has, by label


@dataclass(frozen=True, slots=True)
class Condition:
    """One cell of the grid; `settings.seed` is 0 here and set for each run.

    A sweep may be content with fewer problems and seeds than the main comparison; how many does
    not change what a row means, so it is no part of the hash.
    """

    task: str
    label: str
    settings: Settings
    problems: int | None = None  # the first so many; None: all
    seeds: int | None = None

    @property
    def spec(self) -> str:
        """Twelve hex digits: equal for equal conditions, on every machine, whatever the seed.

        Only what differs from the defaults is hashed, so that a setting the package learns later
        leaves older runs their names; the manifest, which has every value, guards the rest.
        """
        changed = {k: v for k, v in self.settings.to_json().items() if v != DEFAULTS[k]}
        plain = {"task": self.task, **changed}
        plain.pop("seed", None)
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def count(self, problems: int, seeds: int) -> int:
        """Samples this condition asks for of what a run has."""
        return min(problems, self.problems or problems) * min(seeds, self.seeds or seeds)

    def to_json(self) -> dict[str, object]:
        return {
            "spec": self.spec,
            "task": self.task,
            "label": self.label,
            "problems": self.problems,
            "seeds": self.seeds,
            "settings": self.settings.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Condition:
        fields = {name: data[name] for name in ("task", "label", "problems", "seeds")}
        return cls(settings=Settings.from_json(data["settings"]), **fields)


def settings_of(label: str, base: Settings, tuned: Tuned | None = None) -> Settings:
    """The settings a label stands for, in the one form all equal runs share."""
    if label not in METHODS and label not in ALIASES:
        raise SettingsError(unknown_name("method", label, [*METHODS, *ALIASES]))
    changes: dict[str, object] = {
        **(tuned or {}).get(label, {}),
        **ALIASES.get(label, {"method": label}),
    }
    method = METHODS[str(changes["method"])]
    if method.population == "one":
        changes |= {"particles": 1, "branching": 1}
    elif method.population == "all":
        changes |= {"particles": base.particles * base.branching, "branching": 1}
    if method.scored == "never":
        changes |= {"lam": 1.0, "profile": None}  # without a score neither plays a part
    return base.replace(**changes)


def grid(
    tasks: Sequence[str],
    labels: Sequence[str],
    base: Settings,
    sweeps: Mapping[str, Sequence[object]] | None = None,
    tuned: Tuned | None = None,
) -> list[Condition]:
    """Every condition of a sweep once, in the order of tasks, then sweep points, then labels."""
    axes = {name: values for name, values in (sweeps or {}).items() if values}
    for name in axes:
        if name not in AXES:
            raise SettingsError(unknown_name("sweep", name, AXES))
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    cells = (
        Condition(task, label, settings_of(label, base.replace(**point), _untouched(tuned, axes)))
        for task in tasks
        for point in points
        for label in labels
    )
    return unique(cells)


def _untouched(tuned: Tuned | None, axes: Iterable[str]) -> Tuned:
    """What was tuned, less what a sweep varies: the sweep's value is meant."""
    return {
        label: {name: value for name, value in own.items() if name not in set(axes)}
        for label, own in (tuned or {}).items()
    }


def limited(
    conditions: Iterable[Condition], problems: int | None, seeds: int | None
) -> list[Condition]:
    """The conditions on fewer problems and seeds."""
    return [replace(c, problems=problems, seeds=seeds) for c in conditions]


def unique(conditions: Iterable[Condition]) -> list[Condition]:
    """The conditions without repeats, first come first: name the main comparison first."""
    found: dict[tuple[str, str], Condition] = {}
    for condition in conditions:
        found.setdefault((condition.label, condition.spec), condition)
    return list(found.values())
