"""The data of each figure as a data frame: drawn by figures.py, written beside it as CSV."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from itertools import product, starmap, zip_longest
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from s3dlm import tasks, verifier
from s3dlm.answers.grading import grade
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.statistics import Cell, best_of_k_bound, expected_maximum, summarise
from s3dlm.verifier import Verifier
from s3dlm.verifier.base import FROM_FILES, score_texts

if TYPE_CHECKING:
    from s3dlm.evaluation.calibrate import Reliability

PROGRESS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the denoising, where score densities are drawn
SCORE_BINS = 25
BANDWIDTH = 0.03  # of the score densities; scores lie in [0, 1]
SHOWN = {"direct": ("best_of_k", "baseline"), "s3": ("s3",)}  # whose texts: the first that was run


def series(
    run: Run, reliabilities: Sequence[Reliability], grading: str = "fixed"
) -> dict[str, pd.DataFrame]:
    """The data of every figure of a report."""
    texts = finished_texts(run, grading)
    return {
        "accuracy_nfe": accuracy_nfe(run),
        "confidence": confidence(run),
        "block_length": block_length(run),
        "score_density": score_density(run, texts),
        "score_heat": score_heat(run),
        "density_quality": density_quality(run, texts),
        "sampling_search": sampling_search(texts),
        "best_of_k_bound": best_of_k(texts),
        "reliability": reliability(reliabilities),
    }


def accuracy_nfe(run: Run) -> pd.DataFrame:
    """Accuracy against NFE, over particles and branching."""
    columns = ("task", "label", "particles", "branching", "nfe", "nfe_logical", "accuracy", "low", "high", "distinct")  # fmt: skip
    rows = [
        (cell.condition.task, cell.condition.label, *cell.condition.budget, cell.nfe,
         cell.nfe_logical, *astuple(cell.accuracy), cell.distinct)
        for cell in starmap(summarise, run.swept("particles", "branching").items())
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def block_cells(run: Run) -> list[Cell]:
    """Every point of a sweep over block lengths, by task, block length and method."""
    order = [*run.tasks, *run.labels()]

    def place(cell: Cell) -> tuple[int, int, int]:
        task, label = cell.condition.task, cell.condition.label
        return order.index(task), cell.condition.settings.block_length, order.index(label)

    cells = sorted(starmap(summarise, run.swept("block_length").items()), key=place)
    points = {(c.condition.label, c.condition.settings.block_length) for c in cells}
    lengths = Counter(label for label, _ in points)
    return [cell for cell in cells if lengths[cell.condition.label] > 1]


def block_length(run: Run) -> pd.DataFrame:
    """Accuracy over block lengths at the main comparison's budget."""
    pairs = [(cell.condition, cell.accuracy) for cell in block_cells(run)]
    rows = [(c.task, c.label, c.settings.block_length, *astuple(share)) for c, share in pairs]
    return pd.DataFrame(rows, columns=("task", "label", "block_length", "accuracy", "low", "high"))


def confidence(run: Run) -> pd.DataFrame:
    """Mean top-1 confidence over the progress of denoising."""
    rows = []
    for task in run.tasks:
        for label, condition in run.main(task).items():
            curves = [record.curve for record in run.records[condition] if record.curve]
            steps = list(zip_longest(*curves))  # as far as each goes
            means = pd.DataFrame(steps).mean(axis=1)
            rows += [(task, label, (step + 1) / len(means), v) for step, v in enumerate(means)]
    return pd.DataFrame(rows, columns=("task", "label", "progress", "confidence"))


def _scored(run: Run, task: str) -> list[Record]:
    condition = run.main(task).get("s3")
    return [record for record in run.records[condition] if record.scores] if condition else []


def score_density(run: Run, texts: pd.DataFrame) -> pd.DataFrame:
    """Densities of the children's scores along the search, and of direct samples' scores."""
    from scipy.stats import norm

    grid = np.linspace(0.0, 1.0, 101)
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        records = _scored(run, task)
        curves = {
            f"{p:.0%}": [s / 100 for r in records for s in r.scores[round(p * (len(r.scores) - 1))]]
            for p in PROGRESS
        }
        curves["direct"] = list(texts.score[(texts.task == task) & (texts.how == "direct")])
        for name, values in curves.items() if records else ():
            points = np.array(values)
            mirrored = np.concatenate([points, -points, 2 - points])  # so that no mass is lost
            kernels = norm.pdf(grid[:, None], mirrored, BANDWIDTH)
            density = kernels.sum(axis=1) / max(points.size, 1)
            rows += [(task, name, x, y) for x, y in zip(grid, density, strict=True)]
    return pd.DataFrame(rows, columns=("task", "progress", "score", "density"))


