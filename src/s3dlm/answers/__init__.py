"""Answers: finding them in what a model wrote, spelling equal ones alike, and grading them.

No model code is needed here: this folder imports neither torch nor the rest of the package.
"""

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.answers.extract import KINDS, TASK_KINDS, extract, kind_of
from s3dlm.answers.grade import GRADINGS, disagreement, gold_in_words, grade, notes
from s3dlm.answers.normalise import normalise

__all__ = [
    "GRADINGS",
    "KINDS",
    "TASK_KINDS",
    "disagreement",
    "extract",
    "gold_in_words",
    "grade",
    "kind_of",
    "normalise",
    "notes",
    "strip_end_tokens",
]
