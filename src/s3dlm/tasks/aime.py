"""AIME 2024: 30 problems whose answers are whole numbers from 0 to 999."""

from __future__ import annotations

from s3dlm.tasks.base import Hub, Source, Task
from s3dlm.tasks.math500 import INSTRUCTION, parse

TASK = Task(
    name="aime",
    title="AIME 2024",
    profile="aime",
    answer="aime",
    instruction=INSTRUCTION,
    source=Source(
        files=("aime24_test.jsonl", "aime.jsonl"),
        parse=parse,
        count=30,
        hub=Hub("HuggingFaceH4/aime_2024", "default", "train"),
    ),
)
