"""Evaluation itself: conditions in, one record per finished sample out, resumable at any moment.

Conditions run one after another, so that each has a latency of its own; inside a condition all
samples and seeds share full batches. What is already recorded is skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from s3dlm import answers, engine, tasks
from s3dlm.engine import Job, Result
from s3dlm.evaluation import circumstances
from s3dlm.evaluation import manifest as manifests
from s3dlm.evaluation.batch import rows_that_pay
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Tuned
from s3dlm.evaluation.records import Candidate, Record, Store
from s3dlm.evaluation.tokens import TokenCounter, counter
from s3dlm.evaluation.traces import TraceFile
from s3dlm.models.base import Model
from s3dlm.models.remember import Remembering
from s3dlm.search.loop import Step
from s3dlm.settings import Settings
from s3dlm.tasks import Loaded, Sample

Todo = tuple[Sample, int]  # a problem and a seed
TIMED = 10  # problems a condition that are timed when rows are remembered
WATCHED = 100  # problems a condition whose children's scores are kept for the figures


@dataclass(frozen=True, slots=True)
class Plan:
    """All that decides the records, apart from the model."""

    conditions: Sequence[Condition]
    base: Settings
    problems: Mapping[str, Loaded]  # by task
    seeds: Sequence[int] = (0,)
    split: str = "test"
    tuned: Tuned = field(default_factory=dict)  # what single methods have of their own
    traces: int = 0  # problems a task whose searches are written down step by step
    remember: float = 0.0  # GiB of rows kept from one condition to the next; 0: none


@dataclass(frozen=True, slots=True)
class Part:
    """Samples of one condition that are still to be run, in one go or in chunks."""

    condition: Condition
    todo: Sequence[Todo]
    folder: Path  # of the run, where traces go
    max_rows: int | None  # rows a forward; None: found by trying
    timed: bool = True  # whether times must mean something: nothing is remembered then


class Observer(Protocol):
    """What a progress display is told."""

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None: ...

    def record(self, condition: Condition, record: Record) -> None: ...


class Silent:
    """Tells nobody."""

    def begin(self, condition: Condition, total: int, done: Sequence[Record]) -> None:
        return None

    def record(self, condition: Condition, record: Record) -> None:
        return None


@dataclass(slots=True)
class _Watch:
    """The compact memory of one running search."""

    scored: bool
    trace: TraceFile | None
    curve: list[float] = field(default_factory=list)
    ess: list[float] = field(default_factory=list)
    scores: list[tuple[int, ...]] = field(default_factory=list)

    def step(self, step: Step) -> None:
        self.curve.append(_short(float(np.mean(step.confidence))))
        known = not np.isnan(step.score).any()
        if known:
            self.ess.append(step.ess / len(step.weight))
        if known and self.scored:
            self.scores.append(tuple(np.rint(100 * step.score).astype(int).tolist()))
        if self.trace is not None:
            self.trace.add(step)


class Work(Protocol):
    """Where the searches run: `Here`, or on many machines (distributed.py)."""

    def manifest(self, plan: Plan) -> Manifest: ...

    def records(self, plan: Plan, part: Part) -> Iterator[Record]:
        """One record per sample and seed, as they are done; `at` is left to the one who asks."""
        ...


def evaluate(
    model: Model,
    plan: Plan,
    folder: Path,
    *,
    observer: Observer | None = None,
    max_rows: int | None = None,
) -> Manifest:
    """Run what is missing of a plan; returns the manifest it runs under."""
    return evaluate_with(Here(model), plan, folder, observer=observer, max_rows=max_rows)


def evaluate_with(
    work: Work,
    plan: Plan,
    folder: Path,
    *,
    observer: Observer | None = None,
    max_rows: int | None = None,
) -> Manifest:
    """The same, wherever the searches run."""
    manifest = work.manifest(plan)
    with Store(folder) as store:  # the lock comes first: nobody else may write the plan
        manifests.commit(
            folder, manifest, {task: some.samples for task, some in plan.problems.items()}
        )
        stage = _Stage(work, plan, store, observer or Silent(), folder)
        for condition in plan.conditions:
            stage.run(condition, max_rows)
    return manifest


@dataclass(slots=True)
class _Stage:
    """One condition after the other against one store."""

    work: Work
    plan: Plan
    store: Store
    observer: Observer
    folder: Path

    def run(self, condition: Condition, max_rows: int | None) -> None:
        spec = condition.spec  # hashed anew at every look
        done = [record for record in self.store.records if record.spec == spec]
        todo = self._missing(condition)
        self.observer.begin(condition, len(done) + len(todo), done)
        if not todo:
            return
        offset = max((record.at or 0.0 for record in done), default=0.0)  # earlier sittings count
        timed, quick = self._split(condition, todo)
        for part in (
            Part(condition, timed, self.folder, max_rows),
            Part(condition, quick, self.folder, max_rows, timed=False),
        ):
            started = time.perf_counter()
            for record in self.work.records(self.plan, part):
                passed = offset + time.perf_counter() - started
                record = replace(record, at=round(passed, 4) if part.timed else None)
                self.store.append(record)
                self.observer.record(condition, record)

    def _split(self, condition: Condition, todo: list[Todo]) -> tuple[list[Todo], list[Todo]]:
        """Those to be timed, and those that may make use of what others have computed."""
        if not self.plan.remember:
            return todo, []
        first = {sample.id for sample in self.plan.problems[condition.task].samples[:TIMED]}
        timed = [one for one in todo if one[0].id in first and one[1] == self.plan.seeds[0]]
        return timed, [one for one in todo if one not in timed]

    def _missing(self, condition: Condition) -> list[Todo]:
        """What a condition asks for and the store does not have, seed after seed."""
        return [
            (sample, seed)
            for seed in self.plan.seeds[: condition.seeds]
            for sample in self.plan.problems[condition.task].samples[: condition.problems]
            if (condition.spec, sample.id, seed) not in self.store.keys
        ]


@dataclass(slots=True)
class Here:
    """Searches in this process, packed into full batches."""

    model: Model
    counting: TokenCounter = field(init=False)
    rows: dict[tuple[str, int], int] = field(default_factory=dict)
    remembering: Model | None = None

    def __post_init__(self) -> None:
        self.counting = counter(self.model.tokenizer)

    def manifest(self, plan: Plan) -> Manifest:
        return _manifest(self.model, plan, self.counting)

    def records(self, plan: Plan, part: Part) -> Iterator[Record]:
        if not part.todo:
            return
        model = self.model if part.timed else self._remembering(plan.remember)
        watches: dict[int, _Watch] = {}
        jobs = self._jobs(plan, part, watches)
        most = part.max_rows or self._rows(plan, part.condition)
        for index, event in engine.run(model, jobs, max_rows=most):
            if isinstance(event, Step):
                watches[index].step(event)
            else:
                sample, seed = part.todo[index]
                yield self._record(part.condition, sample, seed, watches.pop(index), event)

    def _remembering(self, gigabytes: float) -> Model:
        if self.remembering is None:
            memory = Remembering(self.model.denoiser, int(gigabytes * 2**30))
            self.remembering = replace(self.model, denoiser=memory)
        return self.remembering

    def _jobs(self, plan: Plan, part: Part, watches: dict[int, _Watch]) -> Iterator[Job]:
        """Jobs one by one as the engine has room; each gets its watch when it starts."""
        condition = part.condition
        place = {s.id: i for i, s in enumerate(plan.problems[condition.task].samples)}
        for index, (sample, seed) in enumerate(part.todo):
            settings = condition.settings.replace(seed=seed)
            job = Job(sample.question, condition.task, settings, sample.id)
            first = seed == plan.seeds[0]
            traced = first and place[sample.id] < plan.traces
            path = part.folder / "traces" / f"{condition.spec}-{sample.id}.jsonl"
            watches[index] = _Watch(
                scored=first and place[sample.id] < WATCHED,
                trace=TraceFile(path, self.model, job) if traced else None,
            )
            yield job

    def _rows(self, plan: Plan, condition: Condition) -> int:
        """Rows a forward: tried out once for each task and length, on its first prompt."""
        key = (condition.task, condition.settings.gen_length)
        if key not in self.rows:
            question = plan.problems[condition.task].samples[0].question
            prompt = tasks.get(condition.task).render(question, self.model.preset)
            ids = self.model.tokenizer.chat(prompt.user, prompt.prefill)
            self.rows[key] = rows_that_pay(self.model, ids, key[1])
        return self.rows[key]

    def _record(
        self,
        condition: Condition,
        sample: Sample,
        seed: int,
        watch: _Watch,
        result: Result,
    ) -> Record:
        if watch.trace is not None:
            watch.trace.finish(result)
        kind = tasks.get(condition.task).answer
        count = self.counting.count
        return Record(
            spec=condition.spec,
            sample=sample.id,
            seed=seed,
            correct=answers.grade(kind, result.text, sample.gold, "fixed", sample.question),
            answer=result.answer,
            text=result.text,
            survivors=tuple(_candidate(one) for one in result.survivors),
            nfe=result.nfe,
            nfe_logical=result.nfe_logical,
            steps=len(watch.curve),
            tokens=count(result.text) if result.text else 0,
            answer_tokens=count(result.answer) if result.answer else 0,
            confidence=_short(float(np.mean([one.confidence for one in result.survivors]))),
            ess=_short(float(np.mean(watch.ess))) if watch.ess else None,
            curve=tuple(watch.curve),
            scores=tuple(watch.scores),
            seconds=round(result.seconds, 4),
        )


def _candidate(one: Any) -> Candidate:
    return Candidate(
        text=one.text,
        answer=one.answer,
        score=None if one.score is None else _short(one.score),
        nll=_short(one.nll),
        confidence=_short(one.confidence),
        log_weight=_short(one.log_weight),
        tokens=one.tokens,
    )


def _short(value: float) -> float:
    """Six significant digits: all that a table shows, and no more bytes than that."""
    return float(f"{value:.6g}")


def _manifest(model: Model, plan: Plan, counting: TokenCounter) -> Manifest:
    return Manifest(
        model=model.name,
        fingerprint=circumstances.fingerprint(model),
        preset=model.preset,
        split=plan.split,
        base=plan.base.replace(seed=0).to_json(),
        conditions=tuple(plan.conditions),
        seeds=tuple(plan.seeds),
        counts={task: len(some.samples) for task, some in plan.problems.items()},
        origins={task: some.origin for task, some in plan.problems.items()},
        token_counter=counting.name,
        tuned={label: dict(own) for label, own in plan.tuned.items()},
        versions=circumstances.versions(),
        machine=circumstances.machine(model),
    )
