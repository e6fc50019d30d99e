"""The data of the figures as data frames: drawn by figures.py, written beside them as CSV."""

from __future__ import annotations

import functools
import math
from dataclasses import astuple
from itertools import product, zip_longest

import numpy as np
import pandas as pd

from s3dlm import tasks, verifier
from s3dlm.answers.grading import grade
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.statistics import Cell
from s3dlm.evaluation.tables import by_method
from s3dlm.verifier import Verifier
from s3dlm.verifier.base import score_texts

PROGRESS = tuple(n / 32 for n in range(33))  # of the denoising, where scores are counted
SCORE_BINS = 25  # scores lie in [0, 1]
TEXTS_OF = {
    "direct": ("best_of_k", "baseline"),
    "s3": ("s3",),
}  # whose texts: the first that was run
POINT = ("task", "label", "particles", "branching", "block_length", "nfe", "nfe_logical",
         "accuracy", "low", "high")  # fmt: skip


def series(run: RecordedRun, grading: str = "fixed") -> dict[str, pd.DataFrame]:
    """The data of every figure of a report."""
    texts = finished_texts(run, grading)
    both = texts.groupby("task").how.transform("nunique") == len(
        TEXTS_OF
    )  # one side compares nothing
    return {
        "mean": curve_points([row.cell for row in by_method(run) if row.whole]).assign(task="mean"),
        "accuracy_nfe": curve_points(run.swept("particles", "branching")),
        "confidence": confidences(run),
        "block_length": block_length(run),
        "texts": texts[both],
        "scores": scores(run, texts),
    }


def curve_points(cells: list[Cell]) -> pd.DataFrame:
    """Accuracy and cost of some conditions."""
    rows = [
        (c.task, c.label, *c.budget, c.settings.decoding.block_length, cell.nfe, cell.nfe_logical,
         *astuple(cell.accuracy))
        for cell in cells for c in (cell.condition,)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=POINT).dropna(subset=["nfe"])  # where nothing was answered


def block_length(run: RecordedRun) -> pd.DataFrame:
    """Accuracy over block lengths, of the methods that have several."""
    frame = curve_points(run.swept("block_length"))
    several = frame.groupby(["task", "label"]).block_length.transform("nunique") > 1
    return frame[several].sort_values(["task", "block_length"], kind="stable")


def confidences(run: RecordedRun) -> pd.DataFrame:
    """Mean top-1 confidence over the progress of denoising."""
    rows = []
    for condition in run.main_conditions:
        curves = [record.curve for record in run.records[condition] if record.curve]
        means = pd.DataFrame(list(zip_longest(*curves))).mean(axis=1)  # as far as each goes
        name = (condition.task, condition.label)
        rows += [(*name, (step + 1) / len(means), value) for step, value in enumerate(means)]
    return pd.DataFrame(rows, columns=("task", "label", "progress", "confidence"))


def scores(run: RecordedRun, texts: pd.DataFrame) -> pd.DataFrame:
    """Shares of s3's children in bands of scores over the progress of denoising, and of the finished
    texts of direct samples, which have no progress."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        condition = run.main(task).get("s3")
        steps = [r.scores for r in run.records[condition] if r.scores] if condition else []
        values = {
            progress: [s / 100 for each in steps for s in each[round(progress * (len(each) - 1))]]
            for progress in PROGRESS
        }
        values[math.nan] = list(texts.score[(texts.task == task) & (texts.how == "direct")])
        for progress, some in values.items() if steps else ():
            counts, edges = np.histogram(some, bins=SCORE_BINS, range=(0.0, 1.0))
            shares = zip(edges, counts / max(len(some), 1), strict=False)
            rows += [(task, progress, low + 0.5 / SCORE_BINS, share) for low, share in shares]
    return pd.DataFrame(rows, columns=("task", "progress", "score", "share"))


def finished_texts(run: RecordedRun, grading: str) -> pd.DataFrame:
    """Every survivor of the methods of TEXTS_OF, with density, score and grade, its weight in the model
    and in the target tilted by exp(λ·score) within its problem.

    Recorded scores are used as they are; texts of methods that never score are scored here.
    """

    @functools.cache
    def judge(task: str) -> Verifier:
        names = [condition.value("verifier") for condition in run.main(task).values()]
        recorded = [name for name in names if name in verifier.bundled_verifiers()]
        return verifier.for_task(tasks.get(task).verifier, next(iter(recorded), "paper"))

    @functools.cache  # each text of a problem once
    def judged(task: str, sample_id: str, text: str, confidence: float) -> float:
        looked_at = (problems[task, sample_id].question, text, confidence)
        return score_texts(judge(task), [looked_at])[0].total

    @functools.cache
    def graded(task: str, sample_id: str, text: str) -> float:
        sample = problems[task, sample_id]
        return grade(tasks.get(task).answer, text, sample.gold, grading, sample.question)

    problems = {(task, s.id): s for task, samples in run.samples.items() for s in samples}
    rows = []
    for task, how in product(run.tasks, TEXTS_OF):
        main = run.main(task)
        label = next((label for label in TEXTS_OF[how] if label in main), None)
        for record in run.records[main[label]] if label else ():
            for each in record.survivors:
                score, key = each.score, (task, record.sample, each.text)
                score = judged(*key, each.confidence) if score is None else score
                right = 0.0 if each.answer is None else graded(*key)
                rows.append((task, how, record.sample, -each.nll, float(score), right))
    columns = ("task", "how", "problem", "log_density", "score", "correct")
    frame = pd.DataFrame(rows, columns=columns)
    lam = {task: run.main(task)["s3"].value("lam") for task in run.tasks if "s3" in run.main(task)}
    tilt = np.exp(frame.task.map(lam).astype(float).fillna(1.0) * frame.score)
    problem = [frame.task, frame.how, frame.problem]
    base = 1 / frame.score.groupby(problem).transform("size")
    return frame.assign(base=base, tilted=tilt / tilt.groupby(problem).transform("sum"))
