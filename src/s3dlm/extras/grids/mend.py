"""`mend`: `revise` for grids, where a verifier sees which cells contradict each other.

Where the first look-ahead is unsure, many grids may be right, and the mistakes of a quick draft are soon mended: cells
are re-masked as likely as the verifier doubts them, and a move is accepted by Metropolis' rule. Where it
is sure, little is open and what is wrong is seldom where it shows, so later rounds start over. Children
may be screened: many are drawn from one prediction, read as far as they are known, and few are forwarded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import SettingsError
from s3dlm.search.expand import CHILD_SAMPLINGS, OVERSAMPLING
from s3dlm.search.method import Method, Population
from s3dlm.search.options import Share, more, setting
from s3dlm.search.particles import (
    Bools,
    Canvas,
    Children,
    Columns,
    Floats,
    Ints,
    Particles,
    distinct,
)
from s3dlm.search.remask import Remasking, Text
from s3dlm.search.resample import ssp
from s3dlm.search.revise import Revise
from s3dlm.search.rounds import restarted, rounds
from s3dlm.search.run import Run
from s3dlm.search.step import SATISFIED, Outcome


@dataclass(frozen=True, slots=True)
class Standing(Columns):
    """What is remembered of each text from round to round."""

    best: Floats  # the highest score that its particle has had since it started on an empty canvas
    stale: Ints  # rounds since then that did not raise it

    @classmethod
    def begin(cls, size: int) -> Standing:
        return cls(np.full(size, -np.inf), np.zeros(size, np.int64))

    def after(self, score: Floats, fresh: Bools) -> Standing:
        """The same with the scores that a round has led to; some of the particles started over."""
        best = np.where(fresh, -np.inf, self.best)
        return Standing(np.fmax(best, score), np.where(score > best, 0, self.stale + 1))


class Mend(Revise):
    name = "mend"
    summary = (
        "revise for grids: re-masks cells as the verifier doubts them, or screens fresh starts"
    )
    source = "ours"

    particles: Population = 1
    rounds: int = setting(
        0, "searches after the first; 0: as many as the budget allows", ge=0, le=1000
    )
    lam: float = setting(30.0, "λ of Metropolis' rule and of screening: exp(λ·score)", ge=0)
    remask: Literal["weighted"] = more("weighted", "each cell as likely as the verifier doubts it")
    remask_below: Share = more(
        1.0,
        "re-mask only where the first look-ahead is less sure than this, as the mean probability of its "
        "tokens; else later rounds start on empty canvases",
    )
    restart_fraction: ClassVar[float] = 0.0  # type: ignore[misc]
    threshold_scale: float = more(
        0.0,
        "where rounds re-mask: the reveal threshold as a multiple of the mean probability of the first "
        "look-ahead's tokens; 0: reveal_threshold as it is",
        ge=0,
        le=100,
    )
    patience: int = more(
        6,
        "rounds without a better score after which a particle starts over; 0: never",
        ge=0,
        le=1000,
    )
    accept: Literal["replace", "metropolis"] = more(
        "metropolis", "whether every move is taken, or by Metropolis' rule"
    )
    screen: int = more(
        0,
        "children drawn per particle and step, of which one is forwarded, drawn by exp(λ·score) of "
        "their partial texts; 0: the first is forwarded unread",
        ge=0,
        le=1000,
    )

    @property
    def texts_at_once(self) -> int:
        return self.size * max(self.looks, self.screen)

    @property
    def draws(self) -> int:
        # Of many equal particles, some share the candidates that are screened.
        return max(self.size * OVERSAMPLING, OVERSAMPLING * self.screen)

    @property
    def rule(self) -> Remasking:
        return Remasking(self._hide, by_doubt=True)

    def _hide(self, text: Text, fraction: float, rng: np.random.Generator) -> Bools:
        """Each position by itself, as likely as it is doubtful."""
        return np.asarray(rng.random(text.doubt.size) < text.doubt)

    def check(self, run: Run) -> None:
        verifier = run.scorer.verifier
        if self.screen and verifier.score_partial is None:
            name = verifier.name or type(verifier).__name__
            raise SettingsError(
                f"screen={self.screen} needs a verifier that reads partial texts, and {name!r} "
                "does not for this task; choose checker or checker_solver, or give a verifier with "
                "`score_partial`, or leave screen out"
            )
        if self.screen == 1 or (self.screen and self.lam == 0):
            raise SettingsError(
                f"screen={self.screen} with lam={self.lam:g} changes nothing; give screen=2 or more and "
                "lam above 0, or leave screen out"
            )

    async def answer(self, run: Run) -> Outcome:
        """One look first, if it decides how to go on."""
        if self.repeats and (self.remask_below < 1 or self.threshold_scale):
            start = run.process.start(1, run.rng)
            prediction = (await run.forward(start, 0, logical=1)).prediction
            confidence = float(next(run.process.look_aheads(start, prediction)).confidence[0])
            if confidence >= self.remask_below and self.budget is not None:
                return await rounds(run, self, partial(restarted, run), self.budget)
            if self.threshold_scale:
                process = MaskedDiffusion.in_run(run)
                least = {"reveal_threshold": min(1.0, self.threshold_scale * confidence)}
                run.process = replace(process, decoding=process.decoding.model_copy(update=least))
        return await self._moves(run)

    async def _moves(self, run: Run) -> Outcome:
        standings = list[Standing]()  # of every population so far
        again = partial(self._move, run, standings)
        return await rounds(run, self, again, self.rounds or self.budget or 0, by_doubt=True)

    async def _move(
        self, run: Run, standings: list[Standing], before: Outcome, method: Method, left: float,
        number: int,
    ) -> Outcome:  # fmt: skip
        size, standing = method.size, standings[-1] if standings else Standing.begin(len(before))
        origin = np.arange(size) % len(before)
        canvas, places = before.canvas.take(origin), before.place[origin]
        where = self.remasked(run, canvas, before.scores.take(origin))
        given_up = (standing.stale[origin] >= self.patience) & (self.patience > 0)
        where[given_up], places[given_up] = True, -1
        process, start = run.process.remask(canvas, where, run.rng)
        again = await self.continued(run, process, start, left, number, places)
        both = Outcome.join([before, again])
        moved = len(before) + np.arange(len(again))
        if again.stopped == SATISFIED:  # its one text is the answer
            return replace(both.take(moved), stopped=SATISFIED)
        score_before, score_after = before.scores.total, again.scores.total
        standing = replace(standing, best=np.fmax(standing.best, score_before))
        after = standing.take(origin).after(score_after, given_up)
        index = moved
        if self.accept == "metropolis":
            gain = self.lam * (score_after - score_before[origin])
            accepted = (np.log(run.rng.random(gain.size)) < gain) | given_up
            index = np.where(accepted, moved, origin)
        place = np.concatenate([np.full(len(before), -1), again.place])
        unmoved = replace(standing, stale=standing.stale + 1)
        standings.append(Standing.join([unmoved, after]).take(index))
        return replace(both, place=place, stopped=again.stopped).take(index)

    async def search(self, run: Run, start: Canvas | None = None) -> Particles:
        if not self.screen:
            return await super().search(run, start)
        particles = await run.begin(self.size, verified=True, start=start)
        while particles.open:
            children = await self._screened(run, particles)
            looked = await run.verify(await run.predict(children))
            particles = run.keep(children, looked, np.zeros(len(children)))
        return particles

    async def _screened(self, run: Run, particles: Particles) -> Children:
        """One child of every particle, chosen by its partial text; equal parents choose together, so
        that their children differ."""
        each, grow = self.screen, CHILD_SAMPLINGS["independent"]
        _, candidates = grow(run.process, particles, each, run.steps, run.rng)
        where = f"screening before step {run.steps + 2} of {run.process.steps}"
        gain = self.lam * await run.scorer.score_partial(candidates.tokens, where)
        row = particles.prediction.row
        kin = np.where(row >= 0, row, row.size + np.arange(row.size))
        picked, parents = list[Ints](), list[Ints]()
        for group in np.unique(kin):
            (members,) = np.nonzero(kin == group)
            pool = (members[:, None] * each + np.arange(each)).reshape(-1)
            picked.append(pool[_pick(gain[pool], members.size, candidates.tokens[pool], run.rng)])
            parents.append(members)
        chosen, order = np.concatenate(picked), np.argsort(np.concatenate(parents), kind="stable")
        index = chosen[order]
        return run.children(particles, candidates.take(index), np.arange(len(particles)))


def _pick(gain: Floats, count: int, tokens: Ints, rng: np.random.Generator) -> Ints:
    """Which candidates of equal parents live on, this many in all. They are drawn without replacement
    first, so that the likeliest is not taken twice."""
    first, kind = distinct(row.tobytes() for row in tokens)
    noise = rng.gumbel(size=first.size)
    keys = np.log(np.bincount(kind)) + gain[first] + noise  # ∝ how often drawn · exp(gain)
    chosen = np.sort(first[np.argsort(-keys)[:count]])
    if not np.ptp(gain[chosen]):  # nothing is told apart: as they were drawn
        return chosen[np.arange(count) % chosen.size]
    return np.repeat(chosen, ssp(gain[chosen], count, rng))
