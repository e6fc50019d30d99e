"""What an observer sees of a search: one `Step` per denoising step, and at the end the `Outcome`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from s3dlm.errors import S3dlmError
from s3dlm.search.particles import Canvas, CleanText, Floats, Ints, Looked, Survivors
from s3dlm.search.resample import effective_sample_size, normalised
from s3dlm.search.score import Scores
from s3dlm.verifier.base import Spans

# Why a search ended.
FINISHED = "finished"  # every answer is complete
SATISFIED = "satisfied"  # a text has the score with which its verifier is satisfied
SPENT = "budget"  # no forward pass is left
AGREED = "agreed"  # the vote is decided


class SpentError(Exception):
    """The next forward pass is beyond the budget; the look-aheads of the last population answer."""


class SatisfiedError(Exception):
    """The verifier is satisfied with a look-ahead, which is then the answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """One denoising step; arrays are read-only by convention."""

    index: int  # from 0
    total: int
    tokens: Ints  # (children, length)
    logp: Floats  # (children, length) of each known token when it became known
    clean: Ints  # (children, length) the look-ahead
    clean_logp: Floats  # (children, length) of its tokens, revealed or only predicted
    parent: Ints  # (children,) index into the previous step's survivors; −1: none of them
    score: Floats  # (children,) NaN where nothing was scored
    parts: list[Mapping[str, float]]  # of each child's score
    confidence: Floats  # (children,)
    weight: Floats  # (children,) normalised
    survivor: Ints  # (particles,) index into the children
    ess: float  # effective sample size of the weights
    unique_ancestors: int  # parents that still have offspring
    log_normaliser: float  # log of the mean unnormalised weight
    nfe: int  # forward passes of this step
    resampled: bool
    round: int = 0  # of several searches for one prompt, from 0
    start_nfe: int = 0  # at the first step of a search: forward passes of its look at the start
    spans: list[Spans] = field(default_factory=list)  # where each child's text looks wrong

    def __repr__(self) -> str:
        best = "" if np.isnan(self.score).all() else f", best score {np.nanmax(self.score):.3f}"
        rounds = f"round {self.round + 1}, " if self.round else ""
        return (
            f"Step({rounds}{self.index + 1} of {self.total}: {len(self.tokens)} children, "
            f"{self.survivor.size} survivors, ESS {self.ess:.1f}, {self.nfe + self.start_nfe} passes{best})"
        )


