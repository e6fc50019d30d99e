"""The demonstration: one search shown live, then a comparison of methods, in about two minutes."""

from __future__ import annotations

from pathlib import Path

from s3dlm import board, engine
from s3dlm.engine import Result
from s3dlm.evaluation import manifest, records
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.plan import Plan, SettingsOf, load_problems
from s3dlm.models.base import Model

COMPARED = ("greedy", "best_of_k", "verified_best_of_k", "s3", "restarts", "revise")
REFERENCE = "greedy"  # what a user has without the package
# For every method that has the setting: what differs is the search, and how it ends.
OVERRIDES = {"reveal": "threshold", "verifier": "checker", "look_aheads": 16}
LIVE = ("chain", 9)  # the search that is shown: a problem of `tiny` that takes several rounds


def live_problem(model: Model) -> tuple[str, str]:
    """Task and question of a test problem that has something to show."""
    tasks = model.defaults.tasks
    task, number = LIVE if LIVE[0] in tasks else (tasks[0], 0)
    problems = load_problems([task], model.defaults.prompt_style, limit=number + 1)
    return task, problems[task].samples[-1].question


def show_live(model: Model, task: str, question: str) -> Result:
    """One search with the live board."""
    search = engine.stream(model, question, task=task, method="revise")
    drawn = board.draw_search(
        search.events, board.pieces_of(model), model.end_ids, title=f"revise on {model.name}",
        pace=board.STEPS_PER_SECOND,
    )  # fmt: skip
    list(drawn)
    return search.result


def comparison(model: Model, defaults: SettingsOf, limit: int) -> Plan:
    """The methods on the first problems of every task."""
    tasks = model.defaults.tasks
    problems = load_problems(tasks, model.defaults.prompt_style, limit=limit)
    return Plan(plans.grid(tasks, COMPARED, defaults, OVERRIDES), problems, traces=2)


def clear(folder: Path) -> None:
    """Delete an earlier demonstration, which may have had other weights, and nothing else."""
    named = [folder / name for name in (manifest.MANIFEST, manifest.SAMPLES, records.RECORDS)]
    traces = [*folder.glob("traces/*.jsonl"), *folder.glob("traces/*.html")]
    for path in (*named, *traces) if named[0].is_file() else ():
        path.unlink(missing_ok=True)
