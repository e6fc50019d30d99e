"""The benchmarks, looked up by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from s3dlm.errors import SettingsError, short_repr
from s3dlm.inputs import Registry
from s3dlm.tasks.base import PROMPT_STYLES, Prompt, Sample, Task
from s3dlm.tasks.benchmarks import BENCHMARKS
from s3dlm.tasks.data import Loaded, load, require_file, task_of_file

__all__ = [
    "NONE",
    "PROMPT_STYLES",
    "Loaded",
    "Prompt",
    "Sample",
    "Task",
    "get",
    "load",
    "names",
    "of_question",
    "outside",
    "require_file",
]

NONE = "none"  # instead of a task: any text, whatever it looks like

TASKS: Registry[Task] = Registry("task", "s3dlm.tasks", Task)
for _task in BENCHMARKS:
    TASKS.register(_task.name, _task)


def names() -> list[str]:
    """Every task that `get` finds by name."""
    return list(TASKS)


def get(name: str) -> Task:
    """The task of a name, of another package's entry point, or of `FILE.jsonl:TASK`, or .csv."""
    if ".jsonl" in name or ".csv" in name:
        return task_of_file(name)
    if Path(name.partition(":")[0]).suffix:
        raise SettingsError(
            f"task={name!r} looks like a file, but problems are read from JSON lines or CSV; "
            "write FILE.jsonl:TASK or FILE.csv:TASK, for example problems.jsonl:gsm8k"
        )
    return TASKS.find(name)


def of_question(given: str | None, question: object, known: Sequence[str]) -> str | None:
    """The task that was given; without one, that of a model's own tasks whose form the question has."""
    if given is not None:
        return None if given == NONE else given
    text = question.strip() if isinstance(question, str) else ""  # no text: told where it is read
    forms = ((name, get(name).form) for name in known)
    return next((name for name, form in forms if form and form.fullmatch(text)), None)


def outside(model: str, known: Sequence[str], given: str | None, question: object) -> str | None:
    """Why a model would write nonsense: every task that it knows has a form, and no task was given and
    the question has none of these forms. None: it may well answer."""
    small = given is None and all(get(name).form is not None for name in known)
    if not small or of_question(None, question, known) is not None:
        return None
    kinds = f"{model} knows {len(known)} kinds of question"
    return f"{kinds}, and {short_repr(question)} is not one of them"
