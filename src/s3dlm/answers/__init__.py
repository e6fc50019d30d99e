"""Answers: finding them in what a model wrote, spelling equal ones alike, and grading them.

No model code is needed here: this folder does not import torch. Grading
reads gold answers, so it is not imported here: a search never does (`s3dlm.answers.grading`).
"""

from s3dlm.answers.delimiters import strip_end_tokens
from s3dlm.answers.extract import EXTRACTORS
from s3dlm.answers.normalise import NORMALISERS

# Behind the modules of the same names, in whose place the functions stand.
from s3dlm.answers.kinds import (  # isort: skip
    KINDS,
    TASK_KINDS,
    AnswerKind,
    extract,
    kind_of,
    normalise,
)

__all__ = [
    "KINDS",
    "TASK_KINDS",
    "AnswerKind",
    "extract",
    "kind_of",
    "normalise",
    "strip_end_tokens",
]

for _name, _extract in EXTRACTORS.items():
    KINDS.register(_name, AnswerKind(_extract, NORMALISERS[_name], whole=_name == "text"))
