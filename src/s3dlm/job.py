"""From a job to a search: chat template, schedule, verifier and random stream, once per prompt.

Every search has a random stream of its own, seeded from (seed, sample id), so a result does not depend
on order, on batching or on being resumed. The way from its outcome to a result is in result.py.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from s3dlm.diffusion.grammar import Grammar
from s3dlm.errors import PromptError, SettingsError, short_repr
from s3dlm.models.base import Model, Turn
from s3dlm.models.self_judge import SelfJudge
from s3dlm.result import answer_of
from s3dlm.search.methods import Method
from s3dlm.search.particles import PROCESSES, WITH_GRAMMAR, Floats, Ints, Process, Request
from s3dlm.search.run import Run
from s3dlm.search.score import Scorer
from s3dlm.search.select import SELECTIONS, Selection
from s3dlm.search.step import Memo, Outcome, Step
from s3dlm.settings import Settings, has
from s3dlm.tasks.base import get as find_task
from s3dlm.verifier.base import SELF
from s3dlm.verifier.calibration import AnswerCalibration, Fit
from s3dlm.verifier.names import GENERAL, as_verifier, for_task

OWN_PACE = {"reveal": "threshold"}  # of a text that follows a grammar: its own
HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # a lone surrogate


@dataclass(frozen=True, slots=True)
class Job:
    """One prompt and how it is to be answered."""

    question: str
    task: str | None = None
    settings: Settings = field(default_factory=Settings)
    sample_id: str | int | None = None  # None: the prompt's tokens
    verifier: Any = None  # a Verifier or a function; None: the one that the settings name
    earlier: tuple[Turn, ...] = ()  # the conversation before the question
    infill: str | None = None  # the answer as a text with holes; the question may then be empty
    judged_for: str | None = None  # the question that the verifier is given; None: the question
    grammar: Any = None  # what the answer must be, as `Grammar.of` takes it

    def __post_init__(self) -> None:
        if self.grammar is None:
            return
        if self.infill is not None:
            raise SettingsError("grammar and infill were both given; leave one out")
        if not has(type(self.settings.search), "reveal"):
            raise SettingsError(
                f"method={self.settings.method!r} decides itself which tokens come first, and a grammar needs "
                "them from the left; choose another method, such as s3 or revise"
            )
        object.__setattr__(self, "grammar", Grammar.of(self.grammar))
        if not self.settings.decoding.adaptive:
            object.__setattr__(self, "settings", self.settings.replace(**OWN_PACE))

    @property
    def kind(self) -> str:
        """The kind of answer, by which it is read and normalised."""
        return find_task(self.task).answer if self.task is not None else GENERAL

    @property
    def label(self) -> str:
        """Names the job in errors."""
        name = self.question or self.infill or ""
        return repr(name if len(name) <= 60 else name[:57] + "...")


@dataclass(slots=True)
class Running:
    """A search under way, with what it waits for."""

    job: Job
    run: Run
    search: Generator[Request[Any], Any, Outcome]
    process: Process
    calibration: AnswerCalibration | None = None  # of the probability that the answer is right
    request: Request[Any] | None = None  # None: it is over
    ancestry: list[tuple[int, ...]] = field(default_factory=list)
    looked_ahead: list[tuple[Ints, Floats]] = field(default_factory=list)  # if the steps vote
    started: float = field(default_factory=time.perf_counter)
    forward_seconds: float = 0.0
    sampling_seconds: float = 0.0
    verifier_seconds: float = 0.0

    @property
    def scorer(self) -> Scorer:
        return self.run.scorer

    @property
    def rows(self) -> int:
        """Canvases that wait for a forward pass."""
        return 0 if self.request is None else sum(len(x.canvas) for x in self.request.forwards)

    @property
    def selection(self) -> Selection:
        return SELECTIONS[self.job.settings.search.selection]

    def note(self, step: Step) -> None:
        """Keep what the result tells of a step, or is chosen from."""
        self.ancestry.append(tuple(step.parent[step.survivor].tolist()))
        if self.selection.from_steps:
            self.looked_ahead.append((step.clean[step.survivor], step.confidence[step.survivor]))


def prepare(model: Model, job: Job) -> Running:
    """Check a job and build its search; nothing has been forwarded yet."""
    check_prompt(job)
    if job.grammar is not None and model.denoiser.diffusion != "masked":
        raise SettingsError(
            f"{model.name} takes tokens back while it denoises uniform noise, so its answers follow no grammar; "
            "choose a model of masked diffusion"
        )
    job, settings = as_read(model, job), job.settings
    prompt, fit = np.asarray(_prompt_ids(model, job), dtype=np.int64), _fit(model, job)
    kind = model.denoiser.diffusion if job.grammar is None else WITH_GRAMMAR
    process = PROCESSES.find(kind)(model, job, prompt)
    tokens = str(process.prompt.tolist()) + (job.infill or "")
    method, name = settings.search, settings.verifier if fit is None else fit.verifier
    verifier = job.verifier
    if verifier is None and name == SELF:
        verifier = SelfJudge(model)
    elif verifier is None:
        kind = find_task(job.task).verifier if job.task is not None else GENERAL
        verifier = for_task(kind, name)
    verifier = as_verifier(verifier)
    stops = method.budget is not None and method.stop_when == "satisfied"
    satisfied_at = verifier.satisfied_at if stops else None
    # By default the same tokens get the same random numbers, wherever the prompt came from.
    rng = random_stream(settings.decoding.seed, tokens if job.sample_id is None else job.sample_id)
    judged = method.verified != "never"
    question = job.question if job.judged_for is None else job.judged_for
    # A canvas can come back, but for one scheduled search: every step of it reveals more than that before.
    uneven = settings.decoding.adaptive and method.size * method.children > 1
    meets_again = method.repeats or method.meets_again or uneven
    run = Run(
        process,
        Scorer(verifier, question, job.label, process, satisfied_at),
        rng,
        Memo(settings.decoding.memo << 20 if meets_again else 0),
        partial(answer_of, job),
        judging=method.looks if judged and verifier.model_judge is not None else 0,
        judged=judged,
    )
    method.check(run)
    calibration = None if fit is None else fit.weights
    return Running(job, run, _search(method, run), process, calibration)


def _search(method: Method, run: Run) -> Generator[Request[Any], Any, Outcome]:
    """The method's coroutine, made when it is started: one that never starts would be warned of."""
    return (yield from method.answer(run).__await__())


