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

from s3dlm.errors import S3dlmError
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Failure, Record, Store
from s3dlm.models.base import Model
from s3dlm.tasks import Sample

Todo = tuple[Sample, int]  # a problem and a seed
HOPELESS = 10  # failures before the first success after which a run stops


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

    def warm_up(self, plan: Plan, condition: Condition, batch_size: int | None) -> None:
        """Do what only a first request would need, so that no clock counts it."""
        ...

    def records(self, plan: Plan, request: Request) -> Iterator[Record | Failure]:
        """One record or failure per sample and seed as they finish; the caller sets `at`."""
        ...


class Observer(Protocol):
    """What a progress display is told."""

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None: ...

    def record(self, condition: Condition, record: Record | Failure) -> None: ...


class Silent:
    """An observer that shows nothing."""

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        return None

    def record(self, condition: Condition, record: Record | Failure) -> None:
        return None


def evaluate(
    runner: Model | Runner,
    plan: Plan,
    folder: Path,
    *,
    observer: Observer | None = None,
    batch_size: int | None = None,
    fail_on_error: int | None = None,
    retry_failed: bool = False,
) -> Manifest:
    """Run what a folder lacks of a plan, on a model or a runner; returns the run's manifest.

    A sample that fails is recorded with its reason and skipped from then on, unless `retry_failed`.
    The run stops after `fail_on_error` failures, and if the first samples all fail.
    """
    if isinstance(runner, Model):
        from s3dlm.evaluation.local import LocalRunner

        runner = LocalRunner(runner)
    manifest = runner.manifest(plan)
    with Store(folder) as store:  # locked first: nobody else may write the plan
        samples = {task: some.samples for task, some in plan.problems.items()}
        manifests.commit(folder, manifest, samples, store.contents)
        stage = _Stage(
            runner, plan, store, observer or Silent(), folder, batch_size, manifest.run,
            fail_on_error, retry_failed,
        )  # fmt: skip
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
    name: str  # of the run
    fail_on_error: int | None
    retry_failed: bool
    finished: int = 0
    failed: int = 0

    def run(self, condition: Condition) -> None:
        spec = condition.spec  # computed at every access
        done = [r for r in self.store.contents.records.values() if r.spec == spec]
        todo = self._missing(condition, spec)
        self.observer.begin(condition, len(done) + len(todo), done)
        before = max((record.at or 0.0 for record in done), default=0.0)  # earlier sessions count
        timed, rest = self._split(condition, todo)
        if timed:
            self.runner.warm_up(self.plan, condition, self.batch_size)
        self._run(Request(condition, timed, self.folder, self.batch_size), before)
        self._run(Request(condition, rest, self.folder, self.batch_size, timed=False), before)

    def _run(self, request: Request, before: float) -> None:
        if not request.todo:
            return
        started = time.perf_counter() - before
        for record in self.runner.records(self.plan, request):
            if isinstance(record, Record):
                at = round(time.perf_counter() - started, 4) if request.timed else None
                record = replace(record, at=at)
            self.store.append(record, self.name)
            self.observer.record(request.condition, record)
            self._count(record)

    def _count(self, record: Record | Failure) -> None:
        if isinstance(record, Record):
            self.finished += 1
            return
        self.failed += 1
        last = f"the last one is {record.sample}: {record.reason}"
        if self.failed == self.fail_on_error:
            raise S3dlmError(f"{self.failed} samples failed, the limit of --fail-on-error; {last}")
        if self.failed >= HOPELESS and not self.finished:
            raise S3dlmError(f"the first {self.failed} samples all failed; {last}")

    def _split(self, condition: Condition, todo: list[Todo]) -> tuple[list[Todo], list[Todo]]:
        """The samples that are timed, and those that may use the row cache."""
        if not self.plan.row_cache:
            return todo, []
        first = {
            sample.id for sample in self.plan.problems[condition.task].samples[: condition.timed]
        }
        timed = [one for one in todo if one[0].id in first and one[1] == self.plan.seeds[0]]
        return timed, [one for one in todo if one not in timed]

    def _missing(self, condition: Condition, spec: str) -> list[Todo]:
        """What a condition needs and the store does not have, seed after seed."""
        stored = self.store.contents
        skip = stored.records if self.retry_failed else {**stored.records, **stored.failures}
        return [
            (sample, seed)
            for seed in self.plan.seeds[: condition.seeds]
            for sample in self.plan.problems[condition.task].samples[: condition.problems]
            if (spec, sample.id, seed) not in skip
        ]
