"""Methods of other papers whose loop is not ours: Prism and Order-Token Search.

They speak the language of a search (requests out, replies in, steps, an outcome), so budgets, rounds,
batching and watchers work on them as on any other. `Crew` keeps what they share: the population, what it
has spent, and how it tells of a step. docs/appendix/methods.md says what differs from the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import wraps

import numpy as np

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.diffusion.whole import WholeDraws
from s3dlm.models.packing import Rows
from s3dlm.search.loop import predict
from s3dlm.search.particles import (
    Canvas,
    CanvasPredictions,
    CleanText,
    Floats,
    Ints,
    Predict,
    Survivors,
    distinct,
    occurrence,
)
from s3dlm.search.rounds import bounded
from s3dlm.search.score import Scores
from s3dlm.search.step import Outcome, Search, Searching, Setup, Step

DECAY, FIRST, LAST, PAUSE = 1.8, 0.1, 0.6, 4  # Prism's widths, and when a block may narrow them
UNSURE, REMASKED = 6, 2  # of the least sure tokens of a copy, how many are masked again


class EndedError(Exception):
    """A prediction was refused, or whoever watches has seen enough."""


@dataclass(slots=True)
class Crew:
    """A population, and the passes that it took."""

    setup: Setup
    process: MaskedDiffusion
    canvas: Canvas
    prediction: CanvasPredictions = field(
        default_factory=lambda: CanvasPredictions(None, np.zeros(0, int), 0)
    )
    log_weight: Floats = field(default_factory=lambda: np.zeros(1))
    clean: CleanText | None = None  # once it is known what the texts are
    scores: Scores | None = None
    nfe: int = 0
    nfe_logical: int = 0
    told: int = 0  # passes of which the steps have told
    steps: int = 0
    judged_before: int = 0

    @property
    def spent(self) -> int:
        """All passes, those of the model as judge included."""
        return self.nfe + self.setup.scorer.nfe - self.judged_before

    def forward(self, canvas: Canvas) -> Searching[CanvasPredictions]:
        """A prediction of these canvases; equal and finished ones cost nothing more."""
        setup = replace(self.setup, process=self.process)
        prediction = yield from predict(setup, canvas, self.at)
        if prediction is None:
            raise EndedError
        self.nfe += prediction.nfe
        self.nfe_logical += len(canvas.tokens) * self.process.passes
        return prediction

    def ask(self, rows: Rows) -> Searching[Floats]:
        """The log-probabilities that these rows ask for."""
        reply = yield Predict(rows)
        if reply is None:
            raise EndedError
        self.nfe += len(rows.canvas) * self.process.passes
        self.nfe_logical += len(rows.canvas) * self.process.passes
        logp: Floats = reply.asked_logp  # type: ignore[union-attr, assignment]
        return logp

    def begin(self, size: int) -> Searching[None]:
        """So many empty canvases, and their first prediction."""
        self.canvas = self.process.start().take(np.zeros(size, np.int64))
        self.log_weight = np.zeros(size)
        self.prediction = yield from self.forward(self.canvas)
        self.nfe_logical = self.told = self.nfe

    @property
    def at(self) -> int:
        """The step of the schedule; what was masked again goes on at the pace of its end."""
        return min(self.steps, self.process.steps - 1)

    def expand(self, parent: Ints, draw: Ints | None = None) -> Canvas:
        """A child of each of these parents by one denoising step; finished ones copy themselves."""
        canvas, prediction = self.canvas.take(parent), self.prediction.take(parent)
        (open_,) = np.nonzero(prediction.row >= 0)
        if open_.size:
            draw = (occurrence(prediction.row) if draw is None else draw)[open_]
            some, predicted = canvas.take(open_), prediction.take(open_)
            canvas.put(open_, self.process.expand(some, predicted, draw, self.at, self.setup.rng))
        return canvas

    def judge(self, canvas: Canvas, prediction: CanvasPredictions) -> Searching[Scores]:
        """What the verifier says of the look-aheads."""
        clean = next(self.process.look_aheads(canvas, prediction))
        return (yield from self.setup.scorer.score(clean, f"step {self.steps + 1}"))

    def step(
        self, canvas: Canvas, prediction: CanvasPredictions, parent: Ints, index: Ints,
        scores: Scores | None = None, log_weight: Floats | None = None,
    ) -> Searching[None]:  # fmt: skip
        """Tell of a step with these children, of which those at the index survive."""
        count = len(canvas.tokens)
        scores = Scores.missing(count) if scores is None else scores
        weight = np.zeros(count) if log_weight is None else log_weight
        clean = next(self.process.look_aheads(canvas, prediction))
        survivors = Survivors(index, weight[index], resampled=index.size != count)
        place = (self.steps, max(self.process.steps, self.steps + 1))
        nfe, start = self.spent - self.told, 0 if self.steps else self.told
        told = Step.of(place, canvas, parent, clean, scores, weight, survivors, nfe, start)
        self.canvas, self.prediction = canvas.take(index), prediction.take(index)
        self.clean, self.scores = clean.take(index), scores.take(index)
        self.log_weight, self.told = weight[index], self.spent
        self.steps += 1
        if (yield told):
            raise EndedError

    def outcome(self) -> Outcome:
        clean, scores = self.clean, self.scores
        if clean is None or scores is None:
            clean = next(self.process.look_aheads(self.canvas, self.prediction))
            scores = Scores.missing(len(clean.tokens))
        logical = self.nfe_logical + self.spent - self.nfe
        return Outcome(self.canvas, self.log_weight, clean, scores, self.spent, logical)


def published(run: Callable[[Crew], Searching[None]]) -> Callable[[Setup, int | None], Search]:
    """A method with a loop of its own as an ensemble that keeps to a limit of passes."""

    def whole(setup: Setup) -> Search:
        process = setup.process
        assert isinstance(process, MaskedDiffusion)
        crew = Crew(setup, process, process.start(), judged_before=setup.scorer.nfe)
        with suppress(EndedError):
            yield from run(crew)
        return crew.outcome()

    @wraps(run)
    def ensemble(setup: Setup, limit: int | None = None) -> Search:
        return bounded(whole(setup), setup, limit)

    return ensemble


@published
def prism(crew: Crew) -> Searching[None]:
    """Prism: N trajectories become K = N/4 early in a block. The best S = K/2 with different texts are
    copied; every copy but the first of each masks two of its six least sure tokens again."""
    process, size, rng = crew.process, crew.setup.settings.size, crew.setup.rng
    least = max(1, size // 4)
    in_block = -(-process.steps // len(process.blocks.all(process.schedule[-1].stop)))
    first, last = int(FIRST * in_block), int(LAST * in_block)
    allowed, blocks, step = first, 0, 0
    yield from crew.begin(size)
    while True:
        parent = np.arange(len(crew.canvas.tokens))
        canvas = crew.expand(parent)
        prediction = yield from crew.forward(canvas)
        before, blocks = blocks, process.progress(canvas.tokens, crew.at).blocks
        step = step + 1 if blocks == before else 0
        width = max(least, math.ceil(size * DECAY ** -(step - first)))
        narrows = allowed <= step < last and parent.size > width
        done = not process.is_open(canvas.tokens).any()
        scores = (yield from crew.judge(canvas, prediction)) if narrows or done else None
        if not narrows or scores is None:
            yield from crew.step(canvas, prediction, parent, parent, scores)
            if done:
                return
            continue
        clean = next(process.look_aheads(canvas, prediction))
        texts = ["".join(process.read(tokens).split()) for tokens in clean.tokens]
        # The best of different texts; if there are fewer, then also further copies.
        order = np.argsort(-scores.total, kind="stable").tolist()
        best_of = {texts[row]: row for row in reversed(order)}
        order.sort(key=lambda row: best_of[texts[row]] != row)
        best = np.array(order[: max(1, least // 2)])
        copies = np.sort(np.arange(width) % best.size)
        yield from crew.step(canvas, prediction, parent, best[copies], scores)
        where = np.zeros(crew.canvas.tokens.shape, dtype=np.bool_)
        for row in np.flatnonzero(occurrence(copies)):
            (known,) = np.nonzero(crew.canvas.logp[row])
            unsure = known[np.argsort(crew.canvas.logp[row, known], kind="stable")[:UNSURE]]
            where[row, rng.permutation(unsure)[:REMASKED]] = True
        _, masked = process.remask(crew.canvas, where)
        crew.prediction = yield from crew.forward(masked)
        crew.canvas, crew.clean = masked, None
        allowed = step + PAUSE


@published
def order_token(crew: Crew) -> Searching[None]:
    """Order-Token Search: N beams. Where a block begins, each has N children by draws of a whole text;
    of these the N whose text is likeliest in that block, given the rest of it, go on."""
    settings = crew.setup.settings
    beams, adds_up = settings.size, settings.row.weight == "path"
    crew.process = process = WholeDraws.of(crew.process, draws=beams * beams)
    yield from crew.begin(1)
    blocks, begins = 0, True
    while process.is_open(crew.canvas.tokens).any():
        open_ = crew.prediction.row >= 0
        parent = np.repeat(np.arange(open_.size), np.where(open_, beams if begins else 1, 1))
        before, prediction = crew.canvas.take(parent), crew.prediction.take(parent)
        draw = occurrence(prediction.row)
        canvas, weight = crew.expand(parent, draw), crew.log_weight[parent]
        if begins:
            score = np.zeros(parent.size)
            (drawn,) = np.nonzero(prediction.row >= 0)
            texts = process.drawn(before.take(drawn), prediction.take(drawn), draw[drawn])
            first, kind = distinct(texts)
            label = f"step {crew.steps + 1}, prompt {process.label}"
            rows = process.with_block_hidden(texts[first], before.tokens[drawn[first]], label)
            score[drawn] = (yield from crew.ask(rows)).sum(axis=(1, 2))[kind]
            weight = weight + score if adds_up else score
            best = np.argsort(-weight, kind="stable")[:beams]
            canvas, parent, weight = canvas.take(best), parent[best], weight[best]
        prediction = yield from crew.forward(canvas)
        everyone = np.arange(parent.size)
        yield from crew.step(canvas, prediction, parent, everyone, log_weight=weight)
        before_blocks, blocks = blocks, process.progress(canvas.tokens, crew.at - 1).blocks
        begins = blocks > before_blocks
