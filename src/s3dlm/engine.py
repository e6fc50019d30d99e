"""Where searches meet the model: any number of them side by side, one forward for all at a time.

`Packer` gathers what the running searches ask for, forwards it together and hands the predictions
out; `run`, `stream`, `generate` and `generate_batch` are ways to drain it. What happens once per
prompt, before and after, is in jobs.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from s3dlm.errors import S3dlmError, SettingsError
from s3dlm.jobs import Job, Result, Running, finish, prepare
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward, Prediction, Rows
from s3dlm.search.loop import Step
from s3dlm.settings import Settings

__all__ = [
    "Job",
    "Packer",
    "Result",
    "advance",
    "generate",
    "generate_batch",
    "run",
    "stream",
]


class Packer:
    """Runs searches side by side: each `step` is one forward for everyone who waits for one."""

    def __init__(self, model: Model, **forward: int) -> None:
        self.model = model
        self.forward = Forward(model.denoiser, **forward)
        self.running: dict[int, Running] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """Rows waiting for the next forward."""
        return sum(len(rows.canvas) for one in self.running.values() for rows in one.asked or ())

    def add(self, job: Job) -> int:
        """Start a job; its key names its events. A bad job raises here and touches nobody."""
        running = prepare(self.model, job)
        _asks(running, next(running.search))
        key, self._next = self._next, self._next + 1
        self.running[key] = running
        return key

    def remove(self, key: int) -> None:
        """Give a job up; its rows leave the batch."""
        gone = self.running.pop(key, None)
        if gone is not None:
            gone.search.close()

    def step(
        self, keys: Iterable[int] | None = None
    ) -> list[tuple[int, Step | Result | S3dlmError]]:
        """One forward for all who wait, or for those with these keys; a search that fails ends with
        its error, alone. If the forward raises, no search has advanced."""
        chosen = self.running if keys is None else {key: self.running[key] for key in keys}
        waiting = [(key, one, one.asked) for key, one in chosen.items() if one.asked]
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
            said = self._advance(key, one, predictions[first:last])
            events.extend((key, event) for event in said)
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
        said = one.search.send(predictions[0] if one.alone else predictions)
        while isinstance(said, Step):
            yield said
            said = next(one.search)
        _asks(one, said)
    except StopIteration as end:
        yield finish(one, end.value)
    except S3dlmError as error:
        yield error


def _asks(one: Running, said: Rows | list[Rows]) -> None:
    one.alone = not isinstance(said, list)
    one.asked = said if isinstance(said, list) else [said]


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
