"""GSM8K: 1319 grade-school word problems (Cobbe et al. 2021), asked as d1 and HEX ask them."""

from __future__ import annotations

from s3dlm.tasks.base import FORMAT, Hub, Row, Source, Task


def parse(row: Row, index: int) -> tuple[str, object]:
    """The gold is what stands behind `####`, as a number; thousands commas and `$` are dropped."""
    gold = str(row["answer"]).rsplit("####", 1)[-1].strip()
    return str(row["question"]), float(gold.replace(",", "").replace("$", ""))


TASK = Task(
    name="gsm8k",
    title="GSM8K",
    profile="gsm8k",
    answer="gsm8k",
    instruction=(
        "You are an expert in mathematics. Solve the problem step by step, and put the final "
        "answer inside \\boxed{}.\n" + FORMAT.format(answer="\\boxed{your answer}")
    ),
    source=Source(
        files=("gsm8k_test.jsonl", "gsm8k.jsonl"),
        parse=parse,
        count=1319,
        hub=Hub("openai/gsm8k", "main", "test"),
    ),
)
