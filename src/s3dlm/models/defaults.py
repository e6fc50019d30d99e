"""What a model recommends when the user says nothing: how to word prompts, tasks, settings.

A checkpoint folder may hold a file `s3dlm.json` with these; a folder without one gets the paper's
settings. Reading it needs no torch, so commands can tell before the weights are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.folder import read_json
from s3dlm.tasks.base import Prompt, Task
from s3dlm.tasks.prompts import Prompts
from s3dlm.verifier.names import bundled_verifiers

DEFAULTS_FILE = "s3dlm.json"
BUNDLED = {name: Path(__file__).parent / name for name in ("tiny", "sudoku9", "noisy9")}
EVERY_METHOD = "*"


@dataclass(frozen=True, slots=True)
class Defaults:
    """A model's own recommendations."""

    prompt_style: str = "d1"
    tasks: tuple[str, ...] = ("gsm8k", "math500", "arc", "truthfulqa", "aime")
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By method name, by "task:NAME", by both as in "revise task:NAME", and under "*" for all."""
    prompts: Prompts | None = None  # the user's own, instead of those of the style

    def prompt(self, task: Task, question: str) -> Prompt:
        """How a question of a task is asked."""
        if self.prompts is None:
            return task.render(question, self.prompt_style)
        return self.prompts.render(task.name, question)

    @property
    def wording(self) -> str:
        """What the prompts are called in a report."""
        return self.prompt_style if self.prompts is None else self.prompts.name

    def layers(self, method: str, task: str | None, like: str = "") -> list[Mapping[str, Any]]:
        """The settings recommended for a method, each over those before: those of the method that it is
        like, if there is one, then its own; a task's come last."""
        both = (like, method)
        keys = (EVERY_METHOD, *both, f"task:{task}", *(f"{each} task:{task}" for each in both))
        return [self.settings.get(key, {}) for key in keys]


def defaults_in(folder: Path) -> Defaults:
    """The recommendations of a checkpoint folder."""
    if not (folder / DEFAULTS_FILE).is_file():
        return Defaults()
    data = read_json(folder / DEFAULTS_FILE)
    allowed = {"prompt_style": str, "tasks": list, "settings": dict}
    for name, value in data.items():
        if name not in allowed or not isinstance(value, allowed[name]):
            raise ModelError(
                f"{folder / DEFAULTS_FILE}: {name!r} is not allowed; the file may have prompt_style (a "
                "name), tasks (names) and settings (an object of objects)"
            )
    for name, settings in data.get("settings", {}).items():
        verifier = settings.get("verifier", "paper") if isinstance(settings, dict) else settings
        if verifier not in bundled_verifiers():
            raise ModelError(
                f"{folder / DEFAULTS_FILE}: settings {short_repr(name)} have the verifier "
                f"{short_repr(verifier)}; a model's file may name only {' or '.join(bundled_verifiers())}, "
                "which run nothing and open no connection; name another one yourself"
            )
    if "tasks" in data:
        data["tasks"] = tuple(data["tasks"])
    return Defaults(**data)


def defaults_of(name: str) -> Defaults:
    """The recommendations of a model by name, without loading it."""
    folder = BUNDLED.get(name, Path(name))
    return defaults_in(folder) if folder.is_dir() else Defaults()
