"""From a job to a search, and from its outcome to a result: all that is done once per prompt.

Chat template, schedule, verifier and random stream on the way in; texts, answers and the choice among
them on the way out. Every search has a random stream of its own, seeded from (seed, sample id), so a
result does not depend on order, company or resumption.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from s3dlm import answers, tasks
from s3dlm.diffusion import MaskedDiffusion
from s3dlm.errors import PromptError
from s3dlm.models.base import Conversational, Model, Tokenizer, Turn, quoted
from s3dlm.models.forward import Rows
from s3dlm.schedule import block_lengths, reveals
from s3dlm.search.ensemble import repaired, side_by_side, sweeps
from s3dlm.search.expand import OVERSAMPLING
from s3dlm.search.loop import Outcome, Search, search
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
    earlier: tuple[Turn, ...] = ()  # what was said before the question


@dataclass(frozen=True, slots=True)
class Result:
    """The answer, and what it took to find it."""

    text: str
    answer: str | None
    survivors: tuple[Survivor, ...]
    nfe: int  # rows really forwarded
    nfe_logical: int  # what Algorithm 1 would have forwarded: 1 + T·N·b
    seconds: float
    profile: dict[str, float]  # seconds: forward, sampling, verifier, resampling, rest
    question: str
    task: str | None
    settings: Settings


@dataclass(slots=True)
class Running:
    """A search under way, with what it asked for last."""

    job: Job
    search: Search
    scorer: Scorer
    process: MaskedDiffusion
    plan: Plan
    asked: list[Rows] | None = None  # None: nothing, it is busy or over
    alone: bool = True  # whether it asked for one prediction or for a list
    started: float = field(default_factory=time.perf_counter)
    forward_seconds: float = 0.0
    sampling_seconds: float = 0.0


def prepare(model: Model, job: Job) -> Running:
    """Check a job and build its search; nothing has been forwarded yet."""
    plan = Plan.of(job.settings)
    process = _process(model, job, plan)
    scorer = Scorer(_verifier(job, plan), job.question, process.label, process)
    return Running(job, _search(process, scorer, plan, job), scorer, process, plan)


def _process(model: Model, job: Job, plan: Plan) -> MaskedDiffusion:
    settings = job.settings
    children = plan.particles * plan.branching
    return MaskedDiffusion(
        prompt=np.asarray(_prompt_ids(model, job), dtype=np.int64),
        schedule=reveals(settings.gen_length, settings.steps, settings.block_length),
        policy=settings.policy,
        temperature=settings.temperature,
        draws=children * (1 if plan.siblings == "independent" else OVERSAMPLING),
        look_ahead_wanted=plan.scored == "every step",
        mask_id=model.denoiser.mask_id,
        end_ids=np.asarray(sorted(model.end_ids), dtype=np.int64),
        decode=model.tokenizer.decode,
        label=repr(job.question if len(job.question) <= 60 else job.question[:57] + "..."),
    )


def _search(process: MaskedDiffusion, scorer: Scorer, plan: Plan, job: Job) -> Search:
    """The search of a job; a method may be made of several."""
    settings = job.settings
    rng = random_stream(settings.seed, job.question if job.sample_id is None else job.sample_id)
    if plan.sweeps > 1:
        return sweeps(process, scorer, plan, rng)
    if plan.repairs:
        return repaired(process, scorer, plan, rng)
    if not plan.blocks:
        return search(process, scorer, plan, rng)
    lengths = block_lengths(settings.gen_length, settings.steps)
    shares = [len(range(first, plan.particles, len(lengths))) for first in range(len(lengths))]
    return side_by_side(
        [
            search(
                replace(process, schedule=reveals(settings.gen_length, settings.steps, length)),
                scorer,
                replace(plan, particles=share),
                rng,
            )
            for length, share in zip(lengths, shares, strict=True)
            if share
        ]
    )


def _prompt_ids(model: Model, job: Job) -> list[int]:
    if not isinstance(job.question, str) or not job.question.strip():
        raise PromptError(f"the prompt {job.question!r} is empty; give a question")
    user, prefill = job.question, ""
    if job.task is not None:
        prompt = tasks.get(job.task).render(job.question, model.preset)
        user, prefill = prompt.user, prompt.prefill
    ids = _written(model.tokenizer, job.earlier, user, prefill)
    room = model.denoiser.context - job.settings.gen_length
    if len(ids) > room:
        raise PromptError(
            f"the prompt has {len(ids)} tokens and gen_length is {job.settings.gen_length}, but "
            f"{model.name} reads at most {model.denoiser.context} in all; shorten the prompt to "
            f"{max(room, 0)} tokens or choose a smaller gen_length"
        )
    return ids


def _written(tokenizer: Tokenizer, earlier: tuple[Turn, ...], user: str, prefill: str) -> list[int]:
    if not earlier:
        return tokenizer.chat(user, prefill)
    turns = (*earlier, Turn("user", user))
    if isinstance(tokenizer, Conversational):
        return tokenizer.converse(turns, prefill)
    return tokenizer.chat(quoted(turns), prefill)


def _verifier(job: Job, plan: Plan) -> Verifier:
    if job.verifier is not None:
        return as_verifier(job.verifier)
    profile = tasks.get(job.task).profile if job.task is not None else GENERAL
    return for_task(profile, plan.profile)


def random_stream(seed: int, sample_id: str | int) -> np.random.Generator:
    digest = hashlib.sha256(str(sample_id).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])


def finish(one: Running, outcome: Outcome) -> Result:
    """Read the survivors and choose among them."""
    job, plan = one.job, one.plan
    survivors = tuple(_survivors(one, outcome))
    chosen = SELECTIONS[plan.selection](survivors, _pool(one) if "pool" in plan.selection else ())
    seconds = time.perf_counter() - one.started
    known = {
        "forward": one.forward_seconds,
        "sampling": one.sampling_seconds,
        "verifier": one.scorer.seconds,
        "resampling": outcome.resampling_seconds,
    }
    return Result(
        text=chosen.text,
        answer=chosen.answer,
        survivors=survivors,
        nfe=outcome.rows,
        nfe_logical=_logical(one),
        seconds=seconds,
        profile={**known, "rest": seconds - sum(known.values())},
        question=job.question,
        task=job.task,
        settings=job.settings,
    )


def _logical(one: Running) -> int:
    """Rows of Algorithm 1 without sharing: one for each fresh start, N·b for every step."""
    plan, settings = one.plan, one.job.settings
    starts = 1
    if plan.blocks:
        starts = min(plan.particles, len(block_lengths(settings.gen_length, settings.steps)))
    return (
        (plan.repairs + 1)
        * plan.sweeps
        * (starts + one.process.steps * plan.particles * plan.branching)
    )


def _survivors(one: Running, outcome: Outcome) -> Iterator[Survivor]:
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


def _pool(one: Running) -> list[Survivor]:
    """Every complete text that was scored on the way, as if it had survived."""
    return [
        Survivor(
            text=text,
            answer=_answer(one.job, text),
            tokens=0,
            score=score.total,
            parts=score.parts,
            log_weight=0.0,
            nll=-math.log(max(confidence, 1e-9)),
            confidence=confidence,
        )
        for text, (score, confidence) in one.scorer.best().items()
    ]


def _answer(job: Job, text: str) -> str | None:
    kind = tasks.get(job.task).answer if job.task is not None else GENERAL
    answer = answers.extract(kind, text, job.question)
    return None if answer is None else answers.normalise(kind, answer)
