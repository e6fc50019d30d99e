"""Where searches meet the model: any number of them side by side, one forward pass for all at a time.

`Batcher` gathers what the running searches ask for, forwards it together and hands the predictions
out; texts for a verifier that takes many at once are gathered and verified in the same way. `run`,
`stream`, `generate`, `generate_batch` and `infill` are ways to drain it. What happens once per prompt is
in jobs.py (before) and finish.py (after).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Unpack

from s3dlm.errors import PromptError, S3dlmError, SettingsError, short_repr
from s3dlm.finish import finish
from s3dlm.jobs import Job, Running, prepare
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward, Prediction, Rows
from s3dlm.models.registry import load
from s3dlm.result import Result
from s3dlm.search.methods import Method
from s3dlm.search.score import Unscored
from s3dlm.search.step import Step
from s3dlm.search.verify import verify
from s3dlm.settings import Settings, SettingsKwargs

__all__ = [
    "Batcher",
    "Job",
    "Result",
    "advance",
    "generate",
    "generate_batch",
    "infill",
    "run",
    "stream",
]


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
        return sum(len(rows.canvas) for one in self.running.values() for rows in one.asked or ())

    def add(self, job: Job) -> int:
        """Start a job; its key names its events. A bad job raises here and changes nothing else."""
        return self.start(prepare(self.model, job))

    def start(self, one: Running) -> int:
        """As `add`, for a search that was prepared elsewhere."""
        one.started = time.perf_counter()
        _asks(one, next(one.search))
        key, self._next = self._next, self._next + 1
        self.running[key] = one
        return key

    def remove(self, key: int) -> None:
        """Cancel a job; it leaves the batch."""
        gone = self.running.pop(key, None)
        if gone is not None:
            gone.search.close()

    def step(
        self, keys: Iterable[int] | None = None
    ) -> list[tuple[int, Step | Result | S3dlmError]]:
        """One forward pass for all who wait for one, or for those with these keys; and beside it one
        verifier call for all who wait for scores. A search that fails ends with its own error. If the
        forward pass raises, no search has advanced."""
        chosen = self.running if keys is None else {key: self.running[key] for key in keys}
        held = {key: one for key, one in chosen.items() if one.unscored}
        waiting = [(k, one, one.asked) for k, one in chosen.items() if one.asked and k not in held]
        requests = [request for one in held.values() for request in one.unscored]
        if not requests:
            return self._forward(waiting)
        if not waiting:
            return self._scored(held, verify(requests))
        with ThreadPoolExecutor(1, "verifier") as beside:
            verified = beside.submit(verify, requests)
            events = self._forward(waiting)
        return [*events, *self._scored(held, verified.result())]

    def _forward(
        self, waiting: Sequence[tuple[int, Running, list[Rows]]]
    ) -> list[tuple[int, Step | Result | S3dlmError]]:
        requests = [rows for _, _, asked in waiting for rows in asked]
        started, model_before = time.perf_counter(), self.forward.model_seconds
        predictions = self.forward(requests)
        model_seconds = self.forward.model_seconds - model_before
        other_seconds = time.perf_counter() - started - model_seconds
        total = sum(len(rows.canvas) for rows in requests)
        events: list[tuple[int, Step | Result | S3dlmError]] = []
        last = 0
        for key, one, asked in waiting:
            first, last = last, last + len(asked)
            share = sum(len(rows.canvas) for rows in asked) / total
            one.forward_seconds += model_seconds * share
            one.sampling_seconds += other_seconds * share
            events.extend(
                (key, event) for event in self._advance(key, one, predictions[first:last])
            )
        return events

    def _scored(
        self, held: Mapping[int, Running], errors: Sequence[S3dlmError | None]
    ) -> list[tuple[int, Step | Result | S3dlmError]]:
        """Searches whose texts are verified continue, unless they wait for predictions as well."""
        events: list[tuple[int, Step | Result | S3dlmError]] = []
        own = iter(errors)
        for key, one in held.items():
            failed = [error for _, error in zip(one.unscored, own, strict=False) if error]
            one.unscored = []
            if failed:
                self.remove(key)
                events.append((key, failed[0]))
            elif not one.asked:
                events.extend((key, event) for event in self._advance(key, one, []))
        return events

    def _advance(
        self, key: int, one: Running, predictions: list[Prediction]
    ) -> Iterator[Step | Result | S3dlmError]:
        """Hand a search its predictions; one that does not ask again is over."""
        yield from advance(one, predictions)
        if one.asked is None:
            del self.running[key]


def advance(one: Running, predictions: list[Prediction]) -> Iterator[Step | Result | S3dlmError]:
    """Send predictions and pass on what the search says until it asks again or ends."""
    one.asked = None
    try:
        predicted = iter(predictions)
        replies = [None if isinstance(part, Unscored) else next(predicted) for part in one.said]
        said = one.search.send(replies if one.batched else replies[0])
        while isinstance(said, Step):
            one.note(said)
            yield said
            said = next(one.search)
        _asks(one, said)
    except StopIteration as end:
        yield finish(one, end.value)
    except S3dlmError as error:
        yield error


def _asks(one: Running, said: Any) -> None:
    one.batched = isinstance(said, list)
    one.said = said if isinstance(said, list) else [said]
    one.unscored = [part for part in one.said if isinstance(part, Unscored)]
    one.asked = [part for part in one.said if not isinstance(part, Unscored)]


def run(
    model: Model, jobs: Iterable[Job], *, max_rows: int = 64, **forward: int
) -> Iterator[tuple[int, Step | Result]]:
    """Events of all jobs as (job's index, event), in batches of about `max_rows`; jobs are taken
    from the iterable only when there is room, so it may be endless."""
    batcher, waiting = Batcher(model, **forward), enumerate(jobs)
    index_of: dict[int, int] = {}
    exhausted = False
    while True:
        while not exhausted and (not batcher.running or batcher.rows < max_rows):
            following = next(waiting, None)
            if following is None:
                exhausted = True
            else:
                index_of[batcher.add(following[1])] = following[0]
        if not batcher.running:
            return
        for key, event in batcher.step():
            if isinstance(event, S3dlmError):
                raise event
            yield index_of[key], event
            if isinstance(event, Result):
                del index_of[key]


def stream(
    model: Model | str,
    prompt: str,
    *,
    task: str | None = None,
    method: str | Method | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_id: str | int | None = None,
    infill: str | None = None,
    **overrides: Unpack[SettingsKwargs],
) -> Iterator[Step | Result]:
    """One `Step` per denoising step, then the `Result`; arguments as for `generate`, or with a text
    to infill, as for `infill`."""
    model, settings, verifier = _resolve(model, task, method, settings, verifier, overrides)
    job = Job(prompt, task, settings, sample_id, verifier, infill=infill)
    return (event for _, event in run(model, [job]))


def infill(
    model: Model | str,
    text: str,
    *,
    prompt: str = "",
    task: str | None = None,
    method: str | Method | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_id: str | int | None = None,
    **overrides: Unpack[SettingsKwargs],
) -> Result:
    """The text with its holes filled: `[[16]]` is a hole of 16 tokens, `[[4-32]]` one of several
    lengths, of which the search keeps the best; `\\[[` stands for the characters themselves.

    Known text stays as it is. `Result.text` is the whole text, `Result.holes` what fills each hole.
    With a prompt the text is the answer to it; a task needs one. Without, the text stands alone.
    The other arguments are those of `generate`; `gen_length / steps` is the number of tokens per step.
    """
    if not isinstance(text, str):
        raise PromptError(
            f"text={short_repr(text)} is not a text; give a string with holes, as in [[16]]"
        )
    *_, result = stream(
        model,
        prompt,
        infill=text,
        task=task,
        method=method,
        settings=settings,
        verifier=verifier,
        sample_id=sample_id,
        **overrides,
    )
    assert isinstance(result, Result)
    return result


def generate(
    model: Model | str,
    prompt: str,
    *,
    task: str | None = None,
    method: str | Method | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_id: str | int | None = None,
    **overrides: Unpack[SettingsKwargs],
) -> Result:
    """The answer to one prompt.

    The model (or its name) brings the settings it recommends for the method, `s3` unless another is
    named; keywords such as `particles=8` override them. `settings` replaces them all. `verifier` is
    a name ("plus", a TOML file), a function (prompt, text, confidence) → score, or a `Verifier`.
    """
    return generate_batch(
        model,
        [prompt],
        task=task,
        method=method,
        settings=settings,
        verifier=verifier,
        sample_ids=None if sample_id is None else [sample_id],
        **overrides,
    )[0]


def generate_batch(
    model: Model | str,
    prompts: Sequence[str],
    *,
    task: str | None = None,
    method: str | Method | None = None,
    settings: Settings | None = None,
    verifier: Any = None,
    sample_ids: Sequence[str | int] | None = None,
    max_rows: int = 64,
    **overrides: Unpack[SettingsKwargs],
) -> list[Result]:
    """The answers to many prompts, in their order, each as `generate` would give it alone."""
    if isinstance(prompts, str):
        raise SettingsError("generate_batch takes a list of prompts; for one prompt use generate")
    ids = [None] * len(prompts) if sample_ids is None else list(sample_ids)
    if len(ids) != len(prompts):
        raise SettingsError(f"{len(prompts)} prompts need as many sample_ids, got {len(ids)}")
    model, settings, verifier = _resolve(model, task, method, settings, verifier, overrides)
    jobs = [
        Job(prompt, task, settings, one, verifier) for prompt, one in zip(prompts, ids, strict=True)
    ]
    results: dict[int, Result] = {
        index: event
        for index, event in run(model, jobs, max_rows=max_rows)
        if isinstance(event, Result)
    }
    return [results[index] for index in range(len(jobs))]


def _resolve(
    model: Model | str,
    task: str | None,
    method: str | Method | None,
    settings: Settings | None,
    verifier: Any,
    overrides: SettingsKwargs,
) -> tuple[Model, Settings, Any]:
    """Model, settings and verifier as the search needs them, from whatever a user gave."""
    model = load(model) if isinstance(model, str) else model
    if not isinstance(model, Model):
        raise SettingsError(
            f"model={short_repr(model)} is not a model; give a name such as 'tiny', a folder, or what "
            "s3dlm.load returned"
        )
    name, judge = (verifier, None) if isinstance(verifier, str) else (None, verifier)
    if settings is None:
        named = {} if name is None else {"verifier": name}  # a name is a setting of the method
        chosen = "s3" if method is None else method
        return model, Settings.for_model(model, chosen, task, **overrides, **named), judge
    if not isinstance(settings, Settings):
        raise SettingsError(
            f"settings={short_repr(settings)} is not a s3dlm.Settings; pass settings as keywords, as in "
            "generate(model, prompt, method='best', particles=8), or build s3dlm.Settings(…)"
        )
    if method is not None or overrides:
        given = ", ".join(["method"] * (method is not None) + list(overrides))
        raise SettingsError(
            f"settings= and {given} were both given; pass one Settings, or keywords alone"
        )
    return model, settings if name is None else settings.replace(verifier=name), judge
