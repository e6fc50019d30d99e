"""The benchmarks: one short file each, looked up by name."""

from __future__ import annotations

from importlib.metadata import entry_points

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.tasks import (
    aime,
    arc,
    arithmetic,
    choice,
    code,
    countdown,
    gsm8k,
    math500,
    sudoku,
    truthfulqa,
)
from s3dlm.tasks.base import PRESETS, Prompt, Sample, Task, default_preset
from s3dlm.tasks.custom import from_file
from s3dlm.tasks.data import Loaded, load

__all__ = [
    "PRESETS",
    "Loaded",
    "Prompt",
    "Sample",
    "Task",
    "default_preset",
    "get",
    "load",
    "names",
]

GROUP = "s3dlm.tasks"  # the entry-point group through which other packages add tasks

_BUILT_IN = {
    task.name: task
    for task in (
        gsm8k.TASK,
        math500.TASK,
        arc.TASK,
        truthfulqa.TASK,
        truthfulqa.MC,
        aime.TASK,
        countdown.TASK,
        sudoku.TASK,
        sudoku.NINE,
        arithmetic.TASK,
        choice.TASK,
        code.HUMANEVAL,
        code.MBPP,
    )
}


def names() -> list[str]:
    """Every task that `get` knows by name."""
    return [*_BUILT_IN, *sorted(entry.name for entry in entry_points(group=GROUP))]


def get(name: str) -> Task:
    """The task of a name, of another package's entry point, or of `FILE.jsonl:PROFILE`."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if ".jsonl" in name:
        return from_file(name)
    for entry in entry_points(group=GROUP, name=name):
        task = entry.load()
        if not isinstance(task, Task):
            raise SettingsError(
                f"entry point {name!r} of group {GROUP!r} gives {type(task).__name__}; it must "
                "be a s3dlm.tasks.Task"
            )
        return task
    raise SettingsError(unknown_name("task", name, names()))
