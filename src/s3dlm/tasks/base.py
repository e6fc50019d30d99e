"""What a benchmark is to the rest of the package: problems, a prompt template and names to grade by.

A task knows nothing of search, models or scoring. It names its verifier and its kind of
answer by string, so that a task is a small piece of data, and gold answers stay with evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.inputs import Registry

PREFILL = "<reasoning>"  # d1 and HEX open the assistant's turn with this tag
PROMPT_STYLES = ("d1", "tiny")
NONE = "none"  # instead of a task: any text, whatever it looks like


@dataclass(frozen=True, slots=True)
class Sample:
    """One problem. Only evaluation reads `gold`: no prompt and no verifier ever sees it."""

    id: str
    question: str
    gold: object
    group: str = ""  # what a report can split by within the task, such as "n=8"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user turn, the first words of the assistant's turn, and what the system says before."""

    user: str
    prefill: str
    system: str = ""


DataRow = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where the rows of a benchmark come from and how a row becomes a problem."""

    files: tuple[str, ...]  # names looked for in the user's data folder, first match wins
    # A row as (question, gold); None for a row that the benchmark leaves out.
    parse: Callable[[DataRow], tuple[str, object] | None]
    count: int | None = None  # problems of the published set; None: any number is accepted
    hub: tuple[str, str, str] | None = None  # path, config and split on the Hugging Face hub
    package: Callable[[], Iterable[DataRow]] | None = None  # rows of an optional package
    subset: int | None = None  # d1 draws this many with numpy's legacy generator, seed 42


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark: prompt template, source of problems, and names of verifier and answer format."""

    name: str
    title: str
    verifier: str  # the row of verifier/weights.py that scores its texts
    answer: str  # the kind of answer, as `s3dlm.answers` names it
    instruction: str = ""  # the d1 style's text before the question
    source: DataSource | None = None
    bundled: bool = False  # whether problems of this task ship with the package
    form: re.Pattern[str] | None = None  # of its questions, by which a small model knows them
    prefill: str = PREFILL  # the first words of the assistant's turn, in the d1 style

    def render(self, question: str, prompt_style: str) -> Prompt:
        """The prompt for a question: "d1" adds instruction and prefill, "tiny" adds nothing."""
        if prompt_style == "tiny":
            return Prompt(question, "")
        if prompt_style == "d1":
            user = f"{self.instruction}\n\n{question}" if self.instruction else question
            return Prompt(user, self.prefill)
        raise SettingsError(unknown_name("prompt_style", prompt_style, PROMPT_STYLES))


TASKS: Registry[Task] = Registry("task", "s3dlm.tasks", Task)


def get(name: str) -> Task:
    """The task of a name, of another package's entry point, or of `FILE.jsonl:TASK`, or .csv."""
    if name not in TASKS and Path(name.partition(":")[0]).suffix:
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