@dataclass(slots=True)
class Telling:
    """The steps of one search as observers see them, who cannot change it.

    Args:
        steps: Those that nobody has seen yet, of all searches of the prompt.
        round: The number of this search among those for the prompt, from 0.
        places: Where the canvases that it starts from stood before, for the genealogy; −1: nowhere.
        count: Steps of this search.
    """

    steps: list[Step] = field(default_factory=list)
    round: int = 0
    places: Ints | None = None
    count: int = 0
    reported: int = 0  # passes that the steps have told of
    at_start: int = 0  # passes before the first step

    def begin(self, nfe: int) -> None:
        """The passes before the first step are told of with it."""
        self.reported = self.at_start = nfe

    def add(
        self, total: int, nfe: int, canvas: Canvas, parent: Ints, looked: Looked,
        log_weight: Floats, survivors: Survivors,
    ) -> None:  # fmt: skip
        """One more step of a search that takes so many in all, and has made so many passes."""
        first, index = not self.count, survivors.index
        shown = self.places[parent] if first and self.places is not None else parent
        weight, clean, scores = normalised(log_weight), looked.clean, looked.scores
        step = Step(
            index=self.count,
            total=max(total, self.count + 1),
            tokens=canvas.tokens,
            logp=canvas.logp,
            clean=clean.tokens,
            clean_logp=clean.logp,
            parent=shown,
            score=scores.total,
            parts=scores.parts.tolist(),
            confidence=clean.confidence,
            weight=weight,
            survivor=index,
            ess=effective_sample_size(weight),
            unique_ancestors=len(set(shown[index].tolist())),
            log_normaliser=float(log_weight.max()) - math.log(weight.size * float(weight.max())),
            nfe=nfe - self.reported,
            resampled=survivors.resampled,
            round=self.round,
            start_nfe=self.at_start if first else 0,
            spans=scores.spans.tolist(),
        )
        self.reported, self.count = nfe, self.count + 1
        self.steps.append(step)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The population after the last step."""

    canvas: Canvas
    log_weight: Floats  # (particles,)
    clean: CleanText
    scores: Scores
    nfe: int  # forward passes in all
    nfe_logical: int  # what Algorithm 1 takes without sharing: 1 + T·N·b
    place: Ints  # (particles,) of each among the survivors of the last step; −1: not there
    stopped: str = FINISHED  # why it ended

    def __len__(self) -> int:
        return self.log_weight.size

    def take(self, index: Ints) -> Outcome:
        """Some of the population, in this order."""
        names = ("canvas", "clean", "scores")
        taken: dict[str, Any] = {name: getattr(self, name).take(index) for name in names}
        taken |= {n: getattr(self, n)[index] for n in ("log_weight", "place")}
        return replace(self, **taken)

    @classmethod
    def join(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """The population of all, with the cost of all."""
        reasons = (outcome.stopped for outcome in outcomes if outcome.stopped != FINISHED)
        return cls(
            Canvas.join([outcome.canvas for outcome in outcomes]),
            np.concatenate([outcome.log_weight for outcome in outcomes]),
            CleanText.join([outcome.clean for outcome in outcomes]),
            Scores.join([outcome.scores for outcome in outcomes]),
            sum(outcome.nfe for outcome in outcomes),
            sum(outcome.nfe_logical for outcome in outcomes),
            np.concatenate([outcome.place for outcome in outcomes]),
            next(reasons, FINISHED),
        )


@dataclass(slots=True)
class Memo:
    """What the model made of canvases, for the whole search of a prompt: no canvas is paid for twice.

    Rounds, restarts, sweeps and block lengths meet many of the same canvases. What is kept of one is not
    the draw but what draws are made from, so a canvas that comes back is expanded with fresh random
    numbers: texts are those of a search without a memo. The values are the model's own and opaque here;
    their bytes are bounded. What was used least recently goes first, except the first canvas of all, with
    which every restart begins.
    """

    capacity: int = 0
    held: int = 0  # bytes
    kept: dict[bytes, Any] = field(default_factory=dict)  # the least recently used first
    first: bytes = b""

    def recall(self, keys: Sequence[bytes]) -> list[Any]:
        """What is kept of each canvas, which is then the latest used; None where nothing is."""
        for key in keys:
            if key in self.kept:
                self.kept[key] = self.kept.pop(key)
        return [self.kept.get(key) for key in keys]

    def keep(self, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Keep what the model made of canvases, as far as it says (each value has its `nbytes`)."""
        for key, value in zip(keys, values, strict=False):
            if value is None or key in self.kept or value.nbytes > self.capacity:
                continue
            self.kept[key] = value
            self.held += value.nbytes
            self.first = self.first or key
        for key in [key for key in self.kept if key != self.first]:
            if self.held <= self.capacity:
                break
            self.held -= self.kept.pop(key).nbytes


_T = TypeVar("_T")


class Stream(Generic[_T]):
    """A search as it runs: iterate for its steps, with `for` or `async for`; `result` runs the rest."""

    def __init__(self, events: Iterator[Step | _T]) -> None:
        self.events = self._noted(events)  # the steps, then the result: what boards and traces read
        self._results: list[_T] = []

    def _noted(self, events: Iterator[Step | _T]) -> Iterator[Step | _T]:
        for event in events:
            if not isinstance(event, Step):
                self._results.append(event)
            yield event

    def __iter__(self) -> Iterator[Step]:
        return (event for event in self.events if isinstance(event, Step))

    async def __aiter__(self) -> AsyncIterator[Step]:
        steps = iter(self)
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            yield step

    @property
    def result(self) -> _T:
        """What the search found; what is left of it is run first."""
        for _ in self.events:
            pass
        if not self._results:
            raise S3dlmError("the search was broken off by an error, so it has no result")
        return self._results[0]
