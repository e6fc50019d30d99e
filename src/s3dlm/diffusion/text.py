"""What a canvas says: where its text ends, what was given of it, which tokens a character belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from s3dlm.diffusion.blocks import ENDLESS
from s3dlm.search.particles import Bools, Ints, Spans

ROOM_TO_GROW = 4  # positions behind the end that a repaired text may take


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads the canvases of one prompt."""

    decode: Callable[[list[int]], str]
    mask_id: int
    end_ids: Ints
    given: Ints | None = None  # (length,) a text whose holes are masked; None: nothing is known
    answer_length: int = ENDLESS  # tokens that are read; block-causal models fill their last block

    @property
    def holes(self) -> Bools:
        """Which positions of the given text are not known."""
        assert self.given is not None
        holes: Bools = self.given == self.mask_id
        return holes

    def is_end(self, tokens: Ints) -> Bools:
        """Which tokens end a text."""
        return np.isin(tokens, self.end_ids)

    def length(self, tokens: Ints) -> int:
        """Tokens of one clean canvas before its end, or before what is not predicted yet."""
        tokens = tokens[: self.answer_length]
        (ends,) = np.nonzero(self.is_end(tokens) | (tokens == self.mask_id))
        return int(ends[0]) if ends.size else int(tokens.size)

    def read(self, tokens: Ints) -> str:
        """The text of one clean canvas."""
        return self.decode(tokens[: self.length(tokens)].tolist())

    def counted(self, tokens: Ints) -> Bools:
        """Positions that make a text likely or not: the holes, or all up to and including the first
        end token."""
        if self.given is not None:
            return np.tile(self.holes, (len(tokens), 1))
        ends = self.is_end(tokens)
        counted: Bools = (np.cumsum(ends, axis=1) - ends) == 0
        counted[:, self.answer_length :] = False
        return counted

    def keeps_given(self, tokens: Ints) -> bool:
        """Whether a text is complete and has all that was given, where it was given."""
        if self.given is not None:
            same = tokens.size == self.given.size
            return same and bool((tokens == self.given)[~self.holes].all())
        length = self.length(tokens)
        return length == min(self.answer_length, tokens.size) or int(tokens[length]) != self.mask_id

    def filled(self, tokens: Ints) -> tuple[str, ...]:
        """What stands in each hole of one complete text."""
        if self.given is None:
            return ()
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self.holes, [False]])))
        return tuple(
            self.decode(tokens[start:stop].tolist()) for start, stop in edges.reshape(-1, 2)
        )

    def remaskable(self, tokens: Ints, spans: Spans) -> tuple[Bools, Bools]:
        """Of one complete text the holes, or the text and a little room behind its end to grow into;
        and which of these positions hold some of these characters."""
        length = self.length(tokens)
        movable = np.arange(tokens.size) < min(length + ROOM_TO_GROW, self.answer_length)
        if self.given is not None:
            movable = self.holes
        inside = np.zeros(tokens.size, dtype=np.bool_)
        if len(spans):
            ends = np.cumsum(self._widths(tokens[:length].tolist()))
            for start, stop in spans:
                first, last = np.searchsorted(ends, [start, max(stop - 1, start)], side="right")
                inside[first : last + 1] = True
        return movable, inside & movable

    def _widths(self, ids: list[int]) -> list[int]:
        """Characters that each token adds to the text. A token by itself may read otherwise, as a part
        of a character or a piece of a word; then the text is read token by token, which is slow."""
        pieces = [self.decode([token]) for token in ids]
        if "".join(pieces) == self.decode(ids):
            return [len(piece) for piece in pieces]
        ends = [len(self.decode(ids[:stop])) for stop in range(len(ids) + 1)]
        return [max(0, end - start) for start, end in itertools.pairwise(ends)]
