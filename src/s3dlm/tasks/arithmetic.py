"""Arithmetic: the shipped model's word problems of two to four steps, generated from a seed."""

from __future__ import annotations

from s3dlm.tasks.base import Task
from s3dlm.tasks.gsm8k import TASK as GSM8K

TASK = Task(
    name="arithmetic",
    title="Arithmetic",
    profile="gsm8k",
    answer="gsm8k",
    instruction=GSM8K.instruction,
    generated=True,
)
