"""MATH-500: 500 competition problems (Hendrycks et al. 2021, the split of Lightman et al.)."""

from __future__ import annotations

from s3dlm.tasks.base import FORMAT, Hub, Row, Source, Task

INSTRUCTION = (
    "You are an expert in mathematics. Solve the problem step by step, and put the final answer "
    "inside \\boxed{}.\n" + FORMAT.format(answer="\\boxed{your answer}")
)


def parse(row: Row, index: int) -> tuple[str, object]:
    """The gold stays LaTeX: grading, not loading, decides what equals it."""
    return str(row["problem"]), str(row["answer"])


TASK = Task(
    name="math500",
    title="MATH-500",
    profile="math500",
    answer="math500",
    instruction=INSTRUCTION,
    source=Source(
        files=("math500_test.jsonl", "math500.jsonl"),
        parse=parse,
        count=500,
        hub=Hub("HuggingFaceH4/MATH-500", "default", "test"),
    ),
)
