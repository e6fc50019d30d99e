"""A run read from its folder and summarised: one cell per condition, and paired comparisons.

Nothing here needs a model. Texts are graded again if another grading is asked for.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import RecordError
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation import records as rows
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.statistics import Comparison, Interval, Pairs, compare, mean_of, wilson
from s3dlm.tasks import Sample

Grade = Callable[[str, Sample, Record], float]  # (task, problem, record) → grade


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Everything a report is made of."""

    folders: Mapping[Condition, Path]  # where the traces of a condition are
    manifest: Manifest
    samples: Mapping[str, Sequence[Sample]]
    records: Mapping[Condition, Sequence[Record]]
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
    distinct: float  # different texts among the survivors


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
    by_condition = {c: by_spec[c.spec] for c in plan.conditions}
    folders = dict.fromkeys(plan.conditions, folder)
    return Evaluation(folders, plan, samples, by_condition, list(stored.failures.values()))


def merge(runs: Sequence[tuple[str, Evaluation]]) -> Evaluation:
    """Several named runs as one; a label that more than one run has gets the run's name."""
    if len(runs) == 1:
        return runs[0][1]
    labels = [{c.label for c in run.manifest.conditions} for _, run in runs]
    shared = {one for one in set.union(*labels) if sum(one in some for some in labels) > 1}
    folders: dict[Condition, Path] = {}
    records: dict[Condition, Sequence[Record]] = {}
    for name, run in runs:
        for old in run.manifest.conditions:
            label = f"{old.label} ({name})" if old.label in shared else old.label
            new = dataclasses.replace(
                old,
                label=label,
                problems=min(run.manifest.counts[old.task], old.problems or sys.maxsize),
                seeds=min(len(run.manifest.seeds), old.seeds or sys.maxsize),
            )
            folders[new], records[new] = run.folders[old], run.records[old]
    manifest = _merged_manifest([run.manifest for _, run in runs], tuple(records))
    failures = [failure for _, run in runs for failure in run.failures]
    return Evaluation(folders, manifest, _merged_samples(runs), records, failures)


def _merged_manifest(many: Sequence[Manifest], conditions: tuple[Condition, ...]) -> Manifest:
    def joined(name: str) -> str:
        return ", ".join(dict.fromkeys(str(getattr(one, name)) for one in many))

    tasks = dict.fromkeys(task for one in many for task in one.counts)
    return dataclasses.replace(
        many[0],
        model=joined("model"),
        fingerprint=joined("fingerprint"),
        prompt_style=joined("prompt_style"),
        split=joined("split"),
        token_counter=joined("token_counter"),
        conditions=conditions,
        seeds=tuple(sorted({seed for one in many for seed in one.seeds})),
        counts={task: max(one.counts.get(task, 0) for one in many) for task in tasks},
        origins={task: next(o.origins[task] for o in many if task in o.origins) for task in tasks},
    )


def _merged_samples(runs: Sequence[tuple[str, Evaluation]]) -> dict[str, list[Sample]]:
    found: dict[str, dict[str, Sample]] = {}
    for name, run in runs:
        for task, samples in run.samples.items():
            known = found.setdefault(task, {})
            for sample in samples:
                if known.setdefault(sample.id, sample) != sample:
                    raise RecordError(
                        f"{sample.id} of task={task!r} is another problem in {name} than in the "
                        "other runs, so they cannot be compared; report on them one by one"
                    )
    return {task: list(samples.values()) for task, samples in found.items()}


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
        distinct=_mean(len({one.text for one in r.survivors}) for r in records),
    )


def cells(run: Evaluation) -> dict[Condition, Cell]:
    """Every condition that has records."""
    return {c: cell(c, records) for c, records in run.records.items() if records}


def _pairs(run: Evaluation, ours: Condition, theirs: Condition) -> Pairs:
    """Grades per problem on the seeds that both conditions have."""
    first = {(r.sample, r.seed): r.correct for r in run.records[ours]}
    second = {(r.sample, r.seed): r.correct for r in run.records[theirs]}
    problems: dict[str, tuple[list[float], list[float]]] = {}
    for key in sorted(first.keys() & second.keys()):
        a, b = problems.setdefault(key[0], ([], []))
        a.append(first[key])
        b.append(second[key])
    return list(problems.values())


def paired(run: Evaluation, ours: Condition, theirs: Condition) -> Comparison:
    """Two conditions of one task on the problems and seeds that both have."""
    return compare([_pairs(run, ours, theirs)])


def overall(run: Evaluation, ours: str, theirs: str) -> Comparison:
    """Two labels of the main comparison on the mean of all tasks that have both."""
    mains = [run.main(task) for task in run.tasks]
    return compare([_pairs(run, m[ours], m[theirs]) for m in mains if ours in m and theirs in m])


def mean_accuracy(run: Evaluation, label: str) -> Interval:
    """The mean of the tasks of the main comparison."""
    some = [run.records.get(run.main(task).get(label), ()) for task in run.tasks]  # type: ignore[arg-type]
    return mean_of(
        wilson(_mean(r.correct for r in records), len({r.sample for r in records}))
        for records in some
        if records
    )


def mean_nfe(run: Evaluation, label: str, beside: str | None = None) -> float:
    """Forward passes per problem, the mean of the tasks of the main comparison; on the problems and
    seeds that another label has, too, if one is given."""
    means = []
    for main in (run.main(task) for task in run.tasks):
        if label in main and (beside is None or beside in main):
            theirs = run.records[main[beside or label]]
            shared = {(r.sample, r.seed) for r in theirs}
            ours = run.records[main[label]]
            means.append(_mean(r.nfe for r in ours if (r.sample, r.seed) in shared))
    return _mean(means)
