"""The data of each figure as flat tables: drawn by figures.py, written beside it as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Candidate, Record
from s3dlm.evaluation.statistics import best_of_k_bound, expected_maximum
from s3dlm.evaluation.summary import Cell, Evaluation
from s3dlm.evaluation.summary import cell as summarise
from s3dlm.tasks import Sample

Samples = Mapping[str, Sequence["Direct"]]  # direct samples by task

PROGRESS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the denoising, where score densities are drawn
SCORE_BINS = 25
BANDWIDTH = 0.03  # of the score densities; scores lie in [0, 1]

Score = Callable[[str, str, Candidate], float]  # (task, question, candidate) → verifier's score
Mark = Callable[[str, Sample, str], float]  # (task, problem, text) → grade


@dataclass(frozen=True, slots=True)
class Direct:
    """One sample of the model without search."""

    problem: str
    log_density: float  # mean log-probability of its tokens
    score: float  # the verifier's
    correct: float


@dataclass(frozen=True, slots=True)
class Table:
    """Named columns and rows of plain values."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]

    def to_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_plain(value) for value in row] for row in self.rows)
        return text.getvalue()

    def where(self, **wanted: object) -> list[dict[str, object]]:
        """The rows that match, as dictionaries."""
        found = (dict(zip(self.columns, row, strict=True)) for row in self.rows)
        return [row for row in found if all(row[key] == value for key, value in wanted.items())]

    def values(self, column: str) -> list[object]:
        """Distinct values of a column, first come first."""
        index = self.columns.index(column)
        return list(dict.fromkeys(row[index] for row in self.rows))


