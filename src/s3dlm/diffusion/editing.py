"""Block-causal denoising that may change its mind: LLaDA2.1 edits tokens of the open block.

A step also replaces revealed tokens where the model is sure of another one. A block that is full is
predicted again until nothing changes, a bounded number of times; only then does the next one open,
and only then does an end token end the answer. One forward pass serves both: it predicts the full
block and, behind it, the next one, which is revealed from the same prediction if nothing was edited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from s3dlm.diffusion.blocks import Reveal
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.diffusion.schedule import MOST_EDITS
from s3dlm.models.packing import Rows
from s3dlm.search.particles import Bools, Canvas, CanvasPredictions, CleanText, Ints


@dataclass(frozen=True, slots=True)
class EditingDiffusion(MaskedDiffusion):
    """One prompt's denoising, block by block, with edits; every canvas goes at its own pace."""

    edit_threshold: float = field(kw_only=True)  # of what replaces a token, at the least
    # A canvas does not say how often its full block was edited, so the process remembers.
    rounds: dict[bytes, int] = field(default_factory=dict)
    settled: set[bytes] = field(default_factory=set)  # full canvases that need no more editing

    def scheduled(self, length: int) -> EditingDiffusion:
        process = MaskedDiffusion.scheduled(self, length)
        more = [Reveal(0, length, 1)] * (MOST_EDITS * len(self.blocks.all(length)))
        return replace(self, schedule=process.schedule + more)

    def remask(
        self, canvas: Canvas, where: Bools, rng: np.random.Generator
    ) -> tuple[EditingDiffusion, Canvas]:
        process, masked = MaskedDiffusion.remask(self, canvas, where, rng)
        blocks = self.blocks.all(masked.tokens.shape[1])
        more = process.schedule[:1] * (MOST_EDITS * len(blocks))
        return replace(self, schedule=process.schedule + more), masked

    def is_open(self, canvas: Canvas) -> Bools:
        return self._unsettled(canvas.tokens)

    def _unsettled(self, tokens: Ints) -> Bools:
        return np.array([row.tobytes() not in self.settled for row in tokens])

    def _known(self, tokens: Ints) -> int:
        """A full canvas that may still be edited is not quite known."""
        return int(((tokens != self.mask_id).sum(axis=1) - self._unsettled(tokens)).min())

    def _edited_block(self, tokens: Ints) -> tuple[Ints, Ints, Bools]:
        """The block that each canvas may edit, where it begins and ends, and whether it is full. It is
        the last one of which something is known."""
        length, masked = tokens.shape[1], tokens == self.mask_id
        first = np.where(masked.any(axis=1), masked.argmax(axis=1), length)
        _, open_end = self.blocks.model_bounds(first, length)
        behind = np.arange(length) >= first[:, None]
        untouched = (masked | ~(behind & (np.arange(length) < open_end[:, None]))).all(axis=1)
        at_start = self.blocks.begins_model_block(first) | (first == length)
        full = (first > 0) & at_start & untouched
        return *self.blocks.model_bounds(first - full, length), full

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        """The open block as always, and of the block that may be edited all positions."""
        request, tokens = MaskedDiffusion.ask(self, canvas, step, rng), canvas.tokens
        begin, end, _ = self._edited_block(tokens)
        cut = max(request.canvas.shape[1], int(end.max()))
        place = np.arange(cut)
        wanted = (place >= begin[:, None]) & (place < end[:, None])
        wanted[:, : request.canvas.shape[1]] |= request.masked
        return replace(request, canvas=tokens[:, :cut], masked=wanted, look_ahead=True, fixed=begin)

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        grown = MaskedDiffusion.expand(self, canvas, prediction, draw, step, rng)
        value, source = prediction.value, prediction.row
        assert value is not None
        begin, end, full = self._edited_block(canvas.tokens)
        place = np.arange(value.top.shape[1])
        tokens = canvas.tokens[:, : place.size]
        # Known positions where the model is sure of another token.
        edits = (place >= begin[:, None]) & (place < end[:, None])
        edits &= (tokens != self.mask_id) & (tokens != value.top[source])
        edits &= np.exp(value.top_logp[source]) > self.edit_threshold
        for row, changes in enumerate(edits):
            rounds = self.rounds.get(canvas.tokens[row].tobytes(), 0)
            again = full[row] and changes.any() and rounds < MOST_EDITS
            if full[row] and not again:
                self._leave(canvas.tokens[row], grown, row)
                continue
            if again:  # nothing is revealed from a prediction whose past has just changed
                grown.tokens[row], grown.logp[row] = canvas.tokens[row], canvas.logp[row]
            (where,) = np.nonzero(changes)
            grown.tokens[row, where] = value.top[source[row], where]
            grown.logp[row, where] = value.top_logp[source[row], where]
            if again:
                after = grown.tokens[row].tobytes()
                self.rounds[after] = max(self.rounds.get(after, 0), rounds + 1)
        return canvas.grown(grown.tokens, grown.logp)

    def _leave(self, before: Ints, grown: Canvas, row: int) -> None:
        """A full block needs no more editing: the answer ends here, or the next block has begun."""
        finished = before[None].copy()
        MaskedDiffusion._finish(self, finished)
        if not (finished == self.mask_id).any():
            grown.tokens[row] = finished[0]
            grown.logp[row, before == self.mask_id] = 0.0
            self.settled.add(finished[0].tobytes())

    def _finish(self, tokens: Ints) -> None:
        """Not before the block is full and edited; see `_leave`."""

    def look_aheads(self, canvas: Canvas, prediction: CanvasPredictions) -> Iterator[CleanText]:
        """What is revealed stands, even where the model would now say something else."""
        value, row = prediction.value, prediction.row
        if value is not None:
            top, top_logp, asked = value.top.copy(), value.top_logp.copy(), row >= 0
            tokens = canvas.tokens[asked, : top.shape[1]]
            known = tokens != self.mask_id
            top[row[asked]] = np.where(known, tokens, top[row[asked]])
            top_logp[row[asked]] = np.where(known, 0.0, top_logp[row[asked]])
            prediction = replace(prediction, value=replace(value, top=top, top_logp=top_logp))
        return MaskedDiffusion.look_aheads(self, canvas, prediction)
