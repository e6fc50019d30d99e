"""The demonstration: one search shown live, then the methods side by side, in a few minutes.

The comparison asks as many problems as the time allows. It grows in rounds over one folder (a plan
may grow), so that whatever the machine, every method has answered the same problems at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from s3dlm import board, engine
from s3dlm.engine import Result
from s3dlm.evaluation import manifest, protocol, records
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.run import Observer, Plan, evaluate
from s3dlm.models.base import Model
from s3dlm.settings import Settings
from s3dlm.tasks import recommended

SHOWN = ("countdown", "Target: 45 Numbers: 8, 7, 11")
ROUNDS = (5, 10, 20, 40, 80, 160)  # problems a task
Observe = Callable[[Plan], AbstractContextManager[Observer]]


def show(model: Model, base: Settings) -> Result:
    """One search with the live board."""
    task, question = SHOWN
    events = engine.stream(model, question, task=task, settings=base.replace(method="s3"))
    title = f"s3 on {model.name}: {question}"
    last = None
    for last in board.show(events, board.pieces_of(model), model.end_ids, title=title):  # noqa: B007
        pass
    assert isinstance(last, Result)
    return last


def rounds(model: Model, base: Settings) -> Iterator[Plan]:
    """The same comparison on more and more problems."""
    tasks = recommended.tasks(model.name)
    tuned = recommended.tuned(model.name)
    conditions = plans.grid(tasks, plans.ABLATION, base, tuned=tuned)
    for limit in ROUNDS:
        problems = protocol.problems(tasks, model.preset, limit=limit)
        yield Plan(conditions, base, problems, tuned=tuned, traces=2)


def compare(
    model: Model,
    base: Settings,
    folder: Path,
    seconds: float,
    observe: Observe,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Rounds until the next would overrun the time; returns the problems asked of each task."""
    started, asked = clock(), 0
    for plan in rounds(model, base):
        before, more = clock(), _size(plan) - asked
        if asked and (before - started) * more / asked > seconds - (before - started):
            break
        with observe(plan) as observer:
            evaluate(model, plan, folder, observer=observer)
        asked = _size(plan)
    return asked


def clear(folder: Path) -> None:
    """Forget an older demonstration, which may have had other weights; touch nothing else."""
    named = [folder / name for name in (manifest.FILE, manifest.SAMPLES, records.FILE)]
    traces = [*folder.glob("traces/*.jsonl"), *folder.glob("traces/*.html")]
    for path in (*named, *traces) if named[0].is_file() else ():
        path.unlink(missing_ok=True)


def _size(plan: Plan) -> int:
    return len(next(iter(plan.problems.values())).samples)
