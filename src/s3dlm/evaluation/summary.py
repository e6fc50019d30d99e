"""A run read from its folder and summarised: one cell per condition, and paired comparisons.

Nothing here needs a model. Texts are graded again if another grading is asked for.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import RecordError
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation import records as rows
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.statistics import Comparison, Interval, compare, wilson
from s3dlm.tasks import Sample

Grade = Callable[[str, Sample, Record], float]  # (task, problem, record) → grade


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything a report is made of."""

    folder: Path
    manifest: Manifest
    samples: Mapping[str, Sequence[Sample]]
    records: Mapping[str, Sequence[Record]]  # by condition
    failures: Sequence[Failure] = ()

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(c.task for c in self.manifest.conditions))

    def main(self, task: str) -> dict[str, Condition]:
        """The conditions of the main comparison by label."""
        return {c.label: c for c in self.manifest.conditions if c.task == task and c.main}

    def labels(self) -> list[str]:
        """Labels of the main comparison, in the plan's order."""
        return list(dict.fromkeys(label for task in self.tasks for label in self.main(task)))


@dataclass(frozen=True, slots=True)
class Cell:
    """One condition, summarised over its problems and seeds."""

    condition: Condition
    problems: int
    seeds: int
    accuracy: Interval
    unanswered: float  # share of samples without an answer
    nfe: float
    nfe_logical: float
    deduplicated: float  # share of Algorithm 1's forward passes that were not needed
    timed: int  # number of samples behind the next three
    seconds: float  # wall-clock time per sample, batched
    latency: float  # total wall-clock time
    wall: float  # the paper's wall time: mean of the times at which samples finish
    tokens: float
    answer_tokens: float
    confidence: float
    ess: float


def read(folder: Path, grade: Grade | None = None) -> Evaluation:
    """A run from its folder; with `grade`, every record is graded again."""
    plan = manifests.read(folder)
    samples = manifests.read_samples(folder)
    problems = {sample.id: (task, sample) for task, some in samples.items() for sample in some}
    by_spec: dict[str, list[Record]] = {c.spec: [] for c in plan.conditions}
    stored = rows.read_all(folder)
    manifests.refuse_other_records(plan, stored, folder)
    for record in stored.records.values():
        if record.sample not in problems:
            raise RecordError(
                f"{folder / rows.FILE} has a record of {record.sample}, which is not in "
                f"{manifests.SAMPLES}; the two files belong to different runs"
            )
        if grade is not None:
            record = dataclasses.replace(record, correct=grade(*problems[record.sample], record))
        by_spec[record.spec].append(record)
    return Evaluation(folder, plan, samples, by_spec, list(stored.failures.values()))


def regrade(grading: str) -> Grade:
    """Grades the recorded texts by another grading."""
    from s3dlm import answers, tasks

    def grade(task: str, sample: Sample, record: Record) -> float:
        kind = tasks.get(task).answer
        return answers.grade(kind, record.text, sample.gold, grading, sample.question)

    return grade


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def cell(condition: Condition, records: Sequence[Record]) -> Cell:
    """The figures of one condition; the interval counts problems, not seeds."""
    problems = len({record.sample for record in records})
    nfe, logical = _mean(r.nfe for r in records), _mean(r.nfe_logical for r in records)
    timed = [r.at for r in records if r.at is not None]
    latency = max(timed, default=math.nan)
    return Cell(
        condition=condition,
        problems=problems,
        seeds=len({record.seed for record in records}),
        accuracy=wilson(_mean(r.correct for r in records), problems),
        unanswered=_mean(float(r.answer is None) for r in records),
        nfe=nfe,
        nfe_logical=logical,
        deduplicated=1 - nfe / logical if records else math.nan,
        timed=len(timed),
        seconds=latency / len(timed) if timed else math.nan,
        latency=latency,
        wall=_mean(timed),
        tokens=_mean(r.tokens for r in records),
        answer_tokens=_mean(r.answer_tokens for r in records),
        confidence=_mean(r.confidence for r in records),
        ess=_mean(math.nan if r.ess is None else r.ess for r in records),
    )


def cells(run: Evaluation) -> dict[str, Cell]:
    """Every condition that has records, by spec."""
    return {
        c.spec: cell(c, run.records[c.spec]) for c in run.manifest.conditions if run.records[c.spec]
    }


def paired(run: Evaluation, ours: Condition, theirs: Condition) -> Comparison:
    """Two conditions on the (problem, seed) pairs that both have."""
    first = {(r.sample, r.seed): r.correct for r in run.records[ours.spec]}
    second = {(r.sample, r.seed): r.correct for r in run.records[theirs.spec]}
    problems: dict[str, list[tuple[float, float]]] = {}
    for key in sorted(first.keys() & second.keys()):
        problems.setdefault(key[0], []).append((first[key], second[key]))
    return compare(
        [[x for x, _ in pairs] for pairs in problems.values()],
        [[y for _, y in pairs] for pairs in problems.values()],
    )
