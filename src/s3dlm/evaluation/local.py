"""Searches in this process, batched: what `evaluate` does with a model, and every worker as well.

A sample that cannot be run or graded is a failure of its own (`engine.events`). Results do not depend
on the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from s3dlm import engine, tasks
from s3dlm.answers import grading
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, Result
from s3dlm.errors import RecordError
from s3dlm.evaluation import manifest
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Failure, Record, RecordedSurvivor, to_line, write_atomic
from s3dlm.evaluation.run import Chunk, WorkItem
from s3dlm.models.base import Model
from s3dlm.search.step import Step
from s3dlm.tasks import Sample
from s3dlm.trace import TraceEncoder

SAME = ("answer", "text", "nfe", "nfe_logical", "p_correct")  # in a result and its record


@dataclass(slots=True)
class LocalRunner:
    """The runner for one model in this process."""

    model: Model

    def describe(self) -> dict[str, Any]:
        return manifest.describe(self.model)

    def records(self, chunk: Chunk) -> Iterator[Record | Failure]:
        condition, model = chunk.condition, self.model
        _, count_tokens = manifest.token_counter(model.tokenizer)
        good, jobs = list[WorkItem](), list[Job]()
        for item in chunk.items:
            sample, settings = item.sample, condition.settings.replace(seed=item.seed)
            if problem := gold_mistake(tasks.get(condition.task).answer, sample):
                yield _failure(condition, item, RecordError(problem))
            else:
                good.append(item)
                jobs.append(Job(sample.question, condition.task, settings, sample.id))
        watches: dict[int, _Watch] = {}
        for index, event in engine.events(model, jobs, chunk.batch_size):
            if event is None:
                watches[index] = _Watch(good[index], jobs[index], model)
            elif isinstance(event, Step):
                watches[index].step(event)
            elif isinstance(event, Exception):
                yield _failure(condition, good[index], event)
            else:
                try:
                    yield watches.pop(index).finish(condition, event, count_tokens)
                except RecordError:  # a trace that cannot be written says nothing of the sample
                    raise
                except Exception as error:  # what a text does to grading concerns it alone
                    yield _failure(condition, good[index], error)


@dataclass(slots=True)
class _Watch:
    """What is recorded of one running search; its trace is written as a whole at the end."""

    item: WorkItem
    job: Job
    model: Model
    curve: list[float] = field(default_factory=list)
    ess: list[float] = field(default_factory=list)
    scores: list[tuple[int, ...]] = field(default_factory=list)
    trace: list[dict[str, Any]] = field(default_factory=list)
    encoder: TraceEncoder | None = None

    def __post_init__(self) -> None:
        if self.item.trace is not None:
            self.encoder, job = TraceEncoder(self.model), self.job
            header = self.encoder.header(self.model.name, job.question, job.task, job.settings)
            self.trace.append(header)

    def step(self, step: Step) -> None:
        self.curve.append(self._confidence(step))
        if not np.isnan(step.score).any():
            self.ess.append(step.ess / len(step.weight))
            self.scores.append(tuple(np.rint(100 * step.score).astype(int).tolist()))
        if self.encoder is not None:
            self.trace.append(self.encoder.event(step))

    def _confidence(self, step: Step) -> float:
        """Mean probability of the children's texts as far as the open block: methods that never
        look ahead know no more, and all are drawn in one figure."""
        masked, size = (
            step.tokens == self.model.denoiser.mask_id,
            self.job.settings.decoding.block_length,
        )
        position = np.arange(masked.shape[1])
        first = np.where(masked.any(axis=1), masked.argmax(axis=1), len(position))
        ends = np.isin(step.clean, list(self.model.end_ids))
        counted: np.ndarray = np.cumsum(ends, axis=1) - ends == 0
        counted &= position < (first // size + 1)[:, None] * size
        counted &= step.clean != self.model.denoiser.mask_id
        total = (np.exp(step.clean_logp) * counted).sum(axis=1)
        return float(np.mean(total / np.maximum(counted.sum(axis=1), 1)))

    def finish(
        self, condition: Condition, result: Result, count_tokens: Callable[[str], int]
    ) -> Record:
        sample, kind = self.item.sample, tasks.get(condition.task).answer
        names = RecordedSurvivor.__slots__
        survivors = [[getattr(row, name) for name in names] for row in result.survivors]
        record = Record(
            spec=condition.spec,
            sample=sample.id,
            seed=self.item.seed,
            correct=grade(kind, result.text, sample.gold, "fixed", sample.question),
            survivors=tuple(RecordedSurvivor(*survivor) for survivor in survivors),
            tokens=count_tokens(result.text) if result.text else 0,
            answer_tokens=count_tokens(result.answer) if result.answer else 0,
            ess=float(np.mean(self.ess)) if self.ess else None,
            curve=tuple(self.curve),
            scores=tuple(self.scores),
            chosen_score=result.score,
            chosen_confidence=result.confidence,
            **{name: getattr(result, name) for name in SAME},
        )
        if self.encoder is not None and self.item.trace is not None:
            graded = {"gold": sample.gold, "correct": record.correct, "label": condition.label}
            lines = [self.trace[0] | graded, *self.trace[1:], self.encoder.event(result)]
            write_atomic(self.item.trace, "".join(to_line(line).decode() for line in lines))
        return record


def _failure(condition: Condition, item: WorkItem, error: Exception) -> Failure:
    reason = " ".join(str(error).split())[:300]
    return Failure(condition.spec, item.sample.id, item.seed, type(error).__name__, reason)


def gold_mistake(kind: str, sample: Sample) -> str | None:
    """What is wrong with a gold answer, if anything: no text could ever be graded by it."""
    if (expected := grading.wrong_gold(kind, sample.gold)) is None:
        return None
    gold = f"the gold answer {str(sample.gold)[:60]!r} of {sample.id}"
    return f"{gold} is not {expected}; correct the data"
