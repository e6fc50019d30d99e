"""`Run`: all that a method may touch while it answers one prompt.

A method is a coroutine that owns no model. It asks its run for predictions and scores; the run hands
the requests to whoever drives it (engine.py), which may run many searches side by side in one forward
pass. What concerns every method is here, once: the budget ends a search in `predict` (`SpentError`), a
satisfied verifier ends it in `tell` (`SatisfiedError`), forward passes are counted, canvases that are
equal token for token are forwarded once and verified once in the whole run (`Memo`), and every step is
told to the observers, who cannot change it.

The look-ahead pass on a child is the pass that it is next expanded from, so a step costs at most N·b
forward passes. A process has a schedule, and then every search takes all its steps; or every canvas is
filled at its own pace, and the search ends with the step after which all are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from s3dlm.search.expand import CHILD_SAMPLINGS
from s3dlm.search.particles import (
    Ahead,
    Canvas,
    CanvasPredictions,
    Children,
    CleanText,
    Floats,
    Ints,
    Looked,
    Particles,
    Predict,
    Process,
    Survivors,
    distinct,
)
from s3dlm.search.resample import survivors_of
from s3dlm.search.score import Scorer, Scores
from s3dlm.search.step import Memo, SatisfiedError, SpentError, Telling


@dataclass(slots=True)
class Run:
    """One search for one prompt, with what it may use and what it has spent.

    Args:
        process: How a canvas is denoised.
        scorer: The verifier, with its memory of texts.
        rng: The run's own random stream.
        memo: What the model made of canvases, for all searches of the prompt.
        answer_of: The answer that a text gives, if it gives one.
        judging: Passes that the verification of a child's look-aheads takes, by the model as judge.
        judged: Whether the texts that a spent budget leaves are scored.
        limit: The most passes, with those of the judge; None: as many as it takes.
        reserve: Passes that a prediction must leave for its verification.
        made: Passes made, without those of the judge.
        unshared: Passes that Algorithm 1 takes without sharing.
        told: The steps that observers have seen or will see.
        particles: The population after the last step.
    """

    process: Process
    scorer: Scorer
    rng: np.random.Generator
    memo: Memo = field(default_factory=Memo)
    answer_of: Callable[[str], str | None] = lambda text: None
    judging: int = 0
    judged: bool = True
    limit: int | None = None
    reserve: int = 0
    made: int = 0
    unshared: int = 0
    told: Telling = field(default_factory=Telling)
    particles: Particles | None = None
    _asked: bool = False
    _judged_before: int = 0
    _blocks: int = 0

    def __post_init__(self) -> None:
        self._judged_before = self.scorer.nfe

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self.told.count

    @property
    def nfe(self) -> int:
        """Forward passes of this search, those of the model as judge included."""
        return self.made + self.scorer.nfe - self._judged_before

    @property
    def nfe_logical(self) -> int:
        """The passes that Algorithm 1 takes without sharing."""
        return self.unshared + self.scorer.nfe - self._judged_before

    # --- what a method does

    async def begin(
        self, size: int, *, verified: bool = False, start: Canvas | None = None
    ) -> Particles:
        """The first population, with its first look-ahead.

        Args:
            size: Particles, all on the process's own start.
            verified: Whether that look-ahead is scored.
            start: Other canvases to start from.
        """
        canvas = self.process.start(size, self.rng) if start is None else start
        ahead = await self.forward(canvas, 0, logical=1)
        looked = Looked(ahead.prediction, next(ahead.looks), Scores.missing(len(canvas.tokens)))
        # It must be known before scoring: whoever ends the search here has these look-aheads.
        self.populate(canvas, looked)
        if verified:
            scores = await self.scorer.score(looked.clean, "the first look-ahead")
            looked = replace(looked, scores=scores)
        self.told.begin(self.nfe)
        self._blocks = self.process.progress(canvas, -1).blocks
        return self.populate(canvas, looked)

    def populate(self, canvas: Canvas, looked: Looked) -> Particles:
        """A population with an empty past."""
        weight, history = np.zeros(len(canvas.tokens)), looked.score[:, None]
        self.particles = Particles(
            canvas, looked.prediction, looked.clean, looked.scores, history, weight
        )
        return self.particles

    def expand(
        self, particles: Particles, branching: int, sampling: str = "independent", *,
        cadence: str = "step", first: Canvas | None = None,
    ) -> Children:  # fmt: skip
        """Children of every particle, sampled from the prediction that it carries.

        Args:
            particles: The population.
            branching: Children per particle (b).
            sampling: Whether they must differ, a name in `expand.CHILD_SAMPLINGS`.
            cadence: "step", or "block" to branch only where a block ends.
            first: A canvas that takes the place of the first child.
        """
        branches, before = cadence == "step", self._blocks
        if (
            not branches
        ):  # without a schedule nobody knows in advance that a block ends: when all have left it
            self._blocks = self.process.progress(particles.canvas, self.steps).blocks
            branches = self._blocks > before
        each = branching if branches else 1
        # A particle's only child is its own continuation, whose place no other child may take.
        sampling = "distinct" if sampling == "filled" and each == 1 else sampling
        grow = CHILD_SAMPLINGS[sampling]
        parent, canvas = grow(self.process, particles, each, self.steps, self.rng)
        if first is not None:
            canvas.tokens[0], canvas.logp[0] = first.tokens[0], first.logp[0]
        return self.children(particles, canvas, parent, branches=branches, each=each)

    def children(
        self, particles: Particles, canvas: Canvas, parent: Ints, *, branches: bool = True,
        each: int = 1,
    ) -> Children:  # fmt: skip
        """Canvases that were made in some other way, as the children of these particles."""
        done, total, _ = self.process.progress(canvas, self.steps)
        last = done == total or self.steps == self.process.steps - 1
        share, slots = 1.0 if last else done / total, len(particles) * each
        return Children(canvas, parent, particles, slots, branches or last, share, last)

    def predict(self, children: Children) -> Coroutine[Any, Any, Ahead]:
        """What the model predicts for each child: its look-aheads, and its own children's proposal."""
        return self.forward(children.canvas, self.steps + 1, logical=children.slots)

    async def verify(self, ahead: Ahead, *, wanted: bool = True) -> Looked:
        """What each child would say if it were complete, and how good that is. Of several look-aheads
        the best counts: they come from one forward pass, and a verifier is cheap beside it. They are made
        and verified in portions, between which others have their turns.

        Args:
            ahead: What `predict` returned.
            wanted: Whether they are scored at all; if not, the scores are missing.
        """
        count = ahead.prediction.row.size
        if not wanted:
            return Looked(ahead.prediction, next(ahead.looks), Scores.missing(count))
        where = f"step {self.steps + 1} of {self.process.steps}"
        made, judged = list[CleanText](), list[Scores]()
        looks = [CleanText.join([*ahead.looks])] if self.scorer.takes_many else ahead.looks
        for portion in looks:
            made.append(portion)
            judged.append(await self.scorer.score(portion, where))
        texts, scores = CleanText.join(made), Scores.join(judged)
        if scores.total.size > count:  # several each
            rank = scores.total + self.scorer.satisfied(scores.total, scores.spans)
            best = rank.reshape(-1, count).argmax(axis=0)  # the likeliest if it is as good
            index = best * count + np.arange(count)
            texts, scores = texts.take(index), scores.take(index)
        return Looked(ahead.prediction, texts, scores)

    def resample(
        self, children: Children, looked: Looked, weight: Floats, size: int, resampler: str,
        ess_threshold: float | None = None,
    ) -> Particles:  # fmt: skip
        """The survivors of a step in which the method branches; else all live on.

        Args:
            children: Of this step.
            looked: Their clean texts and scores.
            weight: Their log-weights.
            size: Survivors (N).
            resampler: A name in `resample.RESAMPLERS`.
            ess_threshold: Resample only below this share of the effective sample size.
        """
        survivors = survivors_of(children, weight, size, resampler, ess_threshold, self.rng)
        return self.keep(children, looked, weight, survivors)

    def keep(
        self, children: Children, looked: Looked, weight: Floats | None = None,
        survivors: Survivors | None = None,
    ) -> Particles:  # fmt: skip
        """The population after a step; observers are told.

        Args:
            children: Of this step.
            looked: Their clean texts and scores.
            weight: Their log-weights; by default those that they inherited.
            survivors: Who lives on; by default all.
        """
        weight = children.log_weight if weight is None else weight
        if survivors is None:
            survivors = Survivors(np.arange(len(children)), weight, resampled=False)
        self.tell(children.canvas, children.parent, looked, weight, survivors)
        index, history = survivors.index, children.history
        if not np.isnan(looked.score).any():
            history = np.column_stack([history, looked.score])
        particles = self.populate(children.canvas.take(index), looked.take(index))
        self.particles = replace(
            particles,
            history=history[index],
            log_weight=survivors.log_weight,
            open=not children.last,
        )
        return self.particles

    # --- underneath

    def allow(self, cost: int) -> None:
        """Refuse passes beyond the limit; the first prediction of a search is never refused."""
        if self._asked and self.limit is not None and self.nfe + cost + self.reserve > self.limit:
            raise SpentError
        self._asked = True

    def pay(self, cost: int, unshared: int) -> None:
        """Count passes, and those that Algorithm 1 would take."""
        self.made += cost
        self.unshared += unshared

    async def forward(self, canvas: Canvas, step: int, *, logical: int) -> Ahead:
        """One prediction per distinct canvas that is not finished, forwarded unless the memo knows it.

        Args:
            canvas: Any canvases of this prompt.
            step: The step of the schedule that they are at.
            logical: Canvases that are paid for without sharing.
        """
        process = self.process
        keys = canvas.keys()
        first, kind = distinct(keys)
        open_ = process.is_open(canvas.take(first))
        if not open_.any():
            self.pay(0, logical * process.passes)
            known = CanvasPredictions(None, np.full(kind.size, -1))
            return Ahead(known, process.look_aheads(canvas, known))
        row_of_kind = np.where(open_, np.cumsum(open_) - 1, -1)
        asked = [keys[index] for index in first[open_]]
        kept = self.memo.recall(asked) if self.memo.capacity else []
        cost = (len(asked) - sum(one is not None for one in kept)) * process.passes
        self.allow(cost)  # what is refused draws no random numbers
        rows = process.ask(canvas.take(first[open_]), step, self.rng)
        if self.memo.capacity:
            rows = replace(rows, kept=kept)
        value = await Predict(rows)
        self.pay(cost, logical * process.passes)
        self.memo.keep(asked, value.kept)
        prediction = CanvasPredictions(value, row_of_kind[kind])
        return Ahead(prediction, process.look_aheads(canvas, prediction))

    def tell(
        self, canvas: Canvas, parent: Ints, looked: Looked, weight: Floats, survivors: Survivors
    ) -> None:
        """Let observers know of a step; it ends the search if the verifier is satisfied: the best of
        the texts that satisfy it is then the one survivor, and complete."""
        satisfied = self.scorer.satisfied(looked.score, looked.scores.spans)
        if satisfied.any():
            best, clean = int(np.where(satisfied, looked.score, -1).argmax()), looked.clean
            tokens, logp, index = canvas.tokens.copy(), canvas.logp.copy(), np.array([best])
            tokens[best], logp[best] = clean.tokens[best], clean.logp[best]
            canvas, survivors = Canvas(tokens, logp), Survivors(index, np.zeros(1), resampled=False)
            finished = CanvasPredictions(None, np.full(1, -1))
            self.populate(canvas.take(index), replace(looked.take(index), prediction=finished))
        self.told.add(self.process.steps, self.nfe, canvas, parent, looked, weight, survivors)
        if satisfied.any():
            raise SatisfiedError
