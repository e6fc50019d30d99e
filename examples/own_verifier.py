"""Your own verifier: a function from (question, text, confidence) to a number from 0 to 1."""

import re

import s3dlm
from s3dlm.answers import expressions  # a calculator that is safe for model-written text


def reaches_the_target(question: str, text: str, confidence: float | None) -> float:
    """Does the answer use the given numbers, and how far is its value from the target?"""
    target, *numbers = map(int, re.findall(r"\d+", question))
    written = text.partition("<answer>")[2].partition("<")[0]
    answer = expressions.parse(written)
    value = None if answer is None else answer.value()
    if value is None:
        return 0.0
    used = sorted(map(int, re.findall(r"\d+", written))) == sorted(numbers)
    return 0.4 * used + 0.6 / (1 + abs(value - target))


result = s3dlm.generate(
    "tiny",
    "Target: 15 Numbers: 10, 1, 6",
    task="countdown",
    method="revise",
    verifier=reaches_the_target,
    budget=16,  # forward passes; a verifier with `satisfied_at` ends a search sooner
)
print(f"chosen: {result.answer}, score {result.score:.3f}")
