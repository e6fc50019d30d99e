"""Countdown: reach the target with every number exactly once (d1's 256 problems, or generated)."""

from __future__ import annotations

from s3dlm.tasks.base import FORMAT, Row, Source, Task


def parse(row: Row, index: int) -> tuple[str, object]:
    """d1's rows are `"30,100,93"` and `"23"`; the gold is the pool and the target."""
    numbers = [int(part) for part in str(row["input"]).split(",")]
    target = int(str(row["output"]))
    return f"Numbers: {numbers}\nTarget: {target}", [numbers, target]


def pool(gold: str) -> list[object]:
    """The gold of a generated problem, `target|numbers`, in the form grading reads."""
    target, _, numbers = gold.partition("|")
    return [[int(part) for part in numbers.split(",")], int(target)]


TASK = Task(
    name="countdown",
    title="Countdown",
    profile="countdown",
    answer="countdown",
    instruction=(
        "Using only the numbers given, write an arithmetic expression that equals the target. "
        "Use each number exactly once, with +, -, * and / and brackets as you need. Reason step "
        "by step, then put the expression alone, without an equals sign, inside \\boxed{}.\n"
        + FORMAT.format(answer="\\boxed{expression}")
    ),
    source=Source(files=("countdown_cd3_test.jsonl", "countdown.jsonl"), parse=parse, count=256),
    generated=True,
)
