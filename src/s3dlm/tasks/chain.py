"""Chain: a running calculation of two to ten steps, generated; accuracy falls with its length."""

from __future__ import annotations

from s3dlm.tasks.base import Task
from s3dlm.tasks.gsm8k import TASK as GSM8K

TASK = Task(
    name="chain",
    title="Chain",
    profile="gsm8k",
    answer="gsm8k",
    instruction=GSM8K.instruction,
    generated=True,
)