def as_read(model: Model, job: Job) -> Job:
    """A question that the model reads as a text with holes becomes one; without a task it belongs to
    the first one that the model recommends."""
    read = None if job.infill is not None else model.tokenizer.holes(job.question)
    if read is None:
        return job
    question, infill = read
    task = model.defaults.tasks[0] if job.task is None else job.task
    return replace(job, question=question, infill=infill, task=task)


def check_prompt(job: Job) -> None:
    """Refuse what cannot be asked, of any model."""
    if not isinstance(job.question, str):
        raise PromptError(
            f"prompt={short_repr(job.question)} is not a text; give the question as a string "
            "(for a conversation, use the server or `Job(…, earlier=…)`)"
        )
    if job.infill is not None and not isinstance(job.infill, str):
        raise PromptError(
            f"infill={short_repr(job.infill)} is not a text; give one with holes, as in 'It is [[4]].'"
        )
    for text in (job.question, *(turn.text for turn in job.earlier), job.infill or ""):
        if half := HALF_A_CHARACTER.search(text):
            raise PromptError(
                f"the prompt has {half.group()!r} at position {half.start()}, half of a character that "
                "no tokenizer reads; decode the text with errors='replace'"
            )
    alone = job.infill is not None and job.task is None and not job.earlier
    if not job.question.strip() and not alone:
        needed = f", which task={job.task!r} needs" if job.task is not None else ""
        raise PromptError(f"the prompt {job.question!r} is empty; give a question{needed}")


def _prompt_ids(model: Model, job: Job) -> list[int]:
    if not job.question.strip():
        return []  # the text with holes is all there is
    user, prefill, earlier = job.question, "", job.earlier
    if job.task is not None:
        prompt = model.defaults.prompt(find_task(job.task), job.question)
        user, prefill = prompt.user, prompt.prefill
        if prompt.system and not any(turn.role == "system" for turn in earlier):
            earlier = (Turn("system", prompt.system), *earlier)
    if earlier:
        ids = model.tokenizer.converse((*earlier, Turn("user", user)), prefill)
    else:
        ids = model.tokenizer.chat(user, prefill)
    length = job.settings.decoding.gen_length
    room = model.denoiser.context - length
    if len(ids) > room and job.infill is None:
        shorten = f"shorten the prompt to {room} tokens or " if room > 0 else ""
        raise PromptError(
            f"the prompt has {len(ids)} tokens and gen_length is {length}, but {model.name} reads at "
            f"most {model.denoiser.context} in all; {shorten}choose a smaller gen_length (max_tokens)"
        )
    return ids


def _fit(model: Model, job: Job) -> Fit | None:
    """The calibration of this job's answers; the scores of a verifier of one's own have none. A
    method that never scores is judged by the verifier that its calibration names. An answer of which
    a part was given is no measure of the model."""
    if job.verifier is not None or job.infill is not None:
        return None
    method = job.settings.search
    scores = job.settings.verifier if method.verified != "never" else None
    return model.calibrations.find(job.task, method.like or method.name, scores)


def random_stream(seed: int, sample_id: str | int) -> np.random.Generator:
    digest = hashlib.sha256(str(sample_id).encode(errors="surrogatepass")).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
