"""Prompt in → steps → answer out: the only place where a search meets a model.

`prepare` turns a job into a search (chat template, schedule, verifier, random stream); `Packer` runs
any number of searches side by side, one forward for all of them at a time; `run`, `stream`,
`generate` and `generate_batch` are ways to drain it. Every search has a random stream of its own,
seeded from (seed, sample id), so a result does not depend on order, company or resumption.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from s3dlm import answers, tasks
from s3dlm.diffusion import MaskedDiffusion
from s3dlm.errors import PromptError, S3dlmError, SettingsError
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward, Rows
from s3dlm.schedule import reveals
from s3dlm.search.loop import Outcome, Search, Step, search
from s3dlm.search.methods import Plan
from s3dlm.search.score import Scorer
from s3dlm.search.select import SELECTIONS, Survivor
from s3dlm.settings import Settings
from s3dlm.verifier import Verifier, as_verifier, for_task

GENERAL = "general"  # the verifier profile and answer kind of a prompt without a task


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt and how it is to be answered."""

    question: str
    task: str | None = None
    settings: Settings = field(default_factory=Settings)
    sample_id: str | int | None = None  # None: the question itself
    verifier: Any = None  # a Verifier, a function or a name; None: the task's own


@dataclass(frozen=True, slots=True)
class Result:
    """The answer, and what it took to find it."""

    text: str
    answer: str | None
    survivors: tuple[Survivor, ...]
    nfe: int  # rows really forwarded
    nfe_logical: int  # what Algorithm 1 would have forwarded: 1 + T·N·b
    seconds: float
    profile: dict[str, float]  # seconds by activity: forward, verifier, the rest
    question: str
    task: str | None
    settings: Settings


@dataclass(slots=True)
class _Running:
    """A search under way, with what it asked for last."""

    job: Job
    search: Search
    scorer: Scorer
    process: MaskedDiffusion
    plan: Plan
    started: float
    asked: Rows | None = None
    forward_seconds: float = 0.0


def prepare(model: Model, job: Job) -> _Running:
    """Check a job and build its search; nothing has been forwarded yet."""
    settings, kind = job.settings, job.task or GENERAL
    prompt = _prompt_ids(model, job)
    plan = Plan.of(settings)
    label = repr(job.question if len(job.question) <= 60 else job.question[:57] + "...")
    process = MaskedDiffusion(
        prompt=np.asarray(prompt, dtype=np.int64),
        schedule=reveals(settings.gen_length, settings.steps, settings.block_length),
        policy=settings.policy,
        temperature=settings.temperature,
        draws=plan.particles * plan.branching,
        look_ahead_wanted=plan.scored == "every step",
        mask_id=model.denoiser.mask_id,
        end_ids=np.asarray(sorted(model.end_ids), dtype=np.int64),
        decode=model.tokenizer.decode,
        label=label,
    )
    scorer = Scorer(_verifier(job, kind), job.question, label, process)
    rng = _stream(settings.seed, job.question if job.sample_id is None else job.sample_id)
    steps = search(process, scorer, plan, rng)
    return _Running(job, steps, scorer, process, plan, time.perf_counter())


def _prompt_ids(model: Model, job: Job) -> list[int]:
    if not isinstance(job.question, str) or not job.question.strip():
        raise PromptError(f"the prompt {job.question!r} is empty; give a question")
    user, prefill = job.question, ""
    if job.task is not None:
        prompt = tasks.get(job.task).render(job.question, model.preset)
        user, prefill = prompt.user, prompt.prefill
    ids = model.tokenizer.chat(user, prefill)
    room = model.denoiser.context - job.settings.gen_length
    if len(ids) > room:
        raise PromptError(
            f"the prompt has {len(ids)} tokens and gen_length is {job.settings.gen_length}, but "
            f"{model.name} reads at most {model.denoiser.context} in all; shorten the prompt to "
            f"{max(room, 0)} tokens or choose a smaller gen_length"
        )
    return ids


def _verifier(job: Job, kind: str) -> Verifier:
    if job.verifier is not None:
        return as_verifier(job.verifier)
    profile = tasks.get(job.task).profile if job.task is not None else kind
    return for_task(profile, job.settings.profile)


def _stream(seed: int, sample_id: str | int) -> np.random.Generator:
    digest = hashlib.sha256(str(sample_id).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])


class Packer:
    """Runs searches side by side: each `step` is one forward for everyone who waits for one."""

    def __init__(self, model: Model, **forward: int) -> None:
        self.model = model
        self.forward = Forward(model.denoiser, **forward)
        self.running: dict[int, _Running] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """Rows waiting for the next forward."""
        return sum(len(one.asked.canvas) for one in self.running.values() if one.asked is not None)

    def add(self, job: Job) -> int:
        """Start a job; its key names its events. A bad job raises here and touches nobody."""
        running = prepare(self.model, job)
        running.asked = next(running.search)
        key, self._next = self._next, self._next + 1
        self.running[key] = running
        return key

    def remove(self, key: int) -> None:
        """Give a job up; its rows leave the batch."""
        gone = self.running.pop(key, None)
        if gone is not None:
            gone.search.close()

    def step(self) -> list[tuple[int, Step | Result | S3dlmError]]:
        """One forward for all; a search that fails ends with its error and the others go on."""
        waiting = [(key, one) for key, one in self.running.items() if one.asked is not None]
        requests = [one.asked for _, one in waiting if one.asked is not None]
        started = time.perf_counter()
        predictions = self.forward(requests)
        seconds = time.perf_counter() - started
        rows = sum(len(request.canvas) for request in requests)
        events: list[tuple[int, Step | Result | S3dlmError]] = []
        for (key, one), request, prediction in zip(waiting, requests, predictions, strict=True):
            one.forward_seconds += seconds * len(request.canvas) / rows
            events.extend((key, event) for event in self._advance(key, one, prediction))
        return events

    def _advance(
        self, key: int, one: _Running, prediction: Any
    ) -> Iterator[Step | Result | S3dlmError]:
        """Hand a search its prediction; one that does not ask again is over."""
        yield from advance(one, prediction)
        if one.asked is None:
            del self.running[key]


