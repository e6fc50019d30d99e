"""Searches of the bundled model watched step by step: what look-aheads know, and who survives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import ClassVar

import numpy as np
import pandas as pd

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, run
from s3dlm.search.method import Verified
from s3dlm.search.particles import Ints
from s3dlm.search.samples import BestOfK
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.tasks import Sample
from s3dlm.tasks.data import load
from s3dlm.verifier import for_task

SPLIT = "validation"
TRAJECTORIES = 8
LAMBDAS = (1.0, 3.0, 10.0, 30.0)
BINS = 10


class Watched(BestOfK):
    """Independent trajectories whose look-aheads are scored at every step, and nothing else."""

    name = "watched"
    verified: ClassVar[Verified] = "every step"


def searches(
    model: s3dlm.Model, task: str, settings: Settings, verifier: str, limit: int
) -> Iterator[tuple[Sample, list[Step]]]:
    """One search per problem, as its steps."""
    row = tasks.get(task)
    loaded = load(row, prompt_style=model.defaults.prompt_style, split=SPLIT, limit=limit)
    judge = for_task(row.verifier, verifier)
    samples = loaded.samples
    jobs = [Job(sample.question, task, settings, sample.id, judge) for sample in samples]
    steps: list[list[Step]] = [[] for _ in samples]
    for index, event in run(model, jobs):
        if isinstance(event, Step):
            steps[index].append(event)
        else:
            yield samples[index], steps[index]
            steps[index] = []


def reader(model: s3dlm.Model, task: str, sample: Sample) -> Callable[[Ints], float]:
    """Whether a row of tokens is a right answer to a problem."""
    kind, ends = tasks.get(task).answer, list(model.end_ids)

    @cache
    def right(row: bytes) -> float:
        tokens = np.frombuffer(row, dtype=np.int64)
        stop = np.flatnonzero(np.isin(tokens, ends))
        text = model.tokenizer.decode(tokens[: stop[0] if stop.size else tokens.size].tolist())
        return grade(kind, text, sample.gold, "fixed", sample.question)

    return lambda tokens: right(np.ascontiguousarray(tokens, dtype=np.int64).tobytes())


def look_aheads(
    model: s3dlm.Model, names: Sequence[str], limit: int, verifier: str
) -> pd.DataFrame:
    """Every look-ahead of every trajectory: how far it was, its score, whether its text was right, and
    whether the trajectory's answer was in the end."""
    rows = []
    for task in names:
        for reveal in ("schedule", "threshold"):
            settings = Settings.for_model(model, "best_of_k", task)
            settings = settings.replace(
                method=Watched, particles=TRAJECTORIES, branching=1, reveal=reveal
            )
            for sample, steps in searches(model, task, settings, verifier, limit):
                right = reader(model, task, sample)
                final = [right(tokens) for tokens in steps[-1].clean]
                for step in steps:
                    done = (step.index + 1) / len(steps)
                    for child in range(len(step.tokens)):
                        now = right(step.clean[child])
                        score = float(step.score[child])
                        rows.append(
                            (task, reveal, sample.id, child, done, score, now, final[child])
                        )
    columns = ["task", "reveal", "sample", "trajectory", "progress", "score", "right", "final"]
    return pd.DataFrame(rows, columns=columns)


def by_progress(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of right look-aheads, and the AUC of their scores within a problem for the answer that the
    trajectory ends with, by the share of the search's steps that is done."""
    place = np.ceil(frame.progress * BINS).astype(int)
    rows = []
    for (reveal, bin_), part in frame.groupby([frame.reveal, place]):
        wins = pairs = 0.0
        for _, group in part.groupby(["task", "sample"]):
            # one look-ahead per trajectory, so that a slow one does not count more
            last = group.groupby("trajectory").last()
            good, bad = last.score[last.final == 1], last.score[last.final == 0]
            gap = good.to_numpy()[:, None] - bad.to_numpy()[None]
            wins, pairs = wins + (gap > 0).sum() + (gap == 0).sum() / 2, pairs + gap.size
        auc = wins / pairs if pairs else np.nan
        rows.append((reveal, bin_ / BINS, part.right.mean(), auc, pairs))
    return pd.DataFrame(rows, columns=["reveal", "progress", "right", "auc", "pairs"])


def genealogy(model: s3dlm.Model, names: Sequence[str], limit: int) -> pd.DataFrame:
    """For each λ and step of s3 with 8 particles of 2 children: parents with offspring, particles with
    a descendant at the end, the share of the weights' effective sample size, and different canvases."""
    rows = []
    for task in names:
        for lam in LAMBDAS:
            settings = Settings.for_model(model, "s3", task)
            settings = settings.replace(particles=8, branching=2, lam=lam)
            for sample, steps in searches(model, task, settings, settings.verifier, limit):
                living = _living(steps)
                for step, alive in zip(steps, living, strict=True):
                    survivors = step.tokens[step.survivor]
                    rows.append(
                        (task, lam, sample.id, (step.index + 1) / len(steps), step.unique_ancestors,
                         alive, step.ess / len(step.tokens), len(np.unique(survivors, axis=0)))
                    )  # fmt: skip
    columns = ["task", "lam", "sample", "progress", "parents", "living", "ess", "texts"]
    return pd.DataFrame(rows, columns=columns)


def _living(steps: Sequence[Step]) -> list[int]:
    """Of each step's survivors, how many have a descendant among the last ones."""
    alive = set(range(steps[-1].survivor.size))
    counts = []
    for step in reversed(steps):
        counts.append(len(alive))
        alive = {int(step.parent[step.survivor[place]]) for place in alive}
    return counts[::-1]
