"""A run, or several as one, read into a data frame with a row per record. Needs no model.

Everything that reads a run needs the extra `report` (pandas, scipy, matplotlib, jinja2); this file is
the first that is imported and says so.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import ItemsView, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.errors import MissingExtraError, RecordError
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation import records as stores
from s3dlm.evaluation import statistics
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.statistics import Cell, Comparison, summarise
from s3dlm.tasks import Sample

for _package in ("pandas", "scipy", "matplotlib", "jinja2"):
    if find_spec(_package) is None:
        raise MissingExtraError(_package, "report")

import pandas as pd  # noqa: E402

COLUMNS = ("condition", "task", "label", "main", "sample", "seed", "correct", "nfe", "nfe_logical")


@dataclass(frozen=True)
class RecordedRun:
    """Everything a report is made of."""

    manifest: Manifest
    samples: Mapping[str, Sequence[Sample]]
    records: Mapping[Condition, Sequence[Record]]  # in the order they were finished
    folders: Mapping[Condition, Path] = dataclasses.field(default_factory=dict)  # with the traces
    failures: Sequence[Failure] = ()
    parts: Sequence[RecordedRun] = ()  # the runs that this one joins

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(c.task for c in self.manifest.conditions))

    def main(self, task: str) -> dict[str, Condition]:
        """The conditions of the main comparison by label."""
        return {c.label: c for c in self.manifest.conditions if c.task == task and c.main}

    @property
    def main_conditions(self) -> list[Condition]:
        """Those of the main comparison, task by task."""
        return [condition for task in self.tasks for condition in self.main(task).values()]

    def labels(self) -> list[str]:
        """Labels of the main comparison, in the plan's order."""
        return list(dict.fromkeys(condition.label for condition in self.main_conditions))

    def rows(self, condition: Condition) -> list[Record | Failure]:
        """All that came of a condition: its records, then its failures."""
        return [*self.records[condition], *(f for f in self.failures if f.spec == condition.spec)]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row per sample; `condition` is its place in the manifest. What failed counts as wrong."""
        rows = [
            {"condition": number, "task": c.task, "label": c.label, "main": c.main,
             "sample": row.sample, "seed": row.seed, "correct": row.correct,
             "nfe": getattr(row, "nfe", None), "nfe_logical": getattr(row, "nfe_logical", None)}
            for number, c in enumerate(self.manifest.conditions)
            for row in self.rows(c)
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=COLUMNS)

    @cached_property
    def cells(self) -> dict[Condition, Cell]:
        """The figures of every condition that has been begun, on all its problems."""
        begun = {condition: self.rows(condition) for condition in self.manifest.conditions}
        return {condition: summarise(condition, rows) for condition, rows in begun.items() if rows}

    @cached_property
    def main_cells(self) -> dict[str, dict[str, Cell]]:
        """The main comparison by task and label, on the problems that all methods of a task have."""
        return {
            task: {cell.condition.label: cell for cell in self._on_shared(self.main(task).values())}
            for task in self.tasks
        }

    def _on_shared(self, conditions: Iterable[Condition], *, seeds: bool = False) -> list[Cell]:
        """Conditions of a task on the problems that all which have begun have, or the problems and seeds."""

        def key(row: Record | Failure) -> tuple[str, int]:
            return row.sample, row.seed if seeds else 0

        begun = {c: rows for c in conditions if (rows := self.rows(c))}
        asked = [{key(row) for row in rows} for rows in begun.values()]
        shared = set.intersection(*asked) if asked else set()
        kept = {c: [row for row in rows if key(row) in shared] for c, rows in begun.items()}
        return [summarise(c, rows) for c, rows in kept.items() if rows]

    def _graded(self, task: str, label: str) -> pd.Series:
        """Grades by problem and seed; what runs once counts for every seed."""
        condition = self.main(task).get(label)
        rows = [] if condition is None else self.rows(condition)
        once = condition is not None and not condition.sampled
        grades = {
            (row.sample, seed): row.correct
            for row in rows
            for seed in (self.manifest.seeds if once else [row.seed])
        }
        return pd.Series(grades, pd.MultiIndex.from_tuples(grades, names=["sample", "seed"]), float)

    @cached_property
    def _compared(self) -> dict[tuple[str, str, str | None], Comparison]:
        return {}

    def compare(self, ours: str, theirs: str, task: str | None = None) -> Comparison:
        """Two labels on the problems and seeds that both have: on one task, or the mean of all."""
        if (ours, theirs, task) not in self._compared:
            gaps = []
            for name in self.tasks if task is None else [task]:
                both = (self._graded(name, ours) - self._graded(name, theirs)).dropna()
                gaps.append(list(both.groupby(level="sample").mean()))
            self._compared[ours, theirs, task] = statistics.compare(gaps)
        return self._compared[ours, theirs, task]

    def swept(self, *free: str) -> list[Cell]:
        """Conditions that differ from their label's main one in the free settings alone; on the
        problems and seeds that all of a task have, so that the points of one curve are comparable."""

        def fixed(condition: Condition) -> ItemsView[str, Any]:
            values = condition.settings.to_json()
            return {name: values[name] for name in values if name not in free}.items()

        swept: list[Cell] = []
        for task in self.tasks:
            main = self.main(task)
            ours = [c for c in self.manifest.conditions if c.task == task and c.label in main]
            like = [c for c in ours if fixed(main[c.label]) <= fixed(c)]
            swept += self._on_shared(like, seeds=True)
        return swept


def read(*folders: Path, grading: str | None = None) -> RecordedRun:
    """One run, or several as one, named by their folders; with `grading` texts are graded again."""
    names = [folder.name for folder in folders]
    names = names if len(set(names)) == len(names) else [str(folder) for folder in folders]
    runs = [_read(folder, grading) for folder in folders]
    return runs[0] if len(runs) == 1 else _merged(dict(zip(names, runs, strict=True)))


def _read(folder: Path, grading: str | None) -> RecordedRun:
    plan, samples = manifests.read(folder), manifests.read_samples(folder)
    problems = {sample.id: (task, sample) for task, many in samples.items() for sample in many}
    by_spec: dict[str, list[Record]] = {c.spec: [] for c in plan.conditions}
    stored = stores.read_all(folder)
    manifests.refuse_other_records(plan, stored, folder)
    for record in stored.records.values():
        if record.sample not in problems:
            raise RecordError(
                f"{folder / stores.RECORDS} has a record of {record.sample}, which is not in "
                f"{manifests.SAMPLES}; the two files belong to different runs"
            )
        if grading is not None:
            task, sample = problems[record.sample]
            kind = tasks.get(task).answer
            correct = grade(kind, record.text, sample.gold, grading, sample.question)
            record = dataclasses.replace(record, correct=correct)
        by_spec[record.spec].append(record)
    records = {condition: by_spec[condition.spec] for condition in plan.conditions}
    folders = dict.fromkeys(plan.conditions, folder)
    return RecordedRun(plan, samples, records, folders, list(stored.failures.values()))


def _merged(runs: Mapping[str, RecordedRun]) -> RecordedRun:
    """Several named runs as one; a label that more than one run has gets the run's name."""
    plans = [run.manifest for run in runs.values()]
    labels = [label for plan in plans for label in {c.label for c in plan.conditions}]
    folders: dict[Condition, Path] = {}
    records: dict[Condition, Sequence[Record]] = {}
    merged: dict[str, dict[str, Sample]] = {}
    for name, run in runs.items():
        for old in run.manifest.conditions:
            new = dataclasses.replace(
                old,
                label=f"{old.label} ({name})" if labels.count(old.label) > 1 else old.label,
                problems=min(run.manifest.counts[old.task], old.problems or sys.maxsize),
                seeds=min(len(run.manifest.seeds), old.seeds or sys.maxsize),
            )
            folders[new], records[new] = run.folders[old], run.records[old]
        for task, sample in ((task, each) for task, many in run.samples.items() for each in many):
            if merged.setdefault(task, {}).setdefault(sample.id, sample) != sample:
                raise RecordError(
                    f"{sample.id} of task={task!r} is another problem in {name} than in the "
                    "other runs, so they cannot be compared; report on them one by one"
                )
    known = dict.fromkeys(task for plan in plans for task in plan.counts)
    joined: dict[str, Any] = {
        name: ", ".join(dict.fromkeys(str(getattr(plan, name)) for plan in plans))
        for name in manifests.FIXED
    }
    manifest = dataclasses.replace(
        plans[0],
        **joined,
        conditions=tuple(records),
        seeds=tuple(sorted({seed for plan in plans for seed in plan.seeds})),
        counts={task: max(plan.counts.get(task, 0) for plan in plans) for task in known},
        origins={task: next(p.origins[task] for p in plans if task in p.origins) for task in known},
    )
    samples = {task: list(many.values()) for task, many in merged.items()}
    failures = [failure for run in runs.values() for failure in run.failures]
    return RecordedRun(manifest, samples, records, folders, failures, list(runs.values()))
