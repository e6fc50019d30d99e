"""Evaluation itself: conditions in, one record per finished sample out, resumable at any moment.

Conditions run one after another, so that each has its own latency; inside a condition all samples and
seeds share full batches. What is already recorded is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Record, Store
from s3dlm.models.base import Model
from s3dlm.tasks import Sample

Todo = tuple[Sample, int]  # a problem and a seed
TIMED = 10  # problems per condition that are timed if a row cache is used


@dataclass(frozen=True, slots=True)
class Request:
    """Samples of one condition that a runner is asked for."""

    condition: Condition
    todo: Sequence[Todo]
    folder: Path  # of the run, where traces go
    batch_size: int | None = None  # canvases per forward pass; None: the runner measures
    timed: bool = True  # times must be meaningful, so nothing is cached


class Runner(Protocol):
    """Where the searches run: `LocalRunner`, or `RayRunner` on many machines."""

    def manifest(self, plan: Plan) -> Manifest: ...

    def records(self, plan: Plan, request: Request) -> Iterator[Record]:
        """One record per sample and seed as they finish; the caller sets `at`."""
        ...


class Observer(Protocol):
    """What a progress display is told."""

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None: ...

    def record(self, condition: Condition, record: Record) -> None: ...


class Silent:
    """An observer that shows nothing."""

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        return None

    def record(self, condition: Condition, record: Record) -> None:
        return None


def evaluate(
    runner: Model | Runner,
    plan: Plan,
    folder: Path,
    *,
    observer: Observer | None = None,
    batch_size: int | None = None,
) -> Manifest:
    """Run what a folder lacks of a plan, on a model or a runner; returns the run's manifest."""
    if isinstance(runner, Model):
        from s3dlm.evaluation.local import LocalRunner

        runner = LocalRunner(runner)
    manifest = runner.manifest(plan)
    with Store(folder) as store:  # locked first: nobody else may write the plan
        manifests.commit(
            folder, manifest, {task: some.samples for task, some in plan.problems.items()}
        )
        stage = _Stage(runner, plan, store, observer or Silent(), folder, batch_size)
        for condition in plan.conditions:
            stage.run(condition)
    return manifest


@dataclass(slots=True)
class _Stage:
    """Runs one condition after the other and stores the records."""

    runner: Runner
    plan: Plan
    store: Store
    observer: Observer
    folder: Path
    batch_size: int | None

    def run(self, condition: Condition) -> None:
        spec = condition.spec  # computed at every access
        done = [record for record in self.store.records if record.spec == spec]
        todo = self._missing(condition, spec)
        self.observer.begin(condition, len(done) + len(todo), done)
        before = max((record.at or 0.0 for record in done), default=0.0)  # earlier sessions count
        timed, rest = self._split(condition, todo)
        self._run(Request(condition, timed, self.folder, self.batch_size), before)
        self._run(Request(condition, rest, self.folder, self.batch_size, timed=False), before)

    def _run(self, request: Request, before: float) -> None:
        if not request.todo:
            return
        started = time.perf_counter() - before
        for record in self.runner.records(self.plan, request):
            at = round(time.perf_counter() - started, 4) if request.timed else None
            record = replace(record, at=at)
            self.store.append(record)
            self.observer.record(request.condition, record)

    def _split(self, condition: Condition, todo: list[Todo]) -> tuple[list[Todo], list[Todo]]:
        """The samples that are timed, and those that may use the row cache."""
        if not self.plan.row_cache:
            return todo, []
        first = {sample.id for sample in self.plan.problems[condition.task].samples[:TIMED]}
        timed = [one for one in todo if one[0].id in first and one[1] == self.plan.seeds[0]]
        return timed, [one for one in todo if one not in timed]

    def _missing(self, condition: Condition, spec: str) -> list[Todo]:
        """What a condition needs and the store does not have, seed after seed."""
        return [
            (sample, seed)
            for seed in self.plan.seeds[: condition.seeds]
            for sample in self.plan.problems[condition.task].samples[: condition.problems]
            if (spec, sample.id, seed) not in self.store.keys
        ]
