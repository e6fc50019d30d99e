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
from dataclasses import dataclass

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings

# "greedy" is the baseline without sampling: what LLaDA's own decoding does by default.
ALIASES: Mapping[str, Mapping[str, object]] = {"greedy": {"method": "baseline", "temperature": 0.0}}

ABLATION = ("baseline", "best_of_k", "tilting", "look_ahead", "s3")  # the paper's five rows
AXES = ("particles", "branching", "block_length", "lam", "temperature")  # what a sweep may vary


@dataclass(frozen=True, slots=True)
class Condition:
    """One cell of the grid; `settings.seed` is 0 here and set for each run."""

    task: str
    label: str
    settings: Settings

    @property
    def spec(self) -> str:
        """Twelve hex digits: equal for equal conditions, on every machine, whatever the seed."""
        plain = {"task": self.task, **self.settings.replace(seed=0).to_json()}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def budget(self) -> int:
        """K = N·b: the rows a step may cost."""
        return self.settings.particles * self.settings.branching

    def to_json(self) -> dict[str, object]:
        return {
            "spec": self.spec,
            "task": self.task,
            "label": self.label,
            "settings": self.settings.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Condition:
        settings = data["settings"]
        assert isinstance(settings, Mapping)
        return cls(str(data["task"]), str(data["label"]), Settings.from_json(settings))


def settings_of(label: str, base: Settings) -> Settings:
    """The settings a label stands for, in the one form all equal runs share."""
    if label not in METHODS and label not in ALIASES:
        raise SettingsError(unknown_name("method", label, [*METHODS, *ALIASES]))
    changes: dict[str, object] = dict(ALIASES.get(label, {"method": label}))
    method = METHODS[str(changes["method"])]
    if method.population == "one":
        changes |= {"particles": 1, "branching": 1}
    elif method.population == "all":
        changes |= {"particles": base.particles * base.branching, "branching": 1}
    if method.scored == "never":
        changes |= {"lam": 1.0, "profile": "paper"}  # without a score neither plays a part
    return base.replace(**changes)


def grid(
    tasks: Sequence[str],
    labels: Sequence[str],
    base: Settings,
    sweeps: Mapping[str, Sequence[object]] | None = None,
) -> list[Condition]:
    """Every condition of a sweep once, in the order of tasks, then sweep points, then labels."""
    axes = {name: values for name, values in (sweeps or {}).items() if values}
    for name in axes:
        if name not in AXES:
            raise SettingsError(unknown_name("sweep", name, AXES))
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    cells = (
        Condition(task, label, settings_of(label, base.replace(**point)))
        for task in tasks
        for point in points
        for label in labels
    )
    return unique(cells)


def unique(conditions: Iterable[Condition]) -> list[Condition]:
    """The conditions without repeats, first come first."""
    return list({(c.label, c.spec): c for c in conditions}.values())
