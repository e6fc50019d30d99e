"""Evaluation itself: conditions in, one record per finished sample out, resumable at any moment.

Conditions run one after another, so that each has its own latency; inside a condition all samples and
seeds share full batches. What is already recorded is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from s3dlm.errors import S3dlmError
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan, title_of
from s3dlm.evaluation.records import Failure, Record, Store
from s3dlm.inputs import Registry
from s3dlm.models.base import Model
from s3dlm.tasks import Sample

HOPELESS = 10  # failures before the first success after which a run stops
LINE_EVERY = 10.0  # seconds between lines of progress if there is no terminal
ROWS = 64  # canvases per forward pass, as in Python and lm-eval


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One search of an evaluation."""

    sample: Sample
    seed: int
    trace: Path | None = None  # the file for all its steps


@dataclass(frozen=True, slots=True)
class Chunk:
    """Searches of one condition that a runner is asked for."""

    condition: Condition
    items: Sequence[WorkItem]
    batch_size: int = ROWS  # canvases per forward pass

    def parts(self, workers: int) -> list[Chunk]:
        """Chunks of at most a batch each, for a runner with several workers."""
        share = -(-len(self.items) // workers)
        size = max(1, min(self.batch_size // self.condition.children, share))
        firsts = range(0, len(self.items), size)
        return [replace(self, items=self.items[first : first + size]) for first in firsts]


class Runner(Protocol):
    """Where the searches run: `LocalRunner`, `ProcessRunner`, or `RayRunner` on many machines."""

    def describe(self) -> dict[str, Any]:
        """The fields of the manifest that model and machine decide. The first call returns when the
        workers have started, so that no clock counts it."""

    def records(self, chunk: Chunk) -> Iterator[Record | Failure]:
        """One record or failure per search as they finish; the caller sets `at`."""


RUNNERS: Registry[Callable[..., Any]] = Registry("runner", "s3dlm.runners", object)


class Observer:
    """What a progress display is told; this one shows nothing."""

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
    batch_size: int = ROWS,
    retry_failed: bool = False,
) -> Manifest:
    """Run what a folder lacks of a plan, on a model or a runner; returns the run's manifest.

    A sample that fails is recorded with its reason and skipped from then on, unless `retry_failed`.
    The run stops if the first samples all fail.
    """
    if isinstance(runner, Model):
        from s3dlm.evaluation.local import LocalRunner

        runner = LocalRunner(runner)
    samples = {task: loaded.samples for task, loaded in plan.problems.items()}
    manifest = Manifest(
        split=plan.split,
        conditions=tuple(plan.conditions),
        seeds=tuple(plan.seeds),
        counts={task: len(problems) for task, problems in samples.items()},
        origins={task: loaded.origin for task, loaded in plan.problems.items()},
        **runner.describe(),
    )
    observer = observer or Observer()
    finished = failed = 0
    with Store(folder) as store:  # locked first: nobody else may write the plan
        manifests.commit(folder, manifest, samples, store.contents)
        for condition in plan.conditions:
            spec = condition.spec
            done = [r for r in store.contents.records.values() if r.spec == spec]
            todo = list(_missing(plan, condition, store, folder, retry_failed))
            observer.begin(condition, len(done) + len(todo), done)
            earlier = max((r.at for r in done), default=0.0)  # earlier sessions count
            started = time.perf_counter() - earlier
            chunk = Chunk(condition, todo, batch_size)
            for record in runner.records(chunk):
                if isinstance(record, Record):
                    record = replace(record, at=round(time.perf_counter() - started, 4))
                store.append(record, manifest.run)
                observer.record(condition, record)
                if isinstance(record, Record):
                    finished += 1
                    continue
                failed += 1
                if failed >= HOPELESS and not finished:
                    last = f"the last one is {record.sample}: {record.reason}"
                    raise S3dlmError(f"the first {failed} samples all failed; {last}")
    return manifest


def _missing(
    plan: Plan, condition: Condition, store: Store, folder: Path, retry_failed: bool
) -> Iterator[WorkItem]:
    """What the store lacks; traces are of the first problems and seed only."""
    contents, spec = store.contents, condition.spec
    skip = contents.records if retry_failed else {**contents.records, **contents.failures}
    traces = folder.resolve() / "traces"
    for seed in plan.seeds[: condition.seeds]:
        samples = plan.problems[condition.task].samples[: condition.problems]
        for number, sample in enumerate(samples):
            if (spec, sample.id, seed) not in skip:
                traced = number < plan.traces and seed == plan.seeds[0]
                trace = traces / f"{spec}-{sample.id}.jsonl" if traced else None
                yield WorkItem(sample, seed, trace)


TOLD = {"budget": "budget", "temperature": "T", "lam": "λ"}


class Bars(Observer):
    """Progress on a terminal: one bar of all conditions, by the forward passes that they take at most.
    Elsewhere a line per condition, and one now and then."""

    def __init__(self, *plans: Plan) -> None:
        self.conditions, self.number = sum(len(plan.conditions) for plan in plans), 0
        self.console, self.last_line = Console(stderr=True), time.monotonic()
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(24), TimeRemainingColumn(),
            console=self.console, transient=True, disable=not self.console.is_terminal,
        )  # fmt: skip
        self.total = sum(plan.nfe for plan in plans)
        self.bar = self.progress.add_task("", total=self.total)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        self.size, self.number, self.failed = total, self.number + 1, 0
        self.right = [record.correct for record in done]
        # An earlier session's work says nothing of speed.
        self.total -= len(done) * condition.settings.most_nfe
        self.progress.update(self.bar, total=self.total)
        self._show(condition, complete=0 < total == len(done))

    def record(self, condition: Condition, record: Record | Failure) -> None:
        if isinstance(record, Failure):
            self.failed += 1
            failure = f"{record.sample} failed: {record.error}: {record.reason}"
            self.console.print(failure, highlight=False, markup=False)
        else:
            self.right.append(record.correct)
        self.progress.advance(self.bar, condition.settings.most_nfe)
        self._show(condition, complete=len(self.right) + self.failed == self.size)

    def _show(self, condition: Condition, *, complete: bool) -> None:
        """The condition with its settings, for which there is no room beside a bar, and its counts."""
        text = f"\\[{self.number}/{self.conditions}] {title_of(condition.task)} {condition.label}"
        if complete or not self.console.is_terminal:
            (particles, branching), settings = condition.budget, condition.settings
            text += f" (N={particles} b={branching} block={settings.decoding.block_length}"
            known = {sign: condition.value(name) for name, sign in TOLD.items()}
            text += "".join(f" {sign}={n:g}" for sign, n in known.items() if n is not None) + ")"
        asked = len(self.right) + self.failed
        text += f" {asked}/{self.size}"
        text += f" {100 * sum(self.right) / asked:.1f} %" if asked else ""
        text += f" {self.failed} failed" if self.failed else ""
        self.progress.update(self.bar, description=text)
        overdue = time.monotonic() - self.last_line > LINE_EVERY
        if complete or (overdue and not self.console.is_terminal):
            self.console.print(text, highlight=False)
            self.last_line = time.monotonic()
