"""What the prefix cache costs and saves on `tiny`: `python -m benchmarks.prefix_cache`.

Accuracy with and without it on the same problems and seeds, with how many answers it changed each
way, and the tokens that went through the network, which no busy machine can blur.
"""

from __future__ import annotations

import argparse
from typing import Any

import s3dlm
from benchmarks.models import TASKS
from benchmarks.run import TINY
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.evaluation.statistics import sign_test
from s3dlm.models.base import Model
from s3dlm.settings import Settings


def counted(model: Model) -> list[int]:
    """A list that grows by the tokens of every forward of the model's body."""
    network: Any = model.denoiser
    inner, seen = network.body, []

    def body(tokens: Any, *rest: Any) -> Any:
        seen.append(tokens.numel())
        return inner(tokens, *rest)

    network.body = body
    return seen


def right(model: Model, task: str, count: int, settings: Settings) -> list[bool]:
    samples = tasks.load(tasks.get(task), prompt_style="tiny", limit=count).samples
    questions = [sample.question for sample in samples]
    results = s3dlm.generate_batch(model, questions, task=task, settings=settings)
    return [
        grade(task, result.text, sample.gold, question=sample.question) == 1.0
        for sample, result in zip(samples, results, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="problems of each task")
    parser.add_argument("--block-length", type=int, default=64)
    chosen = parser.parse_args()
    settings = TINY.replace(block_length=chosen.block_length)
    plain, cached = s3dlm.load("tiny"), s3dlm.load("tiny", prefix_cache=True)
    seen = [counted(plain), counted(cached)]
    for task in TASKS:
        without, with_it = (right(one, task, chosen.count, settings) for one in (plain, cached))
        lost = sum(a and not b for a, b in zip(without, with_it, strict=True))
        won = sum(b and not a for a, b in zip(without, with_it, strict=True))
        tokens = sum(seen[1]) / sum(seen[0])
        for one in seen:
            one.clear()
        print(
            f"{task:12} plain {sum(without)}/{chosen.count}, cached {sum(with_it)}/{chosen.count} "
            f"(lost {lost}, won {won}, p = {sign_test(won, lost):.2f}); tokens forwarded × {tokens:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
