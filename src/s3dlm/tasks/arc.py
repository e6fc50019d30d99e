"""ARC-Challenge: 1172 school science questions (Clark et al. 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from s3dlm.tasks.base import FORMAT, Hub, Row, Source, Task
from s3dlm.tasks.options import LETTERS, lettered


def parse(row: Row, index: int) -> tuple[str, object]:
    """Numeric labels (1–4) become letters, which a verifier of letters can read."""
    choices = cast("Mapping[str, Sequence[str]]", row["choices"])
    labels = [str(label) for label in choices["label"]]
    gold = LETTERS[labels.index(str(row["answerKey"]))]
    return lettered(str(row["question"]), choices["text"]), gold


TASK = Task(
    name="arc",
    title="ARC-C",
    profile="arc",
    answer="arc",
    instruction=(
        "You are an expert in science. Read the question and its options, reason step by step, "
        "and put the letter of the ONE best option inside \\boxed{}.\n"
        + FORMAT.format(answer="\\boxed{letter}")
    ),
    source=Source(
        files=("arc_challenge_test.jsonl", "arc.jsonl"),
        parse=parse,
        count=1172,
        hub=Hub("allenai/ai2_arc", "ARC-Challenge", "test"),
    ),
)
