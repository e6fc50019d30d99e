"""Evaluation itself: conditions in, one record per finished sample out, resumable at any moment.

Conditions run one after another, so that each has its own latency; inside a condition all samples and
seeds share full batches. What is already recorded is skipped.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from s3dlm.errors import S3dlmError
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan, title_of
from s3dlm.evaluation.records import Failure, Record, Store
from s3dlm.inputs import Registry
from s3dlm.models.base import Model
from s3dlm.tasks import Sample

HOPELESS = 10  # failures before the first success after which a run stops
SCORED = 100  # problems per condition whose scores are recorded at every step, for the figures
LINE_EVERY = 10.0  # seconds between lines of progress if there is no terminal
EARLY = 0.02  # share of a run before which no time is told: searches side by side end together
TRIED_QUESTIONS = (
    10  # questions that a batch size may be measured on, should the first ones not work
)


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One search of an evaluation, and what is recorded of it besides its result."""

    sample: Sample
    seed: int
    keep_scores: bool = False
    trace: Path | None = None  # the file for all its steps
    timed: bool = True  # or it may reuse what other searches computed


@dataclass(frozen=True, slots=True)
class Chunk:
    """Searches of one condition that a runner is asked for."""

    condition: Condition
    items: Sequence[WorkItem]
    batch_size: int  # canvases per forward pass
    row_cache: float = 0.0  # GiB of canvases to reuse; 0: none, so that times mean something


class Runner(Protocol):
    """Where the searches run: `LocalRunner`, `ProcessRunner`, or `RayRunner` on many machines."""

    def wait(self) -> None:
        """Return when the workers have started, so that no clock counts it."""

    def describe(self) -> dict[str, Any]:
        """The fields of the manifest that model and machine decide."""

    def batch_size(self, condition: Condition, questions: Sequence[str]) -> int:
        """The number of canvases per forward pass that is fast, measured on one of the questions."""

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
            earlier = max((r.at or 0.0 for r in done), default=0.0)  # earlier sessions count
            for chunk in _chunks(runner, plan, condition, todo, batch_size):
                started = time.perf_counter() - earlier
                for record in runner.records(chunk):
                    if isinstance(record, Record) and not chunk.row_cache:
                        record = replace(record, at=round(time.perf_counter() - started, 4))
                    store.append(record, manifest.run)
                    observer.record(condition, record)
                    if isinstance(record, Record):
                        finished += 1
                        continue
                    failed += 1
                    last = f"the last one is {record.sample}: {record.reason}"
                    if failed == fail_on_error:
                        raise S3dlmError(
                            f"{failed} samples failed, the limit of --run fail_on_error; {last}"
                        )
                    if failed >= HOPELESS and not finished:
                        raise S3dlmError(f"the first {failed} samples all failed; {last}")
    return manifest


def _missing(
    plan: Plan, condition: Condition, store: Store, folder: Path, retry_failed: bool
) -> Iterator[WorkItem]:
    """What the store lacks; scores, traces and times are of the first problems and seed only."""
    contents, spec = store.contents, condition.spec
    skip = contents.records if retry_failed else {**contents.records, **contents.failures}
    traces = folder.resolve() / "traces"
    for seed in plan.seeds[: condition.seeds]:
        samples = plan.problems[condition.task].samples[: condition.problems]
        for number, sample in enumerate(samples):
            if (spec, sample.id, seed) not in skip:
                rank = number if seed == plan.seeds[0] else sys.maxsize
                trace = traces / f"{spec}-{sample.id}.jsonl" if rank < plan.traces else None
                timed = not plan.row_cache or rank < condition.timed
                yield WorkItem(sample, seed, rank < SCORED, trace, timed)


def _chunks(
    runner: Runner, plan: Plan, condition: Condition, todo: list[WorkItem], batch_size: int | None
) -> Iterator[Chunk]:
    """The searches that are timed, then those that may use the row cache."""
    if todo:
        runner.wait()
        questions = [
            sample.question for sample in plan.problems[condition.task].samples[:TRIED_QUESTIONS]
        ]
        batch_size = batch_size or runner.batch_size(condition, questions)
        for timed, row_cache in ((True, 0.0), (False, plan.row_cache)):
            if items := [item for item in todo if item.timed is timed]:
                yield Chunk(condition, items, batch_size, row_cache)


