"""The demonstration: one search shown live, then a comparison of methods, in two minutes.

The comparison uses as many problems as the time allows. It grows in rounds over one folder (a plan
may grow), so that on any machine all methods have answered the same problems at the end. When it stops
depends on the clock alone, never on the results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from s3dlm import board, engine
from s3dlm.engine import Result
from s3dlm.evaluation import manifest, records
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.plan import Condition, Plan, SettingsOf, load_problems, title_of
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Display, Runner, evaluate
from s3dlm.models.base import Model

COMPARED = ("greedy", "best_of_k", "verified_best_of_k", "s3", "restarts", "revise")
REFERENCE = "greedy"  # what a user has without the package
# For every method that has the setting: what differs is the search, and how it ends.
OVERRIDES = {"reveal": "threshold", "verifier": "checker", "look_aheads": 16}
LIVE = (
    "chain",
    9,
)  # the search that is shown: a problem of `tiny` that takes several rounds
ROUNDS = (5, *range(10, 201, 10))  # problems per task


def live_problem(model: Model) -> tuple[str, str]:
    """Task and question of a test problem that has something to show."""
    tasks = model.defaults.tasks
    task, number = LIVE if LIVE[0] in tasks else (tasks[0], 0)
    problems = load_problems([task], model.defaults.prompt_style, limit=number + 1)
    return task, problems[task].samples[-1].question


def show_live(model: Model, defaults: SettingsOf, task: str, question: str) -> Result:
    """One search with the live board."""
    settings = plans.settings_for("revise", defaults, task=task)
    search = engine.stream(model, question, task=task, settings=settings)
    title = f"revise on {model.name}"
    for _ in board.draw_search(
        search.events,
        board.pieces_of(model),
        model.end_ids,
        title=title,
        pace=board.STEPS_PER_SECOND,
    ):
        pass
    return search.result


def growing_plans(model: Model, defaults: SettingsOf) -> Iterator[Plan]:
    """The same comparison on more and more problems."""
    tasks, style = model.defaults.tasks, model.defaults.prompt_style
    conditions = plans.grid(tasks, COMPARED, defaults, OVERRIDES)
    for limit in ROUNDS:
        problems = load_problems(tasks, style, limit=limit)
        yield Plan(conditions, problems, traces=2)


def compare_in_time(
    runner: Model | Runner,
    growing: Iterator[Plan],
    folder: Path,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Rounds until the next would take too long; returns the number of problems per task."""
    started, done = clock(), 0
    with TimeBar(seconds) as observer:
        for plan in growing:
            size = len(next(iter(plan.problems.values())).samples)
            spent, more = clock() - started, size - done
            if more == 0 or (done and spent * more / done > seconds - spent):
                break
            evaluate(runner, plan, folder, observer=observer)
            done = size
    return done


class TimeBar(Display):
    """The observer of the comparison: the bar is that of the time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds, self.started, self.count = seconds, time.monotonic(), 0

    def record(self, condition: Condition, record: Record | Failure) -> None:
        self.count += 1
        spent = time.monotonic() - self.started
        self.progress.update(self.bar, completed=spent)
        place = f"{title_of(condition.task)}, {condition.label}"
        self.show(f"{spent:.0f} of {self.seconds:.0f} s: {self.count:,} answers ({place})")


def clear(folder: Path) -> None:
    """Delete an earlier demonstration, which may have had other weights, and nothing else."""
    named = [folder / name for name in (manifest.MANIFEST, manifest.SAMPLES, records.RECORDS)]
    traces = [*folder.glob("traces/*.jsonl"), *folder.glob("traces/*.html")]
    for path in (*named, *traces) if named[0].is_file() else ():
        path.unlink(missing_ok=True)
