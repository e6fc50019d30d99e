"""Masked diffusion for methods that look at a whole text at once, whatever block is open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from s3dlm.diffusion.blocks import Blocks
from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.models.packing import Rows
from s3dlm.search.particles import Canvas, CanvasPredictions, Ints


@dataclass(frozen=True, slots=True)
class WholeDraws(MaskedDiffusion):
    """Denoising whose predictions have draws of every masked position, not only of the open block."""

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        whole = self.blocks if self.blocks.causal else Blocks(canvas.tokens.shape[1])
        return MaskedDiffusion.ask(replace(self, blocks=whole), canvas, step, rng)

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        """Of the whole draws the part in the open block."""
        value, row = prediction.value, prediction.row
        assert value is not None
        start, stop = self._open_block(canvas.tokens)
        first = np.zeros_like(start) if self.blocks.causal else start  # of what was drawn
        place = first[:, None] + np.arange(int((stop - start).max()))
        place = np.minimum(place, value.draws.shape[1] - 1)
        draw = draw if self.decoding.temperature > 0 else np.zeros_like(draw)

        def inside(values: Any) -> Any:
            return None if values is None else np.take_along_axis(values[row], place, axis=1)

        part = replace(
            value,
            top=value.top[row],
            top_logp=value.top_logp[row],
            draws=np.take_along_axis(value.draws[row, :, draw], place, axis=1)[..., None],
            draws_logp=np.take_along_axis(value.draws_logp[row, :, draw], place, axis=1)[..., None],
            margin=inside(value.margin),
            entropy=inside(value.entropy),
            deferred=inside(value.deferred),
        )
        own = CanvasPredictions(part, np.arange(row.size))
        return MaskedDiffusion.expand(self, canvas, own, np.zeros_like(draw), step, rng)

    def drawn(self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints) -> Ints:
        """The whole texts of these draws; of a block-causal model up to the end of its open block."""
        value, tokens = prediction.value, canvas.tokens.copy()
        assert value is not None
        start = self._open_block(tokens)[0] if self.blocks.causal else np.zeros(len(tokens), int)
        for row, (begin, source) in enumerate(zip(start, prediction.row, strict=True)):
            drawn = value.draws[source, : tokens.shape[1] - begin, draw[row]]
            part = tokens[row, begin : begin + drawn.size]
            part[part == self.mask_id] = drawn[part == self.mask_id]
        return tokens

    def with_block_hidden(self, texts: Ints, before: Ints, label: str) -> Rows:
        """The request for the log-probabilities of whole texts in the block that was open before, all
        of that block masked."""
        length = texts.shape[1]
        start, stop = self._open_block(before)
        place = start[:, None] + np.arange(int((stop - start).max()))
        position = np.arange(length)
        hidden = (position >= start[:, None]) & (position < stop[:, None])
        hidden &= before == self.mask_id
        cut = int(self.blocks.model_bounds(start, length)[1].max())
        tokens = np.take_along_axis(texts, np.minimum(place, length - 1), axis=1)
        return Rows(
            prompt=self.prompt,
            canvas=np.where(hidden, self.mask_id, texts)[:, :cut],
            masked=hidden[:, :cut],
            start=start,
            stop=stop,
            uniforms=np.zeros((*place.shape, 1)),
            temperature=0.0,
            look_ahead=False,
            statistics=False,
            label=label,
            sampling=self.sampling,
            asked=tokens[..., None],
        )
