"""Answers: finding them in what a model wrote, spelling equal ones alike, and grading them.

No model code is needed here: this folder does not import torch. Grading
reads gold answers, so it is not imported here: a search never does (`s3dlm.answers.grading`).
"""

import re

from s3dlm.answers import extraction, spelling
from s3dlm.answers.kinds import KINDS as KINDS
from s3dlm.answers.kinds import TASK_KINDS as TASK_KINDS
from s3dlm.answers.kinds import AnswerKind as AnswerKind
from s3dlm.answers.kinds import extract as extract
from s3dlm.answers.kinds import kind_of as kind_of
from s3dlm.answers.kinds import normalise as normalise

for _name, _kind in {
    "number": AnswerKind(extraction.number, spelling.number),
    "math": AnswerKind(extraction.content, spelling.math),
    "choice": AnswerKind(extraction.choice, lambda a: a.strip(" \t\n.()[]{}*:").upper()),
    "expression": AnswerKind(extraction.expression, spelling.expression),
    "grid": AnswerKind(extraction.grid, lambda a: re.sub(r"[^0-9]", "", a.replace(".", "0"))),
    "text": AnswerKind(lambda text, _: text or None, lambda a: " ".join(a.split()), whole=True),
}.items():
    KINDS.register(_name, _kind)
