"""Draft, verify, and revise: re-mask what looks wrong, or start over, until the verifier is satisfied.

`Restarts` is the fair control of `Revise`: the same drafts, verifier and look-aheads, but every round
starts from empty canvases.
"""

from __future__ import annotations

import math
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np

from s3dlm.search.method import Ending, LookAheads, Method, Population
from s3dlm.search.options import OneOf, Share, more, setting
from s3dlm.search.particles import Canvas, Ints, Particles, Process
from s3dlm.search.remask import REMASKINGS, Remasking, positions
from s3dlm.search.rounds import attempt, rounds, sample, with_cost_of
from s3dlm.search.run import Run
from s3dlm.search.score import Scores
from s3dlm.search.step import Outcome

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding

Remask = Annotated[str, OneOf("remask", REMASKINGS)]


class Restarts(Method):
    name = "restarts"
    summary = "drafts answers from empty canvases again and again, and returns the best text seen"
    source = "ours, as the control of revise"
    like = "revise"
    verifier = "checker"
    cost = "1 + T·N"

    particles: Population = 4
    look_aheads: LookAheads = 16
    child_sampling: Literal["independent", "distinct"] = more(
        "distinct", "whether the children of a step must differ"
    )
    selection: Ending = "best_seen"

    def search(self, run: Run, start: Canvas | None = None) -> Coroutine[Any, Any, Particles]:
        return sample(run, self.size, "every step", self.child_sampling, start=start)


class Revise(Restarts):
    name = "revise"
    summary = (
        "drafts an answer, checks it, re-masks what looks wrong or starts over, and returns the best "
        "text"
    )
    source = "ours"
    like = ""
    cost: ClassVar[str] = "(rounds + 1)·(1 + T·N)"

    rounds: int = setting(
        1, "searches after the first; 0: as many as the budget allows", ge=0, le=1000
    )
    remask: Remask = setting(
        "from_doubt_or_earlier",
        "what a later round re-masks: all from where the verifier doubts the text (from_doubt), or every "
        "other time from an earlier place (from_doubt_or_earlier), some of what it doubts (doubted), the least sure "
        "tokens (unsure), or random ones",
    )
    remask_fraction: Share = more(
        0.5, "the mean share of a text that unsure and random re-mask; doubted: half the most"
    )
    restart_fraction: Share = more(
        0.25, "the mean share of a later round's particles that start on an empty canvas"
    )

    def answer(self, run: Run) -> Coroutine[Any, Any, Outcome]:
        most = self.rounds or self.budget or 0
        return rounds(run, self, partial(self.again, run), most, by_doubt=self.rule.by_doubt)

    @property
    def repeats(self) -> bool:
        return self.budget is not None or self.rounds > 0

    @property
    def rule(self) -> Remasking:
        """What it re-masks."""
        return REMASKINGS.find(self.remask)

    async def again(
        self, run: Run, before: Outcome, method: Method, left: float, number: int
    ) -> Outcome:
        """One more round: the texts that come of re-masking those before it."""
        size = method.size
        origin = np.arange(size) % len(before)
        canvas, places = before.canvas.take(origin), before.place[origin]
        where = self.remasked(run, canvas, before.scores.take(origin))
        if self.restart_fraction:
            empty = run.rng.random(size) < self.restart_fraction
            where[empty], places[empty] = True, -1
        process, start = run.process.remask(canvas, where, run.rng)
        more = await self.continued(run, process, start, left, number, places)
        return with_cost_of(more, before)

    def remasked(self, run: Run, canvas: Canvas, scores: Scores) -> Any:
        """(texts, length) what is masked of each text."""
        return positions(
            run.process, canvas, scores.spans.tolist(), self.rule, self.remask_fraction, run.rng,
            at_least_one=self.budget is not None,
        )  # fmt: skip

    async def continued(
        self, run: Run, process: Process, start: Canvas, left: float, number: int, places: Ints
    ) -> Outcome:
        """The search that goes on from these canvases."""
        limit, size = None if math.isinf(left) else int(left), len(start.tokens)
        sized = self.sized(size)
        search = partial(sized.search, start=start)
        return await attempt(
            run, search, rows=size, limit=limit, process=process, round=number, places=places
        )

    def passes(self, steps: int, decoding: Decoding) -> int:
        return (self.rounds + 1) * super().passes(steps, decoding)

    def texts(self, steps: int) -> int:
        return (self.rounds + 1) * (super().texts(steps) + 2 * self.size)
