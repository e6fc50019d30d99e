"""Where searches meet the model: any number of them side by side, one forward pass for all at a time.

`Batcher` gathers what the running searches ask for, forwards it together and hands the predictions
out; texts for a verifier that takes many at once are gathered and verified in the same way. `run`,
`stream`, `generate`, `generate_batch` and `infill` are ways to drain it. What happens once per prompt is
in job.py (before) and result.py (after).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import s3dlm
from s3dlm.errors import MissingExtraError, S3dlmError, SettingsError, VerifierError, short_repr
from s3dlm.job import OWN_PACE, Running, prepare
from s3dlm.job import Job as Job
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward
from s3dlm.result import Result as Result
from s3dlm.result import finish
from s3dlm.search.methods import DEFAULT, Method, find_method
from s3dlm.search.particles import Request
from s3dlm.search.score import Scored, Verify, is_for_verifier, verify
from s3dlm.search.step import Outcome, Step, Stream
from s3dlm.settings import Settings, has
from s3dlm.tasks.base import of_question

Event = Step | Result | Exception


class Batcher:
    """Runs searches side by side: each `step` is one forward pass for everyone who waits for one."""

    def __init__(self, model: Model, **forward: int) -> None:
        self.model = model
        self.forward = Forward(model.denoiser, **forward)
        self.running: dict[int, Running] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """Canvases waiting for the next forward pass."""
        return sum(running.rows for running in self.running.values())

    def add(self, job: Job) -> int:
        """Start a job; its key names its events. A bad job raises here and changes nothing else."""
        return self.start(prepare(self.model, job))

    def start(self, running: Running) -> int:
        """As `add`, for a search that was prepared elsewhere."""
        running.started = time.perf_counter()
        running.request = running.search.send(None)
        key, self._next = self._next, self._next + 1
        self.running[key] = running
        return key

    def remove(self, key: int) -> None:
        """Cancel a job; it leaves the batch."""
        if (running := self.running.pop(key, None)) is not None:
            running.search.close()

    def step(self, keys: Iterable[int] | None = None) -> list[tuple[int, Event]]:
        """One forward pass for all who wait for one, or for those with these keys; and beside it one
        verifier call for all who wait for scores. A search that fails ends with its own error. If the
        forward pass raises, no search has advanced."""
        chosen = self.running if keys is None else {key: self.running[key] for key in keys}
        asked = {key: ask for key, r in chosen.items() if (ask := r.request) and ask.forwards}
        verifies = {k: ask for k, r in chosen.items() if is_for_verifier(ask := r.request)}
        if not verifies:
            return self._forward(asked)
        with ThreadPoolExecutor(1, "verifier") as beside:
            replies = beside.submit(self._verify, verifies)
            events = self._forward(asked) if asked else []
        for key, reply in zip(verifies, replies.result(), strict=True):
            events += self._advance(key, reply)
        return events

    def _forward(self, requests: Mapping[int, Request[Any]]) -> list[tuple[int, Event]]:
        started, model_before = time.perf_counter(), self.forward.model_seconds
        rows = [rows for request in requests.values() for rows in request.forwards]
        predictions = iter(self.forward(rows))
        model_seconds = self.forward.model_seconds - model_before
        other_seconds = time.perf_counter() - started - model_seconds
        total = sum(len(each.canvas) for each in rows)
        events: list[tuple[int, Event]] = []
        for key, request in requests.items():
            running, own = self.running[key], list(islice(predictions, len(request.forwards)))
            running.forward_seconds += model_seconds * running.rows / total
            running.sampling_seconds += other_seconds * running.rows / total
            events += self._advance(key, request.reply(own))
        return events

    def _verify(self, requests: Mapping[int, Verify]) -> list[Scored]:
        """What the searches with these keys ask for; each pays for its share of the texts."""
        started = time.perf_counter()
        replies = verify(list(requests.values()))
        seconds = time.perf_counter() - started
        total = sum(len(request.texts) for request in requests.values())
        for key, request in requests.items():
            if key in self.running:  # not cancelled meanwhile
                self.running[key].verifier_seconds += seconds * len(request.texts) / total
        return replies

    def _advance(self, key: int, reply: Any) -> list[tuple[int, Event]]:
        """Continue a search until it needs what it can share with others; one that ends leaves."""
        running = self.running[key]
        events = [*self._events(running, reply)]
        while is_for_verifier(running.request) and self._at_once(running):
            (reply,) = self._verify({key: running.request})
            events += self._events(running, reply)
        if running.request is None:
            del self.running[key]
        return [(key, event) for event in events]

    def _events(self, running: Running, reply: Any) -> Iterator[Event]:
        """Send a reply, and pass on the steps that the search makes until it asks again or ends."""
        running.request, search = None, running.search
        outcome: Outcome | S3dlmError | None = None
        try:
            failed = isinstance(reply, VerifierError)
            running.request = search.throw(reply) if failed else search.send(reply)
        except StopIteration as end:
            outcome = end.value
        except S3dlmError as error:
            outcome = error
        told = running.run.told.steps
        steps, told[:] = [*told], ()
        for step in steps:
            running.note(step)
            yield step
        try:
            if isinstance(outcome, Outcome):
                yield finish(running, outcome)
        except S3dlmError as error:
            outcome = error
        if isinstance(outcome, S3dlmError):
            yield outcome

    def _at_once(self, running: Running) -> bool:
        """Whether a search's texts are verified as soon as it asks: a verifier that takes many texts
        at once is called for all searches together."""
        return not running.scorer.takes_many


def run(
    model: Model, jobs: Iterable[Job], *, max_rows: int = 64, **forward: int
) -> Iterator[tuple[int, Step | Result]]:
    """Events of all jobs as (job's index, event), in batches of about `max_rows`; jobs are taken
    from the iterable only when there is room, so it may be endless."""
    for index, event in events(model, jobs, max_rows, **forward):
        if isinstance(event, Exception):
            raise event
        if event is not None:
            yield index, event


def events(
    model: Model, jobs: Iterable[Job], max_rows: int, **forward: int
) -> Iterator[tuple[int, Event | None]]:
    """As `run`, with the error of a search as its last event, and None where one starts. If a forward
    pass raises, it is unknown which search is the cause: those of the batch start again one by one."""
    batcher, waiting = Batcher(model, **forward), enumerate(jobs)
    running: dict[int, tuple[int, Job]] = {}
    while True:
        while not batcher.running or batcher.rows < max_rows:
            if (following := next(waiting, None)) is None:
                break
            index, job = following
            yield index, None
            try:
                running[batcher.add(job)] = following
            except (SettingsError, MissingExtraError):  # these concern the whole run
                raise
            except Exception as error:
                yield index, error
        if not batcher.running:
            return
        try:
            told = batcher.step()
        except (SettingsError, MissingExtraError):
            raise
        except Exception as error:
            again, running, batcher = [*running.values()], {}, Batcher(model, **forward)
            for index, job in again:
                alone = events(model, [job], 1, **forward) if len(again) > 1 else [(0, error)]
                yield from ((index, event) for _, event in alone)
            continue
        for key, event in told:
            yield running[key][0], event
            if not isinstance(event, Step):
                del running[key]


def generate(
    model: Model | str,
    prompt: str,
    *,
    task: str | None = None,
    method: str | Method | type[Method] | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_id: str | int | None = None,
    grammar: Any = None,
    **overrides: Any,
) -> Result:
    """The answer to one prompt.

    The model (or its name) brings the settings it recommends for the method, `revise` unless another is
    named; keywords such as `particles=8` override them. `settings` replaces them all. `verifier` is
    a name ("checker"), a function (question, text, confidence) → score, or a `Verifier`.

    With a `grammar` every answer follows it, and `Result.parsed` is its value: a pydantic class or another type, a
    JSON schema as a dictionary, `re.compile(…)`, a list of choices, or the text of a Lark grammar.
    """
    return stream(
        model, prompt, task=task, method=method, settings=settings, verifier=verifier,
        sample_id=sample_id, grammar=grammar, **overrides,
    ).result  # fmt: skip


def stream(model: Model | str, prompt: str, **options: Any) -> Stream[Result]:
    """A search as it runs: `for step in search`, then `search.result`; also `async for`. Options are those of
    `generate`; with the option `infill`, a text to infill."""
    model = _loaded(model)
    job = _job(model, prompt, **options)
    return Stream(event for _, event in run(model, [job]))


def infill(model: Model | str, text: str, *, prompt: str = "", **options: Any) -> Result:
    """The text with its holes filled: `[[16]]` is a hole of 16 tokens; `\\[[` stands for the characters
    themselves.

    Known text stays as it is. `Result.text` is the whole text, `Result.holes` what fills each hole.
    With a prompt the text is the answer to it; a task needs one. Without, the text stands alone.
    Options are those of `generate`; `gen_length / steps` is the number of tokens per step.
    """
    return stream(model, prompt, infill=text, **options).result


def generate_batch(
    model: Model | str,
    prompts: Sequence[str],
    *,
    sample_ids: Sequence[str | int] | None = None,
    max_rows: int = 64,
    **options: Any,
) -> list[Result]:
    """The answers to many prompts, in their order, each as `generate` would give it alone; options are those
    of `generate`."""
    if isinstance(prompts, str):
        raise SettingsError("generate_batch takes a list of prompts; for one prompt use generate")
    ids = [None] * len(prompts) if sample_ids is None else list(sample_ids)
    if len(ids) != len(prompts):
        raise SettingsError(f"{len(prompts)} prompts need as many sample_ids, got {len(ids)}")
    model = _loaded(model)
    jobs = [
        _job(model, prompt, sample_id=sample_id, **options)
        for prompt, sample_id in zip(prompts, ids, strict=True)
    ]
    events = run(model, jobs, max_rows=max_rows)
    results = {index: event for index, event in events if isinstance(event, Result)}
    return [results[index] for index in range(len(jobs))]


def _loaded(model: Model | str) -> Model:
    if isinstance(model, str):
        model = s3dlm.load(model)  # by name: a search needs no loader
    if not isinstance(model, Model):
        raise SettingsError(
            f"model={short_repr(model)} is not a model; give a name such as 'tiny', a folder, or what "
            "s3dlm.load returned"
        )
    return model


def _job(
    model: Model, prompt: str, *, task: str | None = None,
    method: str | Method | type[Method] | None = None, settings: Settings | None = None,
    verifier: Any = None, sample_id: str | int | None = None, infill: str | None = None,
    grammar: Any = None, **overrides: Any,
) -> Job:  # fmt: skip
    """The job that a user describes; a verifier's name is a setting, any other verifier is not."""
    task = of_question(task, prompt, model.defaults.tasks)
    named, judge = ({"verifier": verifier}, None) if isinstance(verifier, str) else ({}, verifier)
    if settings is None:
        chosen = DEFAULT if method is None else method
        if grammar is not None and has(find_method(chosen), "reveal"):
            overrides = {**overrides, **OWN_PACE}
        settings = Settings.for_model(model, chosen, task, **overrides, **named)
    elif not isinstance(settings, Settings):
        raise SettingsError(
            f"settings={short_repr(settings)} is not a s3dlm.Settings; pass settings as keywords, as in "
            "generate(model, prompt, method='revise', particles=8), or build s3dlm.Settings(…)"
        )
    elif method is not None or overrides:
        given = ", ".join(["method"] * (method is not None) + list(overrides))
        raise SettingsError(
            f"settings= and {given} were both given; pass one Settings, or keywords alone"
        )
    elif named:
        settings = settings.replace(**named)
    return Job(prompt, task, settings, sample_id, judge, infill=infill, grammar=grammar)
