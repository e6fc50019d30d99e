"""Whole answers against LLaDA's own loop that decodes once, in seconds on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import s3dlm
from benchmarks.measure import Figure, ratio
from benchmarks.models import TASKS, question_of
from benchmarks.peers import Loop
from s3dlm.models.base import Model
from s3dlm.settings import Settings

PROBLEMS = 32  # a repeat: searches stop when they are satisfied, so one problem says little
GREEDY = {"temperature": 0.0, "reveal": "threshold"}
CANVAS: Any = {"gen_length": 64, "steps": 32, "block_length": 64}


def plain_decoding(tiny: Model, wide: Model, repeats: int) -> Iterable[Figure]:
    """Greedy and `revise` on the bundled model; `revise` on random weights with LLaDA's vocabulary.

    Random weights satisfy no verifier and are never sure: there `revise` spends its whole budget.
    """
    loop, few = _loop(tiny), max(3, repeats // 4)
    for shown, method, target, given in (
        ("greedy with adaptive reveal", "baseline", "≤ 0.3", GREEDY),
        ("revise", "revise", "≤ 1.0", {}),
    ):
        name = f"{shown} / LLaDA's own loop decoding once, tiny, seconds"
        yield ratio(name, target, _answers(tiny, method, given), loop, few)
    once = Settings("baseline", temperature=0.0, **CANVAS)
    budgeted = Settings("revise", budget=24, **CANVAS)
    yield ratio(
        "revise with a budget of 24 / LLaDA's own loop decoding once, wide, seconds",
        "≤ 1.0",
        lambda index: s3dlm.generate(wide, "question", settings=budgeted.replace(seed=index)),
        lambda index: Loop(wide, "question", once).decode(),
        few,
    )


def _answers(model: Model, method: str, given: Any) -> Callable[[int], None]:
    settings = {task: Settings.for_model(model, method, task, **given) for task in TASKS}

    def run(index: int) -> None:
        for place in range(PROBLEMS):
            task, question = question_of(model, place)
            s3dlm.generate(model, question, task=task, settings=settings[task or ""])

    return run


def _loop(model: Model) -> Callable[[int], None]:
    plain = {
        task: Settings.for_model(model, "baseline", task, temperature=0.0, reveal="schedule")
        for task in TASKS
    }

    def run(index: int) -> None:
        for place in range(PROBLEMS):
            task, question = question_of(model, place)
            Loop(model, question, plain[task or ""], task).decode()

    return run
