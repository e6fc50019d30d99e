"""Answers: finding them in what a model wrote, spelling equal ones alike, and grading them.

No model code is needed here: this folder imports neither torch nor the rest of the package. Grading
reads gold answers, so it is loaded only when it is asked for: a search never imports it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.answers.extract import KINDS, TASK_KINDS, extract, kind_of
from s3dlm.answers.normalise import normalise

if TYPE_CHECKING:
    from s3dlm.answers.grading import GRADINGS, disagreement, gold_in_words, grade, notes

_GRADING = ("GRADINGS", "disagreement", "gold_in_words", "grade", "notes")

__all__ = [
    "GRADINGS", "KINDS", "TASK_KINDS", "disagreement", "extract", "gold_in_words", "grade", "kind_of",
    "normalise", "notes", "strip_end_tokens",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _GRADING:
        return getattr(import_module("s3dlm.answers.grading"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
