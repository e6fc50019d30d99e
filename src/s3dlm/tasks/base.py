"""What a benchmark is to the rest of the package: problems, a way to ask them, a name to grade by.

A task knows nothing of search, models or scoring. It names its verifier profile and its kind of
answer by string, so that a task is a small piece of data, and gold answers stay with evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from s3dlm.errors import SettingsError, unknown_name

PREFILL = "<reasoning>"  # d1 and HEX open the assistant's turn with this tag
PRESETS = ("d1", "tiny")

FORMAT = (
    "Answer in exactly this form:\n"
    "<reasoning>\nyour reasoning here\n</reasoning>\n<answer>\n{answer}\n</answer>"
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One problem. `gold` is read by evaluation alone: no prompt and no verifier ever sees it."""

    id: str
    question: str
    gold: object


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user turn and the first words of the assistant's turn."""

    user: str
    prefill: str


Row = Mapping[str, object]
Parse = Callable[[Row, int], tuple[str, object] | None]


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a data set lives on the Hugging Face hub."""

    path: str
    config: str
    split: str

    def __str__(self) -> str:
        return f"{self.path} ({self.config}, {self.split})"


@dataclass(frozen=True, slots=True)
class Source:
    """Where the rows of a benchmark come from and how a row becomes a problem.

    `parse` gives (question, gold), or None for a row the benchmark leaves out.
    """

    files: tuple[str, ...]  # names looked for in the user's data folder, first match wins
    parse: Parse
    count: int | None = None  # problems of the published set; None: any number is right
    hub: Hub | None = None
    package: Callable[[], Iterable[Row]] | None = None  # rows that ship in an optional package
    subset: int | None = None  # d1 draws this many with numpy's legacy generator, seed 42


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark: how to ask, where the problems are, and by which names to verify and grade."""

    name: str
    profile: str  # the verifier profile, by name
    answer: str  # the kind of answer, as `s3dlm.answers` names it
    instruction: str = ""  # the d1 preset's text before the question
    prefill: str = PREFILL  # the first words of the assistant's turn, in the d1 preset
    source: Source | None = None
    generated: bool = False  # `s3dlm.tasks.problems` can make problems of this task
    title: str = ""

    def render(self, question: str, preset: str) -> Prompt:
        """The prompt of one question: "d1" instructs and prefills, "tiny" asks barely."""
        if preset == "tiny":
            return Prompt(question, "")
        if preset == "d1":
            user = f"{self.instruction}\n\n{question}" if self.instruction else question
            return Prompt(user, self.prefill)
        raise SettingsError(unknown_name("preset", preset, PRESETS))


def default_preset(model: str) -> str:
    """The prompt preset that fits a model: the shipped model never learnt instructions."""
    return "tiny" if model == "tiny" else "d1"
