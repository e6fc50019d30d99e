"""Masked diffusion whose answers follow a grammar, whatever the model says.

The first masked position is revealed in every step, from the tokens that the grammar allows there: the mask
goes to the device with the request, so draws, log-probabilities and look-aheads all see it. Tokens behind it
are revealed with it while each is sure enough and the grammar takes it; what must follow then needs no pass. So
a canvas is a text from the left and masks behind it, and every text on it can still be ended (structure.py). A
look-ahead is the text, what the grammar takes of the prediction, and the way to its end: a complete answer, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.diffusion.blocks import Reveal
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.diffusion.processes import masked
from s3dlm.extras.structure.closing import Ids, Vocabulary
from s3dlm.extras.structure.structure import Structure, compiled
from s3dlm.models.base import Model
from s3dlm.models.packing import Rows
from s3dlm.search.particles import Bools, Canvas, CanvasPredictions, CleanText, Ints

if TYPE_CHECKING:
    from s3dlm.job import Job


@dataclass(frozen=True, slots=True)
class ConstrainedDiffusion(MaskedDiffusion):
    """Denoising from the left, at every canvas's own pace."""

    structure: Structure = field(kw_only=True)

    def _blank(self) -> Ints:
        """What must stand at the beginning is there from the start; but every search takes a pass."""
        tokens, text = MaskedDiffusion._blank(self), self.structure.begun
        complete = len(text) == self.structure.length or text[-1:] == (self.structure.end,)
        self._write(tokens[None], 0, text[:-1] if complete else text)
        return tokens

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        rows = MaskedDiffusion.ask(self, canvas, step, rng)
        with self.structure:
            allowed = [self.structure.allowed(self._text(row)) for row in canvas.tokens]
        return replace(rows, allowed=np.stack(allowed))

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        _, drawn = self._drawn(canvas, prediction, draw)
        tokens, logp = canvas.tokens.copy(), canvas.logp.copy()
        stops = ~drawn.masked | (np.exp(drawn.logp) < self.decoding.reveal_threshold)
        with self.structure:
            for row, first in enumerate(drawn.masked.argmax(axis=1).tolist()):
                # The sampled tokens up to the first that is not sure enough; the first of all in any case.
                behind = np.append(stops[row, first + 1 :], True)
                run = drawn.tokens[row, first : first + 1 + int(behind.argmax())]
                text = self._text(canvas.tokens[row])
                whole, taken = self.structure.grown(text, tuple(run.tolist()))
                self._write(tokens, row, whole)
                logp[row, len(text) : len(text) + taken] = drawn.logp[row, first : first + taken]
        return Canvas(tokens, logp)

    def look_aheads(self, canvas: Canvas, prediction: CanvasPredictions) -> Iterator[CleanText]:
        for clean in MaskedDiffusion.look_aheads(self, canvas, prediction):
            each = len(clean.tokens) // len(canvas.tokens)  # texts of every canvas
            tokens, logp = np.tile(canvas.tokens, (each, 1)), clean.logp.copy()
            counted = np.ones(tokens.shape, np.bool_)
            opened = np.flatnonzero(np.tile(self.is_open(canvas), each)).tolist()
            with self.structure:
                for row in opened:
                    text = self._text(tokens[row])
                    predicted = tuple(clean.tokens[row, len(text) :].tolist())
                    whole, taken = self.structure.completed(text, predicted)
                    self._write(tokens, row, (*whole, self.structure.end))
                    counted[row, len(text) + taken :] = False
            logp[~counted] = 0.0  # the way to the end is not the model's
            yield self.reader.clean(tokens, logp, counted)

    def remask(
        self, canvas: Canvas, where: Bools, rng: np.random.Generator
    ) -> tuple[MaskedDiffusion, Canvas]:
        """All from the first of these positions, since what follows depends on it."""
        where = np.cumsum(where, axis=1) > 0
        tokens, logp = (
            np.where(where, self.mask_id, canvas.tokens),
            np.where(where, 0.0, canvas.logp),
        )
        with self.structure:
            for row in np.flatnonzero(where.any(axis=1)).tolist():
                text, before = self._text(tokens[row]), self._text(canvas.tokens[row])
                self.structure.remember(text, before[len(text) :])
                self._write(tokens, row, self.structure.forced(text))
        return self, Canvas(tokens, logp)

    def _text(self, tokens: Ints) -> Ids:
        """What a canvas says so far."""
        return tuple(tokens[: self.reader.length(tokens)].tolist())

    def _write(self, tokens: Ints, row: int, text: Ids) -> None:
        """Put a text on one of some canvases, which is then finished if the text ends."""
        tokens[row, : len(text)] = text[: tokens.shape[1]]
        self._finish(tokens[row : row + 1])


def following(model: Model, job: Job, prompt: Ints) -> ConstrainedDiffusion:
    """The process of a job whose answers follow its grammar."""
    process = masked(model, job, prompt)
    length = process.schedule[-1].stop
    longest = min(length, process.reader.answer_length)
    return ConstrainedDiffusion.of(
        process,
        structure=Structure(compiled(Vocabulary.of(model), job.grammar), longest),
        sampling=replace(process.sampling, suppressed=(), deferred=()),
        schedule=[Reveal(0, length, 1)] * length,
    )
