"""The two books of a run: what it has spent, and what observers are told of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from s3dlm.search.particles import Canvas, CleanText, Floats, Ints, Survivors
from s3dlm.search.score import Scores
from s3dlm.search.step import Step


class SpentError(Exception):
    """The next forward pass is beyond the budget; the look-aheads of the last population answer."""


@dataclass(slots=True)
class Spending:
    """Forward passes of one search, without those of the model as judge.

    Args:
        limit: The most passes, with those of the judge; None: as many as it takes.
        reserve: Passes that a prediction must leave for its verification.
        made: Passes made.
        unshared: Passes that Algorithm 1 takes without sharing.
    """

    limit: int | None = None
    reserve: int = 0
    made: int = 0
    unshared: int = 0
    asked: bool = False

    def allow(self, cost: int, nfe: int) -> None:
        """Refuse passes beyond the limit; the first prediction of a search is never refused."""
        if self.asked and self.limit is not None and nfe + cost + self.reserve > self.limit:
            raise SpentError
        self.asked = True

    def pay(self, cost: int, unshared: int) -> None:
        self.made += cost
        self.unshared += unshared


@dataclass(slots=True)
class Telling:
    """The steps of one search as observers see them, who cannot change it.

    Args:
        steps: Those that nobody has seen yet, of all searches of the prompt.
        round: The number of this search among those for the prompt, from 0.
        places: Where the canvases that it starts from stood before, for the genealogy; −1: nowhere.
        count: Steps of this search.
        last: The latest of them.
        origin: From which canvas of its start each survivor descends.
    """

    steps: list[Step] = field(default_factory=list)
    round: int = 0
    places: Ints | None = None
    count: int = 0
    last: Step | None = None
    origin: Ints | None = None
    reported: int = 0  # passes that the steps have told of
    at_start: int = 0  # passes before the first step

    def begin(self, nfe: int) -> None:
        """The passes before the first step are told of with it."""
        self.reported = self.at_start = nfe

    def add(
        self, total: int, nfe: int, canvas: Canvas, parent: Ints, clean: CleanText, scores: Scores,
        weight: Floats, survivors: Survivors,
    ) -> None:  # fmt: skip
        """One more step of a search that takes so many in all, and has made so many passes."""
        if self.origin is None:
            self.origin = np.arange(int(parent.max(initial=0)) + 1)
        first, index = not self.count, survivors.index
        shown = self.places[parent] if first and self.places is not None else parent
        place = (self.count, max(total, self.count + 1))
        made = (canvas, shown, clean, scores, weight, survivors)
        step = Step.of(place, *made, nfe - self.reported, self.at_start if first else 0)
        self.origin = np.where(parent >= 0, self.origin[parent], -1)[index]
        self.reported, self.count = nfe, self.count + 1
        self.last = replace(step, round=self.round) if self.round else step
        self.steps.append(self.last)
