"""Ratios of two ways of doing the same thing, which take turns; and a model that is listened to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from s3dlm.models.base import Denoiser, Model
from s3dlm.models.packing import LENGTH_MULTIPLE
from s3dlm.models.transformer import Transformer


@dataclass(frozen=True, slots=True)
class Figure:
    """One ratio."""

    name: str
    target: str
    median: float
    low: float
    high: float
    repeats: int
    met: bool | None


def ratio(
    name: str,
    target: str,
    over: Callable[[int], object],
    under: Callable[[int], object],
    repeats: int,
) -> Figure:
    """Median of time(over) / time(under), taken in turns after one warm-up of each."""
    over(0)
    under(0)
    ratios = []
    for repeat in range(repeats):
        pair = [(over, 0), (under, 1)]
        seconds = [0.0, 0.0]
        for function, place in pair if repeat % 2 else reversed(pair):
            started = time.perf_counter()
            function(repeat)
            seconds[place] = time.perf_counter() - started
        ratios.append(seconds[0] / seconds[1])
    return figure(name, target, ratios)


def figure(name: str, target: str, values: list[float]) -> Figure:
    ordered = sorted(values)
    median = statistics.median(ordered)
    spread = f"({ordered[0]:.3f}–{ordered[-1]:.3f})"
    print(f"{name:75} {median:8.3f}  {spread}  target {target or '–'}", flush=True)
    return Figure(name, target, median, ordered[0], ordered[-1], len(ordered), met(target, median))


def met(target: str, value: float) -> bool | None:
    if not target:
        return None
    sign, bound = target.split()
    return value <= float(bound) if sign == "≤" else value >= float(bound)


def timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


class Recorder(Denoiser):
    """A denoiser that remembers what it was asked, so that the bare forwards can be run again.

    The same batches of the same shape: a user who wants these rows forwarded cannot do less.
    """

    def __init__(self, network: Transformer) -> None:
        self.inner = network
        self.mask_id, self.vocabulary = network.mask_id, network.vocabulary
        self.context, self.tokens_at_once = network.context, network.tokens_at_once
        self.calls: list[tuple[str, tuple[torch.Tensor, ...]]] = []

    def encode(self, tokens: torch.Tensor, keys: torch.Tensor | None = None) -> torch.Tensor:
        self.calls.append(("encode", (tokens,) if keys is None else (tokens, keys)))
        return self.inner.encode(tokens, keys)

    def head(self, features: torch.Tensor) -> torch.Tensor:
        self.calls.append(("head", (features,)))
        return self.inner.head(features)

    @torch.inference_mode()
    def replay(self, *, room: torch.Tensor | None = None) -> None:
        """All calls again; with room, logits are written there."""
        for name, arguments in self.calls:
            if name == "head":
                self.inner.head(arguments[0], out=room)
            else:
                self.inner.encode(*arguments)

    def room(self) -> torch.Tensor:
        """Memory for the largest call's logits."""
        most = max(len(given[0]) for name, given in self.calls if name == "head")
        return torch.empty(max(most, LENGTH_MULTIPLE), self.vocabulary)


class Canned(Denoiser):
    """A denoiser that says at once what the recorded one said: what is left is all around it."""

    @torch.inference_mode()
    def __init__(self, recorder: Recorder) -> None:
        self.mask_id, self.vocabulary = recorder.mask_id, recorder.vocabulary
        self.context, self.tokens_at_once = recorder.context, recorder.tokens_at_once
        self.answers: list[torch.Tensor] = [
            getattr(recorder.inner, name)(*given) for name, given in recorder.calls
        ]
        self.place = 0

    def encode(self, tokens: torch.Tensor, keys: torch.Tensor | None = None) -> torch.Tensor:
        return self.head(tokens)

    def head(self, features: torch.Tensor) -> torch.Tensor:
        answer = self.answers[self.place]
        self.place = (self.place + 1) % len(self.answers)
        return answer.clone()  # whoever asked may write on it


def with_denoiser(model: Model, denoiser: Recorder | Canned) -> Model:
    return Model(model.name, denoiser, model.tokenizer, model.end_ids, model.defaults)


def recorded(model: Model) -> tuple[Model, Recorder]:
    """The model with a listener."""
    assert isinstance(model.denoiser, Transformer)
    recorder = Recorder(model.denoiser)
    return with_denoiser(model, recorder), recorder
