"""Searches in this process, batched: what `evaluate` does with a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from s3dlm import answers, engine, tasks
from s3dlm.engine import Job, Result
from s3dlm.evaluation import environment
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Candidate, Record, write_atomic
from s3dlm.evaluation.run import Request
from s3dlm.models.base import Model
from s3dlm.models.remember import Remembering
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

    def finish(self, result: Result) -> None:
        self.add(result)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines)
        write_atomic(self.path, text)


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

    def records(self, plan: Plan, request: Request) -> Iterator[Record]:
        model = self.model if request.timed else self._cached(plan.row_cache)
        size = request.batch_size or self._batch_size(plan, request.condition)
        watches: dict[int, _Watch] = {}
        jobs = self._jobs(plan, request, watches)
        for index, event in engine.run(model, jobs, max_rows=size):
            if isinstance(event, Step):
                watches[index].step(event)
            else:
                watch = watches.pop(index)
                if watch.trace is not None:
                    watch.trace.finish(event)
                yield self._record(request.condition, *request.todo[index], watch, event)

    def _cached(self, gigabytes: float) -> Model:
        if self.cached is None:
            memory = Remembering(self.model.denoiser, int(gigabytes * 2**30))
            self.cached = replace(self.model, denoiser=memory)
        return self.cached

    def _jobs(self, plan: Plan, request: Request, watches: dict[int, _Watch]) -> Iterator[Job]:
        """Jobs one by one as the engine has room; each gets its watch when it starts."""
        condition, spec = request.condition, request.condition.spec
        place = {s.id: i for i, s in enumerate(plan.problems[condition.task].samples)}
        for index, (sample, seed) in enumerate(request.todo):
            settings = condition.settings.replace(seed=seed)
            job = Job(sample.question, condition.task, settings, sample.id)
            first = seed == plan.seeds[0]
            traced = first and place[sample.id] < plan.traces
            path = request.folder / "traces" / f"{spec}-{sample.id}.jsonl"
            watches[index] = _Watch(
                keep_scores=first and place[sample.id] < SCORED,
                trace=_Trace(path, self.model, job) if traced else None,
            )
            yield job

    def _batch_size(self, plan: Plan, condition: Condition) -> int:
        """Measured once for each task and length, on the first prompt."""
        key = (condition.task, condition.settings.gen_length)
        if key not in self.batch_sizes:
            question = plan.problems[condition.task].samples[0].question
            prompt = tasks.get(condition.task).render(question, self.model.defaults.prompt_style)
            ids = self.model.tokenizer.chat(prompt.user, prompt.prefill)
            self.batch_sizes[key] = environment.best_batch_size(self.model, ids, key[1])
        return self.batch_sizes[key]

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
    """Six significant digits: more than a table shows."""
    return float(f"{value:.6g}")