TOLD = {"temperature": "T", "lam": "λ"}


class Display(Observer):
    """One bar with a text, or a line now and then."""

    def __init__(self, total: float = 0.0) -> None:
        self.console, self.started = Console(stderr=True), time.monotonic()
        self.last_line, self.left = self.started, ""  # the time that is left, in words
        columns = (
            TextColumn("{task.description}"),
            BarColumn(24),
            TextColumn("{task.fields[left]}"),
        )
        hidden = not self.console.is_terminal
        self.progress = Progress(*columns, console=self.console, transient=True, disable=hidden)
        self.bar = self.progress.add_task("", total=total, left="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, text: str, *, always: bool = False) -> None:
        """Put a text beside the bar; `always` leaves a line behind, too."""
        self.progress.update(self.bar, description=text, left=self.left)
        overdue = time.monotonic() - self.last_line > LINE_EVERY
        if always or (overdue and not self.console.is_terminal):
            rest = "" if always or not self.left else f", {self.left}"
            self.console.print(f"{text}{rest}", highlight=False)
            self.last_line = time.monotonic()


class Bars(Display):
    """The observer that the command line passes to `evaluate`; the bar is that of all conditions."""

    def __init__(self, *plans: Plan) -> None:
        super().__init__()
        conditions = [condition for plan in plans for condition in plan.conditions]
        self.conditions, self.number = len(conditions), 0
        self.costs = [(condition.label, condition.cost) for condition in conditions]
        self.todo = [
            c.count(len(plan.problems[c.task].samples), len(plan.seeds))
            for plan in plans
            for c in plan.conditions
        ]
        self.expected, self.made = Counter[str](), Counter[str]()  # NFE of each method
        # What a tuning run varies tells its lines apart.
        by_label = {(c.task, c.label, name, c.value(name)) for c in conditions for name in TOLD}
        counts = Counter((task, label, name) for task, label, name, _ in by_label)
        self.varied = [
            name for name in TOLD if any(n > 1 for k, n in counts.items() if k[2] == name)
        ]

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        self.size, self.number, self.failed = total, self.number + 1, 0
        self.right = [record.correct for record in done]
        # What an earlier session did says nothing of speed.
        self.todo[self.number - 1] = total - len(done)
        self.measure()
        self._show(condition, complete=0 < total == len(done))

    def record(self, condition: Condition, record: Record | Failure) -> None:
        if isinstance(record, Failure):
            self.failed += 1
            failure = f"{record.sample} failed: {record.error}: {record.reason}"
            self.console.print(failure, highlight=False, markup=False)
        else:
            self.right.append(record.correct)
            self.expected[condition.label] += condition.cost
            self.made[condition.label] += record.nfe
        self.todo[self.number - 1] -= 1
        self.measure()
        self._show(condition, complete=len(self.right) + self.failed == self.size)

    def measure(self) -> None:
        """Set the bar by NFE: a method needs as many of those expected as it has needed so far, one
        that has not begun as many as the others."""
        shares = {label: self.made[label] / count for label, count in self.expected.items()}
        usual = sum(shares.values()) / len(shares) if shares else 1.0
        made = sum(self.made.values())
        work = zip(self.costs, self.todo, strict=True)
        rest = sum(count * cost * shares.get(label, usual) for (label, cost), count in work)
        self.progress.update(self.bar, completed=made, total=made + rest)
        if made > EARLY * (made + rest):
            left = (time.monotonic() - self.started) * rest / made
            self.left = f"{timedelta(seconds=round(left))} left"

    def _show(self, condition: Condition, *, complete: bool) -> None:
        """The condition with its settings, for which there is no room beside a bar, and its counts."""
        line = f"\\[{self.number}/{self.conditions}] {title_of(condition.task)} {condition.label}"
        if complete or not self.console.is_terminal:
            particles, branching = condition.budget
            line += (
                f" (N={particles} b={branching} block={condition.settings.decoding.block_length}"
            )
            if condition.value("budget") is not None:
                line += f" budget={condition.value('budget')}"
            line += "".join(f" {TOLD[name]}={condition.value(name)}" for name in self.varied) + ")"
        line += f" {len(self.right) + self.failed}/{self.size}"
        line += f" {100 * sum(self.right) / len(self.right):.1f} %" if self.right else ""
        line += f" {self.failed} failed" if self.failed else ""
        self.show(line, always=complete)