def _plain(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value


def _sweep(run: Evaluation, *free: str) -> Iterator[Condition]:
    """Conditions that differ from their label's main one in the free settings alone."""
    for condition in run.manifest.conditions:
        main = run.main(condition.task).get(condition.label)
        if main is None or not run.records[condition]:
            continue
        ours, theirs = condition.settings.to_json(), main.settings.to_json()
        if all(ours.get(name) == value for name, value in theirs.items() if name not in free):
            yield condition


def _on_common_problems(
    run: Evaluation, conditions: Sequence[Condition]
) -> Iterator[tuple[Condition, Cell]]:
    """Cells over the problems and seeds that all conditions of a task have, so that the points of
    one curve are comparable."""
    for task in run.tasks:
        some = [c for c in conditions if c.task == task]
        asked = [{(r.sample, r.seed) for r in run.records[c]} for c in some]
        common = set.intersection(*asked) if asked else set()
        for condition in some if common else ():
            records = [r for r in run.records[condition] if (r.sample, r.seed) in common]
            yield condition, summarise(condition, records)


def accuracy_nfe(run: Evaluation) -> Table:
    """Accuracy against NFE, over particles and branching."""
    rows = []
    for condition, cell in _on_common_problems(run, list(_sweep(run, "particles", "branching"))):
        value = cell.accuracy
        nfe = (cell.nfe, cell.nfe_logical)
        where = (condition.task, condition.label, *condition.budget)
        rows.append((*where, *nfe, value.value, value.low, value.high, cell.distinct))
    columns = ("task", "label", "particles", "branching", "nfe", "nfe_logical", "accuracy")
    return Table("accuracy_nfe", (*columns, "low", "high", "distinct"), tuple(rows))


def block_length(run: Evaluation) -> Table:
    """Accuracy over block lengths at the main comparison's budget."""
    rows = []
    for condition, cell in _on_common_problems(run, list(_sweep(run, "block_length"))):
        where = (condition.task, condition.label, condition.settings.block_length)
        rows.append((*where, cell.accuracy.value, cell.accuracy.low, cell.accuracy.high))
    lengths = {label: {row[2] for row in rows if row[1] == label} for label in run.labels()}
    rows = [row for row in rows if len(lengths[row[1]]) > 1]  # only what was swept
    order = [*run.tasks, *run.labels()]
    rows.sort(key=lambda row: (order.index(row[0]), order.index(row[1]), row[2]))
    columns = ("task", "label", "block_length", "accuracy", "low", "high")
    return Table("block_length", columns, tuple(rows))


def confidence(run: Evaluation) -> Table:
    """Mean top-1 confidence over the progress of denoising."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        for label, condition in run.main(task).items():
            curves = [r.curve for r in run.records[condition] if r.curve]
            length = max((len(curve) for curve in curves), default=0)
            for step in range(length):
                values = [curve[step] for curve in curves if step < len(curve)]
                rows.append((task, label, (step + 1) / length, float(np.mean(values))))
    return Table("confidence", ("task", "label", "progress", "confidence"), tuple(rows))


def _scored(run: Evaluation, task: str, label: str = "s3") -> list[Record]:
    condition = run.main(task).get(label)
    return [r for r in run.records[condition] if r.scores] if condition else []


def _at(record: Record, progress: float) -> tuple[int, ...]:
    return record.scores[round(progress * (len(record.scores) - 1))]


def score_density(run: Evaluation, samples: Samples) -> Table:
    """Densities of the children's scores along the search, and of direct samples' scores."""
    grid = np.linspace(0.0, 1.0, 101)
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        records = _scored(run, task)
        if not records:
            continue
        curves = {
            f"{progress:.0%}": [s / 100 for r in records for s in _at(r, progress)]
            for progress in PROGRESS
        }
        curves["direct"] = [one.score for one in samples[task]]
        for name, values in curves.items():
            for x, y in zip(grid, kernel_density(values, grid), strict=True):
                rows.append((task, name, float(x), float(y)))
    return Table("score_density", ("task", "progress", "score", "density"), tuple(rows))


def kernel_density(values: Sequence[float], grid: np.ndarray) -> np.ndarray:
    """Gaussian kernel density on [0, 1], reflected at both ends so that no mass is lost."""
    if not len(values):
        return np.zeros_like(grid)
    points = np.asarray(values, dtype=np.float64)
    mirrored = np.concatenate([points, -points, 2 - points])
    distance = (grid[:, None] - mirrored[None, :]) / BANDWIDTH
    kernel = np.exp(-0.5 * distance**2) / (BANDWIDTH * math.sqrt(2 * math.pi))
    return np.asarray(kernel.sum(axis=1) / points.size)


def score_heat(run: Evaluation) -> Table:
    """Share of children in each band of scores at every step of the search."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        records = _scored(run, task)
        for step in range(max((len(r.scores) for r in records), default=0)):
            values = [s / 100 for r in records if step < len(r.scores) for s in r.scores[step]]
            counts, edges = np.histogram(values, bins=SCORE_BINS, range=(0.0, 1.0))
            for count, low in zip(counts, edges, strict=False):
                rows.append((task, step + 1, float(low), float(count / len(values))))
    return Table("score_heat", ("task", "step", "score", "share"), tuple(rows))


def direct(
    run: Evaluation,
    task: str,
    score: Score,
    mark: Mark,
    labels: Sequence[str] = ("best_of_k", "baseline"),
) -> list[Direct]:
    """The survivors of the first of these methods that was run, scored and graded."""
    condition = next((run.main(task)[one] for one in labels if one in run.main(task)), None)
    problems = {sample.id: sample for sample in run.samples[task]}
    found = []
    for record in run.records[condition] if condition else ():
        sample = problems[record.sample]
        for one in record.survivors:
            correct = mark(task, sample, one.text) if one.answer is not None else 0.0
            value = score(task, sample.question, one)
            found.append(Direct(sample.id, -one.nll, value, correct))
    return found


def density_quality(run: Evaluation, samples: Samples) -> Table:
    """Where the model puts its samples, how the verifier rates them, and the tilted target."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        tilted = run.main(task).get("s3")
        lam = tilted.value("lam") if tilted else 1.0
        for problem, some in _by_problem(samples[task]).items():
            tilt = np.exp(lam * np.array([one.score for one in some]))
            for one, weight in zip(some, tilt / tilt.sum(), strict=True):
                what = (one.log_density, one.score, one.correct)
                rows.append((task, problem, *what, 1 / len(some), float(weight)))
    columns = ("task", "problem", "log_density", "score", "correct", "base", "tilted")
    return Table("density_quality", columns, tuple(rows))


def sampling_search(run: Evaluation, samples: Samples, score: Score, mark: Mark) -> Table:
    """Where samples without search end up, and where those of s3 do: Figure 1(d) and 1(e)."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        searched = direct(run, task, score, mark, ("s3",))
        for how, some in (("direct", samples[task]), ("s3", searched)) if searched else ():
            rows += [(task, how, one.log_density, one.score, one.correct) for one in some]
    sides = {(row[0], row[1]) for row in rows}  # a task with one side only compares nothing
    both = tuple(row for row in rows if {(row[0], "direct"), (row[0], "s3")} <= sides)
    return Table("sampling_search", ("task", "how", "log_density", "score", "correct"), both)


def block_cells(run: Evaluation) -> list[tuple[Condition, Cell]]:
    """Every point of a sweep over block lengths, by task, block length and method."""
    found = list(_on_common_problems(run, list(_sweep(run, "block_length"))))
    lengths = {label: {c.settings.block_length for c, _ in found if c.label == label}
               for label in run.labels()}  # fmt: skip
    order = [*run.tasks, *run.labels()]
    swept = [(c, cell) for c, cell in found if len(lengths[c.label]) > 1]
    return sorted(
        swept,
        key=lambda p: (order.index(p[0].task), p[0].settings.block_length, order.index(p[0].label)),
    )


def bound(run: Evaluation, samples: Samples) -> Table:
    """The best score among K direct samples against the paper's bound, averaged over problems."""
    rows: list[tuple[object, ...]] = []
    for task in run.tasks:
        scores = [[one.score for one in some] for some in _by_problem(samples[task]).values()]
        most = min((len(values) for values in scores), default=0)
        for k in range(1, most + 1) if most > 1 else ():
            best = np.mean([expected_maximum(values, k) for values in scores])
            limit = np.mean([best_of_k_bound(values, k) for values in scores])
            rows.append((task, k, float(best), float(limit)))
    return Table("best_of_k_bound", ("task", "k", "best_score", "bound"), tuple(rows))


def _by_problem(samples: Sequence[Direct]) -> dict[str, list[Direct]]:
    found: dict[str, list[Direct]] = {}
    for one in samples:
        found.setdefault(one.problem, []).append(one)
    return found
