"""Searches in this process, batched: what `evaluate` does with a model.

A sample that cannot be run or graded is a failure of its own. If a forward pass raises, it is unknown
which search is the cause: those of the batch start again one by one. Results do not depend on the
batch, so the others lose nothing but time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from s3dlm import answers, tasks
from s3dlm.answers.grade import gold_number
from s3dlm.engine import Batcher, Job, Result
from s3dlm.errors import MissingExtraError, RecordError, SettingsError
from s3dlm.evaluation import environment
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Candidate, Failure, Record, to_line, write_atomic
from s3dlm.evaluation.run import Request
from s3dlm.models.base import Model
from s3dlm.models.row_cache import RowCache
from s3dlm.search.step import Step
from s3dlm.tasks import Sample
from s3dlm.trace import TraceEncoder

SCORED = 100  # problems per condition whose scores are recorded at every step, for the figures


@dataclass(slots=True)
class _Watch:
    """What is kept of one running search."""

    keep_scores: bool
    trace: _Trace | None
    curve: list[float] = field(default_factory=list)
    ess: list[float] = field(default_factory=list)
    scores: list[tuple[int, ...]] = field(default_factory=list)

    def step(self, step: Step) -> None:
        self.curve.append(_short(float(np.mean(step.confidence))))
        if not np.isnan(step.score).any():
            self.ess.append(step.ess / len(step.weight))
            if self.keep_scores:
                self.scores.append(tuple(np.rint(100 * step.score).astype(int).tolist()))
        if self.trace is not None:
            self.trace.add(step)


@dataclass(slots=True)
class _Trace:
    """Collects the events of one search; the file is written as a whole when the search has ended."""

    path: Path
    model: Model
    job: Job
    lines: list[dict[str, Any]] = field(default_factory=list)
    encoder: TraceEncoder | None = None

    def add(self, event: Step | Result) -> None:
        if self.encoder is None:
            self.encoder = TraceEncoder.of(self.model)
            job = self.job
            self.lines.append(
                self.encoder.header(self.model.name, job.question, job.task, job.settings)
            )
        self.lines.append(self.encoder.event(event))

    def finish(self, result: Result, gold: object, correct: float, label: str) -> None:
        self.add(result)
        self.lines[0] |= {"gold": gold, "correct": correct, "label": label}
        write_atomic(self.path, "".join(to_line(line).decode() for line in self.lines))


@dataclass(slots=True)
class LocalRunner:
    """The runner for one model in this process."""

    model: Model
    counter: environment.TokenCounter = field(init=False)
    batch_sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    cached: Model | None = None  # the model behind a row cache

    def __post_init__(self) -> None:
        self.counter = environment.token_counter(self.model.tokenizer)

    def manifest(self, plan: Plan) -> Manifest:
        return Manifest(
            model=self.model.name,
            fingerprint=environment.fingerprint(self.model),
            prompt_style=self.model.defaults.prompt_style,
            split=plan.split,
            conditions=tuple(plan.conditions),
            seeds=tuple(plan.seeds),
            counts={task: len(some.samples) for task, some in plan.problems.items()},
            origins={task: some.origin for task, some in plan.problems.items()},
            token_counter=self.counter.name,
            versions=environment.versions(),
            machine=environment.machine(self.model),
        )

    def warm_up(self, plan: Plan, condition: Condition, batch_size: int | None) -> None:
        if batch_size is None:
            self._batch_size(plan, condition)

    def records(self, plan: Plan, request: Request) -> Iterator[Record | Failure]:
        kind, good = tasks.get(request.condition.task).answer, []
        for sample, seed in request.todo:
            wrong = wrong_gold(kind, sample)
            if wrong is None:
                good.append((sample, seed))
            else:
                yield _failure(request.condition, sample, seed, RecordError(wrong))
        yield from self._search(plan, replace(request, todo=good)) if good else ()

    def _search(self, plan: Plan, request: Request) -> Iterator[Record | Failure]:
        model = self.model if request.timed else self._cached(plan.row_cache)
        size = request.batch_size or self._batch_size(plan, request.condition)
        condition, watches = request.condition, dict[int, _Watch]()
        jobs = [
            Job(sample.question, condition.task, condition.settings.replace(seed=seed), sample.id)
            for sample, seed in request.todo
        ]
        for index, event in _events(model, jobs, size):
            sample, seed = request.todo[index]
            if event is None:
                watches[index] = self._watch(plan, request, sample, jobs[index])
            elif isinstance(event, Step):
                watches[index].step(event)
            elif isinstance(event, Exception):
                del watches[index]
                yield _failure(condition, sample, seed, event)
            else:
                yield self._finish(condition, sample, seed, watches.pop(index), event)

    def _finish(
        self, condition: Condition, sample: Sample, seed: int, watch: _Watch, result: Result
    ) -> Record | Failure:
        try:
            record = self._record(condition, sample, seed, watch, result)
        except Exception as error:  # whatever a text does to grading concerns this sample alone
            return _failure(condition, sample, seed, error)
        if watch.trace is not None:
            watch.trace.finish(result, sample.gold, record.correct, condition.label)
        return record

    def _cached(self, gigabytes: float) -> Model:
        if self.cached is None:
            memory = RowCache(self.model.denoiser, int(gigabytes * 2**30))
            self.cached = replace(self.model, denoiser=memory)
        return self.cached

    def _watch(self, plan: Plan, request: Request, sample: Sample, job: Job) -> _Watch:
        """For a search that starts; scores and traces are kept of the first problems only."""
        samples = plan.problems[request.condition.task].samples
        first = job.settings.seed == plan.seeds[0]
        traced = first and any(one.id == sample.id for one in samples[: plan.traces])
        scored = first and any(one.id == sample.id for one in samples[:SCORED])
        path = request.folder / "traces" / f"{request.condition.spec}-{sample.id}.jsonl"
        return _Watch(scored, _Trace(path, self.model, job) if traced else None)

    def _batch_size(self, plan: Plan, condition: Condition) -> int:
        """Measured once for each task and length, on the first prompt that works."""
        key = (condition.task, condition.settings.gen_length)
        for sample in plan.problems[condition.task].samples if key not in self.batch_sizes else ():
            prompt = tasks.get(condition.task).render(
                sample.question, self.model.defaults.prompt_style
            )
            try:
                ids = self.model.tokenizer.chat(prompt.user, prompt.prefill)
                self.batch_sizes[key] = environment.best_batch_size(self.model, ids, key[1])
                break
            except Exception:  # this sample will fail in its own turn
                continue
        return self.batch_sizes.get(key, environment.BATCH_SIZES[0])

    def _record(
        self, condition: Condition, sample: Sample, seed: int, watch: _Watch, result: Result
    ) -> Record:
        kind, count = tasks.get(condition.task).answer, self.counter.count
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
            chosen_score=_short_or_none(result.score),
            chosen_confidence=_short_or_none(result.confidence),
            p_correct=_short_or_none(result.p_correct),
            seconds=round(result.seconds, 4),
        )


def _candidate(one: Any) -> Candidate:
    return Candidate(
        text=one.text,
        answer=one.answer,
        score=_short_or_none(one.score),
        nll=_short(one.nll),
        confidence=_short(one.confidence),
        log_weight=_short(one.log_weight),
        tokens=one.tokens,
    )


def _short(value: float) -> float:
    """Six significant digits: more than a table shows."""
    return float(f"{value:.6g}")


def _short_or_none(value: float | None) -> float | None:
    return None if value is None else _short(value)


def wrong_gold(kind: str, sample: Sample) -> str | None:
    """What is wrong with a gold answer, if anything: no text could ever be graded by it."""
    gold, kind = sample.gold, answers.kind_of(kind)
    checks: dict[str, tuple[str, Callable[[], bool]]] = {
        "number": ("a number", lambda: gold_number(gold) is not None),
        "choice": (
            "a letter from A to H or a number from 1 to 8",
            lambda: str(gold).strip().upper() in {*"ABCDEFGH12345678"},
        ),
        "expression": (
            "[[numbers], target]",
            lambda: answers.grade(kind, "<answer>1</answer>", gold) >= 0,
        ),
        "grid": ("a string of digits", lambda: str(gold).isascii() and str(gold).isdigit()),
    }
    wanted, fits = checks.get(kind, ("", lambda: True))
    try:
        if fits():
            return None
    except (ValueError, TypeError, OverflowError):
        pass
    return f"the gold answer {str(gold)[:60]!r} of {sample.id} is not {wanted}; correct the data"


def _failure(condition: Condition, sample: Sample, seed: int, error: Exception) -> Failure:
    reason = " ".join(str(error).split())[:300]
    return Failure(condition.spec, sample.id, seed, type(error).__name__, reason)


Event = Step | Result | Exception | None  # None: the search starts, perhaps not for the first time
_OF_THE_RUN = (SettingsError, MissingExtraError)  # these concern the whole run, not a sample


def _events(model: Model, jobs: Sequence[Job], size: int) -> Iterator[tuple[int, Event]]:
    """Events of all jobs as (index, event), in batches of about `size` canvases."""
    batch, waiting, index_of = Batcher(model), iter(range(len(jobs))), dict[int, int]()
    while True:
        while not batch.running or batch.rows < size:
            index = next(waiting, None)
            if index is None:
                break
            yield index, None
            try:
                index_of[batch.add(jobs[index])] = index
            except Exception as error:
                yield index, _of_a_sample(error)
        if not batch.running:
            return
        try:
            events: list[tuple[int, Any]] = batch.step()
        except Exception as error:
            _of_a_sample(error)
            for index in index_of.values():
                yield from _alone(model, jobs[index], index)
            batch, index_of = Batcher(model), {}
            continue
        for key, event in events:
            yield index_of[key], event
            if not isinstance(event, Step):
                del index_of[key]


def _alone(model: Model, job: Job, index: int) -> Iterator[tuple[int, Event]]:
    """One search from the start, unbatched."""
    yield index, None
    batch = Batcher(model)
    try:
        batch.add(job)
        while batch.running:
            for _, event in batch.step():
                yield index, event
    except Exception as error:
        yield index, _of_a_sample(error)


def _of_a_sample(error: Exception) -> Exception:
    """The error, unless it concerns the whole run and ends it."""
    if isinstance(error, _OF_THE_RUN):
        raise error
    return error
