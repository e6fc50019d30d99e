"""Methods of other papers whose loop is not ours: Prism and Order-Token Search.

docs/appendix/methods.md says what differs from the authors' code.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.errors import SettingsError
from s3dlm.extras.published.whole import WholeDraws
from s3dlm.search.expand import grown, occurrence
from s3dlm.search.method import Ending, Method, Verified
from s3dlm.search.options import Size, more, setting
from s3dlm.search.particles import Particles, Predict, Survivors, distinct
from s3dlm.search.run import Run

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding
    from s3dlm.models.packing import Prediction, Rows

DECAY = 1.8  # of Prism's widths
FIRST_NARROWING, LAST_NARROWING, PAUSE = 0.1, 0.6, 4  # when a block may narrow them, and how often
UNSURE, REMASKED = 6, 2  # of the least sure tokens of a copy, how many are re-masked


async def ask(run: Run, rows: Rows) -> Prediction:
    """The model's prediction of rows that are no canvases of the search itself."""
    cost = len(rows.canvas) * run.process.passes
    run.allow(cost)
    value = await Predict(rows)
    run.pay(cost, cost)
    return value


class Prism(Method):
    """N trajectories become K = N/4 early in a block. The best S = K/2 with different texts are copied;
    every copy but the first of each re-masks two of its six least sure tokens."""

    name = "prism"
    summary = (
        "N trajectories that the model judges itself; early in a block the best N/4 texts are kept, and "
        "copies of them with two unsure tokens re-masked"
    )
    source = "as in Prism, Bai et al. 2026"
    verifier = "self"
    meets_again = True
    cost = "1 + (T + 6)·N + 3·N"

    particles: Size = setting(16, "trajectories at the start (N)")
    selection: Ending = "verified"

    def passes(self, steps: int, decoding: Decoding) -> int:
        # It narrows at most twice, and then forwards all again; a copy has four tokens more to fill.
        return 1 + (steps + 6) * self.size

    def texts(self, steps: int) -> int:
        return 3 * self.size

    async def search(self, run: Run) -> Particles:
        process, size = MaskedDiffusion.in_run(run), self.size
        least = max(1, size // 4)
        in_block = -(-process.steps // len(process.blocks.all(process.schedule[-1].stop)))
        first, last = int(FIRST_NARROWING * in_block), int(LAST_NARROWING * in_block)
        allowed, blocks, step = first, 0, 0
        particles = await run.begin(size)
        while True:
            parent = np.arange(len(particles))
            canvas = grown(process, particles, parent, run.steps, run.rng)
            children = run.children(particles, canvas, parent)
            ahead = await run.predict(children)
            before, blocks = blocks, process.progress(canvas, run.steps).blocks
            step = step + 1 if blocks == before else 0
            width = max(least, math.ceil(size * DECAY ** -(step - first)))
            narrows = allowed <= step < last and parent.size > width
            done = not process.is_open(canvas).any()
            looked = await run.verify(ahead, wanted=narrows or done)
            if not narrows:
                particles = run.keep(children, looked)
                if done:
                    return particles
                continue
            texts = ["".join(process.reader.read(tokens).split()) for tokens in looked.clean.tokens]
            # The best of different texts; if there are fewer, then also further copies.
            order = np.argsort(-looked.score, kind="stable").tolist()
            best_of = {texts[row]: row for row in reversed(order)}
            order.sort(key=lambda row: best_of[texts[row]] != row)
            best = np.array(order[: max(1, least // 2)])
            copies = np.sort(np.arange(width) % best.size)
            survivors = Survivors(best[copies], np.zeros(width), resampled=True)
            particles = run.keep(children, looked, survivors=survivors)
            where = np.zeros(particles.canvas.tokens.shape, dtype=np.bool_)
            for row in np.flatnonzero(occurrence(copies)):
                (known,) = np.nonzero(particles.canvas.logp[row])
                unsure = known[
                    np.argsort(particles.canvas.logp[row, known], kind="stable")[:UNSURE]
                ]
                where[row, run.rng.permutation(unsure)[:REMASKED]] = True
            _, canvas = process.remask(particles.canvas, where, run.rng)
            prediction = (await run.forward(canvas, run.steps, logical=width)).prediction
            particles = run.particles = replace(particles, canvas=canvas, prediction=prediction)
            allowed = step + PAUSE


class OrderToken(Method):
    """N beams. Where a block begins, each has N children by draws of a whole text; of these the N whose
    text is likeliest in that block, given the rest of it, go on."""

    name = "order_token"
    summary = "N beams; at the start of a block each draws N whole texts, and the N that make the block likeliest are kept"
    source = "after Order-Token Search, Shen et al. 2026"
    verified: ClassVar[Verified] = "never"
    meets_again = True
    cost = "1 + T·N + B·N·N"

    particles: Size = setting(4, "beams (N)")
    adds_up: bool = more(True, "whether the log-probabilities of the blocks add up")
    selection: Ending = "first"

    def passes(self, steps: int, decoding: Decoding) -> int:
        blocks = -(-decoding.gen_length // decoding.block_length)
        return 1 + steps * self.size + blocks * self.size**2

    def check(self, run: Run) -> None:
        if type(run.process) is not MaskedDiffusion:  # there is more to it than masks
            raise SettingsError(
                "method='order_token' draws whole texts, which follow no grammar; choose another method, such as "
                "s3 or revise"
            )

    async def search(self, run: Run) -> Particles:
        beams = self.size
        run.process = process = WholeDraws.of(MaskedDiffusion.in_run(run), draws=beams * beams)
        particles = await run.begin(1)
        blocks, begins = 0, True
        while process.is_open(particles.canvas).any():
            open_ = particles.prediction.row >= 0
            parent = np.repeat(np.arange(open_.size), np.where(open_, beams if begins else 1, 1))
            before, prediction = particles.canvas.take(parent), particles.prediction.take(parent)
            draw = occurrence(prediction.row)
            canvas = grown(process, particles, parent, run.steps, run.rng)
            weight = particles.log_weight[parent]
            if begins:
                score = np.zeros(parent.size)
                (drawn,) = np.nonzero(prediction.row >= 0)
                texts = process.drawn(before.take(drawn), prediction.take(drawn), draw[drawn])
                first, kind = distinct(row.tobytes() for row in texts)
                label = f"step {run.steps + 1}, prompt {process.label}"
                rows = process.with_block_hidden(texts[first], before.tokens[drawn[first]], label)
                asked = (await ask(run, rows)).asked_logp
                assert asked is not None
                score[drawn] = asked.sum(axis=(1, 2))[kind]
                weight = weight + score if self.adds_up else score
                best = np.argsort(-weight, kind="stable")[:beams]
                canvas, parent, weight = canvas.take(best), parent[best], weight[best]
            ahead = await run.forward(canvas, run.steps, logical=parent.size)
            looked = await run.verify(ahead, wanted=False)
            particles = run.keep(run.children(particles, canvas, parent), looked, weight)
            before_blocks, blocks = blocks, process.progress(canvas, run.steps - 1).blocks
            begins = blocks > before_blocks
        return particles
