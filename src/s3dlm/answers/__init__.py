"""Answers: finding them in what a model wrote, spelling equal ones alike, and grading them.

No model code is needed here: this folder imports neither torch nor the rest of the package. Grading
reads gold answers, so it is not imported here: a search never does (`s3dlm.answers.grading`).
"""

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.answers.extract import KINDS, TASK_KINDS, extract, kind_of
from s3dlm.answers.normalise import normalise

__all__ = ["KINDS", "TASK_KINDS", "extract", "kind_of", "normalise", "strip_end_tokens"]