def score_heat(run: Run) -> pd.DataFrame:
    """Share of children in each band of scores at every step of the search."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        records = _scored(run, task)
        for step in range(max((len(r.scores) for r in records), default=0)):
            values = [s / 100 for r in records if step < len(r.scores) for s in r.scores[step]]
            counts, edges = np.histogram(values, bins=SCORE_BINS, range=(0.0, 1.0))
            shares = zip(edges, counts / len(values), strict=False)
            rows += [(task, step + 1, low, share) for low, share in shares]
    return pd.DataFrame(rows, columns=("task", "step", "score", "share"))


def finished_texts(run: Run, grading: str) -> pd.DataFrame:
    """Every survivor of the methods of SHOWN, with density, score and grade.

    Recorded scores are used as they are; texts of methods that never score are scored here.
    """

    @functools.cache
    def judge(task: str) -> Verifier:
        names = [condition.value("verifier") for condition in run.main(task).values()]
        recorded = [name for name in names if name in FROM_FILES]
        return verifier.for_task(tasks.get(task).verifier, next(iter(recorded), "paper"))

    @functools.cache  # each text of a problem once
    def grade_once(task: str, sample_id: str, text: str) -> float:
        sample = problems[task, sample_id]
        return grade(tasks.get(task).answer, text, sample.gold, grading, sample.question)

    problems = {(task, s.id): s for task, samples in run.samples.items() for s in samples}
    rows = []
    for task, how in product(run.tasks, SHOWN):
        main = run.main(task)
        label = next((label for label in SHOWN[how] if label in main), None)
        for record in run.records[main[label]] if label else ():
            question = problems[task, record.sample].question
            for text in record.survivors:
                score = text.score
                if score is None:
                    looked_at = (question, text.text, text.confidence)
                    score = score_texts(judge(task), [looked_at])[0].total
                right = 0.0 if text.answer is None else grade_once(task, record.sample, text.text)
                rows.append((task, how, record.sample, -text.nll, float(score), right))
    return pd.DataFrame(rows, columns=("task", "how", "problem", "log_density", "score", "correct"))


def density_quality(run: Run, texts: pd.DataFrame) -> pd.DataFrame:
    """Where the model puts its samples, how the verifier rates them, and the tilted target."""
    frame = texts[texts.how == "direct"].drop(columns="how")
    main = {task: run.main(task) for task in run.tasks}
    lam = {task: row["s3"].value("lam") if "s3" in row else 1.0 for task, row in main.items()}
    tilt = np.exp(frame.task.map(lam).astype(float) * frame.score)
    problem = [frame.task, frame.problem]
    base = 1 / frame.score.groupby(problem).transform("size")
    return frame.assign(base=base, tilted=tilt / tilt.groupby(problem).transform("sum"))


def sampling_search(texts: pd.DataFrame) -> pd.DataFrame:
    """Where samples without search end up, and where those of s3 do: Figure 1(d) and 1(e)."""
    both = texts.groupby("task").how.transform("nunique") == len(SHOWN)  # one side compares nothing
    return texts[both].drop(columns="problem")


def best_of_k(texts: pd.DataFrame) -> pd.DataFrame:
    """The best score among K direct samples against the paper's bound, averaged over problems."""
    rows = []
    for task, samples in texts[texts.how == "direct"].groupby("task", sort=False):
        scores = [list(values) for _, values in samples.groupby("problem", sort=False).score]
        most = min(len(values) for values in scores)
        for k in range(1, most + 1) if most > 1 else ():
            both = [(expected_maximum(values, k), best_of_k_bound(values, k)) for values in scores]
            rows.append((task, k, *np.mean(both, axis=0)))
    return pd.DataFrame(rows, columns=("task", "k", "best_score", "bound"))


def reliability(reliabilities: Sequence[Reliability]) -> pd.DataFrame:
    """The points of the reliability diagram."""
    rows = [
        (each.condition.task, each.condition.label, bin_.mean, bin_.accuracy, bin_.count)
        for each in reliabilities
        for bin_ in each.report.bins
    ]
    return pd.DataFrame(rows, columns=("task", "label", "p_correct", "accuracy", "count"))
