"""Choice: the shipped model's multiple-choice questions on number and word facts, generated."""

from __future__ import annotations

from s3dlm.tasks.arc import TASK as ARC
from s3dlm.tasks.base import Task

TASK = Task(
    name="choice",
    title="Choice",
    profile="arc",
    answer="arc",
    instruction=ARC.instruction,
    generated=True,
)
