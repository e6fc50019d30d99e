"""Prompts of one's own: a TOML file with a table per task, instead of the templates of benchmarks.py.

    [gsm8k]
    user = "Solve this, and box the answer: {question}"
    prefill = "<reasoning>"
    system = "You are careful."

The ranking of methods can change with the wording, so a report names the file with a hash of what it says.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.tasks.base import Prompt

PLACE = "{question}"


@dataclass(frozen=True, slots=True)
class Prompts:
    """Templates by task.

    Args:
        name: Of the file, with a hash of its templates.
        templates: Prompts whose user turn has `{question}` where the question goes.
    """

    name: str
    templates: Mapping[str, Prompt]

    def render(self, task: str, question: str) -> Prompt:
        """The prompt for a question."""
        if task not in self.templates:
            raise SettingsError(unknown_name(f"task of {self.name}", task, self.templates))
        found = self.templates[task]
        return Prompt(found.user.replace(PLACE, question), found.prefill, found.system)


def read(path: str | Path) -> Prompts:
    """The prompts of a file, or an error that says what is wrong with it."""
    shape = f"a table per task with user (which holds {PLACE} once), and perhaps prefill and system"
    try:
        tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        templates = {task: Prompt(**{"prefill": "", **table}) for task, table in tables.items()}
        for task, each in templates.items():
            if not all(isinstance(part, str) for part in (each.user, each.prefill, each.system)):
                raise ValueError(f"[{task}] has a value that is no text")
            if each.user.count(PLACE) != 1:
                raise ValueError(f"[{task}] has {each.user.count(PLACE)} {PLACE} in user")
        if not templates:
            raise ValueError("it has no table")
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(
            f"prompts={str(path)!r} cannot be used: {getattr(error, 'strerror', None) or error}; give {shape}"
        ) from error
    text = repr(sorted((task, each) for task, each in templates.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return Prompts(f"{Path(path).name} ({digest})", templates)
