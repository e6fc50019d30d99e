"""The demonstration: one search shown live, then a comparison of methods, in a few minutes.

The comparison uses as many problems as the time allows. It grows in rounds over one folder (a plan
may grow), so that on any machine all methods have answered the same problems at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from s3dlm import board, engine
from s3dlm.engine import Result
from s3dlm.evaluation import manifest, records
from s3dlm.evaluation.plan import ABLATION, Defaults, Plan, grid, load_problems, settings_for
from s3dlm.evaluation.run import Observer, evaluate
from s3dlm.models.base import Model

SHOWN = ("countdown", "Target: 45 Numbers: 8, 7, 11")
ROUNDS = (5, 10, 20, 40, 80, 160)  # problems per task
Observe = Callable[[Plan], AbstractContextManager[Observer]]


def show(model: Model, defaults: Defaults) -> Result:
    """One search with the live board."""
    task, question = SHOWN
    events = engine.stream(
        model, question, task=task, settings=settings_for("s3", defaults, task=task)
    )
    title = f"s3 on {model.name}: {question}"
    *_, last = board.show(events, board.pieces_of(model), model.end_ids, title=title)
    assert isinstance(last, Result)
    return last


def rounds(model: Model, defaults: Defaults) -> Iterator[Plan]:
    """The same comparison on more and more problems."""
    tasks = model.defaults.tasks
    conditions = grid(tasks, ABLATION, defaults)
    for limit in ROUNDS:
        yield Plan(
            conditions, load_problems(tasks, model.defaults.prompt_style, limit=limit), traces=2
        )


def compare(
    model: Model,
    defaults: Defaults,
    folder: Path,
    seconds: float,
    observe: Observe,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Rounds until the next would take too long; returns the number of problems per task."""
    started, asked = clock(), 0
    for plan in rounds(model, defaults):
        before, more = clock(), _size(plan) - asked
        if asked and (before - started) * more / asked > seconds - (before - started):
            break
        with observe(plan) as observer:
            evaluate(model, plan, folder, observer=observer)
        asked = _size(plan)
    return asked


def clear(folder: Path) -> None:
    """Delete an earlier demonstration, which may have had other weights, and nothing else."""
    named = [folder / name for name in (manifest.FILE, manifest.SAMPLES, records.FILE)]
    traces = [*folder.glob("traces/*.jsonl"), *folder.glob("traces/*.html")]
    for path in (*named, *traces) if named[0].is_file() else ():
        path.unlink(missing_ok=True)


def _size(plan: Plan) -> int:
    return len(next(iter(plan.problems.values())).samples)
