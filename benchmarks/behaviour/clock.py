"""Where the time of a search goes: forward passes, sampling, verifier, and the search's own work."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pandas as pd

import s3dlm
from benchmarks.behaviour.steps import SPLIT
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, Result, run
from s3dlm.settings import Settings
from s3dlm.tasks.data import load
from s3dlm.verifier import for_task

PARTS = ("forward", "sampling", "verifier")
# Labels, each a method and what differs from its recommended settings.
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "greedy": ("greedy", {}),
    "best_of_k 8": ("best_of_k", {"particles": 8, "branching": 1}),
    "best_of_k 32": ("best_of_k", {"particles": 32, "branching": 1}),
    "verified 8": ("verified_best_of_k", {"particles": 8, "branching": 1}),
    "verified 32": ("verified_best_of_k", {"particles": 32, "branching": 1}),
    "s3 4 × 2": ("s3", {"particles": 4, "branching": 2}),
    "s3 8 × 2": ("s3", {"particles": 8, "branching": 2}),
    "s3 8 × 4": ("s3", {"particles": 8, "branching": 4}),
}


def measure(model: s3dlm.Model, names: Sequence[str], limit: int) -> pd.DataFrame:
    """Accuracy, NFE and seconds per problem, the mean over the tasks; all jobs of a task in one batch."""
    rows = []
    for label, (method, changes) in ROWS.items():
        for task in names:
            row = tasks.get(task)
            samples = load(
                row, prompt_style=model.defaults.prompt_style, split=SPLIT, limit=limit
            ).samples
            settings = Settings.for_model(model, method, task).replace(**changes)
            verifier = for_task(row.verifier, settings.verifier)
            jobs = [Job(sample.question, task, settings, sample.id, verifier) for sample in samples]
            started = time.perf_counter()
            results = {i: event for i, event in run(model, jobs) if isinstance(event, Result)}
            seconds = (time.perf_counter() - started) / len(jobs)
            for index, result in results.items():
                gold, question = samples[index].gold, samples[index].question
                right = grade(row.answer, result.text, gold, "fixed", question)
                shares = [result.timings[part] for part in PARTS]
                rows.append((label, right, result.nfe, seconds, *shares))
    columns = ["method", "accuracy", "nfe", "seconds", *PARTS]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.groupby("method", sort=False, as_index=False).mean()
