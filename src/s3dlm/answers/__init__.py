"""Answers: finding them in what a model wrote, spelling equal ones alike, and grading them.

No model code is needed here: this folder imports neither torch nor the rest of the package.
"""

from s3dlm.answers.extract import extract
from s3dlm.answers.grade import PRESETS, grade, graded_answer, notes
from s3dlm.answers.kinds import KINDS, TASK_KINDS, kind_of
from s3dlm.answers.normalise import normalise
from s3dlm.answers.text import strip_end_tokens

__all__ = [
    "KINDS",
    "PRESETS",
    "TASK_KINDS",
    "extract",
    "grade",
    "graded_answer",
    "kind_of",
    "normalise",
    "notes",
    "strip_end_tokens",
]
