"""Kinds of answers, one value per name: how an answer is found in a text, and spelled.

Another package adds one under the entry-point group `s3dlm.answers`. `regex:PATTERN` is a kind of its own:
the last match of the pattern (its first group, if it has one) is the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from s3dlm.answers import delimiters
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.inputs import Registry

REGEX = "regex:"
TASK_KINDS: dict[str, str] = {
    "gsm8k": "number",
    "arithmetic": "number",
    "chain": "number",
    "math500": "math",
    "aime": "math",
    "arc": "choice",
    "truthfulqa": "choice",
    "truthfulqa_mc": "choice",
    "choice": "choice",
    "countdown": "expression",
    "sudoku": "grid",
    "sudoku9": "grid",
    "sudoku9_open": "grid",
    "general": "text",
}


@dataclass(frozen=True, slots=True)
class AnswerKind:
    """A kind of answer.

    Args:
        extract: (text, question) → the answer as written, or None.
        normalise: The canonical spelling: equal answers have equal ones, and vote together.
        whole: Whether the text is read as it is, and not only up to where a model should have stopped.
        longest: Characters of a text and of an answer that are read.
        runs: Whether grading runs the answer, so that it is done once.
    """

    extract: Callable[[str, str], str | None]
    normalise: Callable[[str], str]
    whole: bool = False
    longest: int = 2000
    runs: bool = False


KINDS: Registry[AnswerKind] = Registry("answer", "s3dlm.answers", AnswerKind)


def find_kind(name: str) -> AnswerKind:
    """The kind of a name."""
    return _by_pattern(name) if name.startswith(REGEX) else KINDS.find(name)


@lru_cache(maxsize=64)
def _by_pattern(name: str) -> AnswerKind:
    try:
        pattern = re.compile(name.removeprefix(REGEX))
    except re.error as error:
        raise SettingsError(f"answer={name!r} is no regular expression: {error}") from None

    def extract(text: str, question: str) -> str | None:
        found = [match for match in pattern.finditer(text) if match[0]]
        return found[-1][1 if pattern.groups else 0] if found else None

    return AnswerKind(extract, lambda answer: " ".join(answer.split()).casefold())


def kind_of(kind_or_task: str) -> str:
    """The kind of answer a task asks for; a kind names itself."""
    if kind_or_task in TASK_KINDS:
        return TASK_KINDS[kind_or_task]
    if kind_or_task in KINDS or kind_or_task.startswith(REGEX):
        return kind_or_task
    raise SettingsError(unknown_name("task", kind_or_task, [*TASK_KINDS, *KINDS]))


def extract(kind_or_task: str, text: str, question: str = "") -> str | None:
    """The answer a text gives, as written; None when there is none."""
    return _extract(find_kind(kind_of(kind_or_task)), text, question)


@lru_cache(
    maxsize=256
)  # the parts of a verifier, and then the vote, ask for the answer of the same text
def _extract(kind: AnswerKind, text: str, question: str) -> str | None:
    if kind.runs:  # a program, whose first line may be indented
        return kind.extract(text, question)
    question = question[-delimiters.MAX_TEXT :]
    text = delimiters.strip_end_tokens(text[-delimiters.MAX_TEXT :])
    return kind.extract(text if kind.whole else delimiters.up_to_stop(text), question)


def normalise(kind_or_task: str, answer: str) -> str:
    """The canonical spelling of an answer; equal answers have equal spellings."""
    kind = find_kind(kind_of(kind_or_task))
    return kind.normalise(answer[: kind.longest])
