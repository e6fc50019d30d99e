"""Denoising with a block-causal model: one block after the other, and nothing behind the open one.

Such a model (SDAR, LLaDA2, Fast-dLLM v2, bd3lm) was trained on blocks that count from the start of the
row and see no later block. So the answer's first block is what the prompt leaves of one, the row is
cut at the end of the open block, and the look-ahead is complete text up to there: predictions behind
it would be untrained. The last block is filled whole, as in training; what it holds beyond the
length that was asked for is never read.

Keys and values of finished blocks never change, so the model caches them exactly (models/prefix.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.diffusion.schedule import SCHEDULE, Blocks, Reveal, block_lengths, block_reveals
from s3dlm.models.packing import Rows
from s3dlm.search.particles import Canvas, Ints


@dataclass(frozen=True, slots=True)
class BlockDiffusion(MaskedDiffusion):
    """One prompt's denoising, block by block."""

    size: int = 1  # tokens sampled from together; at most the model's block
    whole: int = 1  # the model's block
    limit: int = 1  # tokens of the answer
    pace: int = 1  # steps per `size` tokens
    # In a model that predicts the next token, the first of a block is predicted by the block before
    # it, which is finished: it is revealed before all others.
    first_alone: bool = False

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.size, self.whole, self.prompt.size % self.whole)

    def scheduled(self, length: int) -> BlockDiffusion:
        """The same process with its schedule for a canvas of this length."""
        counts = SCHEDULE if self.adaptive else self.reveal
        schedule = block_reveals(
            length, self.pace, self.blocks, counts, first_alone=self.first_alone
        )
        return replace(self, schedule=schedule)

    def ask(self, tokens: Ints, step: int, rng: np.random.Generator) -> Rows:
        """Cut at the end of the open block."""
        request = MaskedDiffusion.ask(self, tokens, step, rng)
        first = request.masked.argmax(axis=1)
        ends = self.blocks.whole_end(first, tokens.shape[1])
        cut = int(ends.max())
        masked = request.masked[:, :cut] & (np.arange(cut) < ends[:, None])
        return replace(request, canvas=tokens[:, :cut], masked=masked)

    def _may_be_revealed(self, masked: NDArray[np.bool_], start: Ints) -> NDArray[np.bool_]:
        blocks = self.blocks
        alone = self.first_alone & ((start + blocks.taken) % blocks.whole == 0) & masked[:, 0]
        masked[alone, 1:] = False
        return masked

    def _finish(self, tokens: Ints) -> None:
        """An answer that is as long as was asked for is finished, too."""
        MaskedDiffusion._finish(self, tokens)
        complete = (tokens[:, : self.limit] != self.mask_id).all(axis=1)
        tokens[complete, self.limit :] = self.end_ids[0] if self.end_ids.size else 0

    def length(self, tokens: Ints) -> int:
        """Tokens of one clean canvas before its end, or before what is not predicted yet."""
        tokens = tokens[: self.limit]
        (ends,) = np.nonzero(self._is_end(tokens) | (tokens == self.mask_id))
        return int(ends[0]) if ends.size else int(tokens.size)

    def holds(self, tokens: Ints) -> bool:
        """Whether the text is whole; a look-ahead ends with the open block."""
        length = self.length(tokens)
        return length == min(self.limit, tokens.size) or int(tokens[length]) != self.mask_id

    def movable(self, tokens: Ints) -> NDArray[np.bool_]:
        """Nothing beyond the length that was asked for, which is never read."""
        result = MaskedDiffusion.movable(self, tokens)
        result[:, self.limit :] = False
        return result

    def _counted(self, tokens: Ints) -> NDArray[np.bool_]:
        counted = MaskedDiffusion._counted(self, tokens)
        counted[:, self.limit :] = False
        return counted

    def resumed(self, canvas: Canvas) -> BlockDiffusion:
        """Every canvas goes through its hidden blocks at its own pace, until the slowest is full."""
        length = canvas.tokens.shape[1]
        hidden = canvas.tokens == self.mask_id
        pace = max(one.count for one in self.schedule)
        steps = np.zeros(len(hidden), dtype=np.int64)
        for start, stop in self.blocks.all(length):
            steps += -(-hidden[:, start:stop].sum(axis=1) // pace)
            steps += hidden[:, start] * self.first_alone
        return replace(self, schedule=[Reveal(0, length, pace)] * max(1, int(steps.max())))

    def with_block_lengths(self) -> list[MaskedDiffusion]:
        """Parts of the model's own blocks: a longer block cannot be filled at once."""
        length = self.schedule[-1].stop
        sizes = {min(size, self.whole) for size in block_lengths(length, self.steps)}
        return [self.in_parts(size).scheduled(length) for size in sorted(sizes)]

    def in_parts(self, size: int) -> BlockDiffusion:
        """The same speed with other parts."""
        return replace(self, size=size, pace=max(1, self.pace * size // self.size))