def advance(one: _Running, prediction: Any) -> Iterator[Step | Result | S3dlmError]:
    """Send a prediction and pass on what the search says until it asks again or ends."""
    one.asked = None
    try:
        said = one.search.send(prediction)
        while isinstance(said, Step):
            yield said
            said = next(one.search)
        one.asked = said
    except StopIteration as end:
        yield _result(one, end.value)
    except S3dlmError as error:
        yield error


def _result(one: _Running, outcome: Outcome) -> Result:
    job, plan = one.job, one.plan
    survivors = tuple(_survivors(one, outcome))
    chosen = SELECTIONS[plan.selection](survivors)
    seconds = time.perf_counter() - one.started
    known = {"forward": one.forward_seconds, "verifier": one.scorer.seconds}
    return Result(
        text=chosen.text,
        answer=chosen.answer,
        survivors=survivors,
        nfe=outcome.rows,
        nfe_logical=1 + one.process.steps * plan.particles * plan.branching,
        seconds=seconds,
        profile={**known, "rest": seconds - sum(known.values())},
        question=job.question,
        task=job.task,
        settings=job.settings,
    )


def _survivors(one: _Running, outcome: Outcome) -> Iterator[Survivor]:
    particles, job = outcome.particles, one.job
    nll = one.process.nll(particles.canvas)
    for index, tokens in enumerate(particles.canvas.tokens):
        text = one.scorer.text(tokens)
        score = float(particles.score[index])
        yield Survivor(
            text=text,
            answer=_answer(job, text),
            tokens=one.process.length(tokens),
            score=None if np.isnan(score) else score,
            parts=outcome.parts[index],
            log_weight=float(particles.log_weight[index]),
            nll=float(nll[index]),
            confidence=float(outcome.clean.confidence[index]),
        )


def _answer(job: Job, text: str) -> str | None:
    kind = tasks.get(job.task).answer if job.task is not None else GENERAL
    answer = answers.extract(kind, text, job.question)
    return None if answer is None else answers.normalise(kind, answer)


def run(
    model: Model, jobs: Iterable[Job], *, max_rows: int = 64, **forward: int
) -> Iterator[tuple[int, Step | Result]]:
    """Events of all jobs as (job's index, event), about `max_rows` rows a forward; jobs are taken
    from the iterable only when there is room, so it may be endless."""
    packer, waiting = Packer(model, **forward), enumerate(jobs)
    index_of: dict[int, int] = {}
    exhausted = False
    while True:
        while not exhausted and (not packer.running or packer.rows < max_rows):
            following = next(waiting, None)
            if following is None:
                exhausted = True
            else:
                index_of[packer.add(following[1])] = following[0]
        if not packer.running:
            return
        for key, event in packer.step():
            if isinstance(event, S3dlmError):
                raise event
            yield index_of[key], event
            if isinstance(event, Result):
                del index_of[key]


def stream(
    model: Model,
    prompt: str,
    *,
    task: str | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_id: str | int | None = None,
) -> Iterator[Step | Result]:
    """One `Step` per denoising step, then the `Result`."""
    job = Job(prompt, task, settings or Settings(), sample_id, verifier)
    for _, event in run(model, [job]):
        yield event


def generate(
    model: Model,
    prompt: str,
    *,
    task: str | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_id: str | int | None = None,
) -> Result:
    """The answer to one prompt."""
    return generate_batch(
        model,
        [prompt],
        task=task,
        settings=settings,
        verifier=verifier,
        sample_ids=None if sample_id is None else [sample_id],
    )[0]


def generate_batch(
    model: Model,
    prompts: Sequence[str],
    *,
    task: str | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_ids: Sequence[str | int] | None = None,
    max_rows: int = 64,
) -> list[Result]:
    """The answers to many prompts, in their order, each as if it had been asked alone."""
    if isinstance(prompts, str):
        raise SettingsError("generate_batch takes a list of prompts; for one prompt use generate")
    ids = [None] * len(prompts) if sample_ids is None else list(sample_ids)
    if len(ids) != len(prompts):
        raise SettingsError(f"{len(prompts)} prompts need as many sample_ids, got {len(ids)}")
    settings = settings or Settings()
    jobs = [
        Job(prompt, task, settings, one, verifier) for prompt, one in zip(prompts, ids, strict=True)
    ]
    results: dict[int, Result] = {
        index: event
        for index, event in run(model, jobs, max_rows=max_rows)
        if isinstance(event, Result)
    }
    return [results[index] for index in range(len(jobs))]
