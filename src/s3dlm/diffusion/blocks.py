"""A canvas: where its blocks lie, the schedule that fills them one after the other, and what it says.

A schedule is a list with one entry per denoising step: the block that is open and how many of its
masked positions the step reveals, in equal shares (LLaDA) or in shares of what is left (Dream).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s3dlm.search.particles import Bools, Canvas, CleanText, Floats, Ints
from s3dlm.verifier.base import HOLE, Spans, doubts

ENDLESS = 1 << 40  # longer than any canvas
LAST_TIME = 1e-3  # Dream's times run from 1 to this
ROOM_TO_GROW = 4  # positions behind the end that a repaired text may take


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the blocks of a canvas lie. In a block-causal model they are parts of the model's own
    blocks, which count from the start of the row: the prompt takes some positions of the first."""

    block: int
    model_block: int = ENDLESS  # the model's own block; endless in a model that has none
    prompt_offset: int = 0  # positions of the first model block that belong to the prompt

    @property
    def causal(self) -> bool:
        """Whether the model has blocks of its own and sees none behind the open one."""
        return self.model_block < ENDLESS

    def bounds(self, position: Ints, length: int) -> tuple[Ints, Ints]:
        """Where the block of each position begins and ends."""
        inside = (position + self.prompt_offset) % self.model_block
        begin = position - inside
        start = begin + inside // self.block * self.block
        stop = np.minimum(start + self.block, begin + self.model_block)
        return np.maximum(start, 0), np.minimum(stop, length)

    def model_bounds(self, position: Ints, length: int) -> tuple[Ints, Ints]:
        """Where the model's own block of each position begins and ends."""
        begin = position - (position + self.prompt_offset) % self.model_block
        return begin.clip(min=0), (begin + self.model_block).clip(max=length)

    def begins_model_block(self, position: Ints) -> Bools:
        """Which positions are the first of a model block."""
        return np.asarray((position + self.prompt_offset) % self.model_block == 0)

    def number(self, position: int) -> int:
        """How many blocks end at or before a position."""
        per_model_block = -(-self.model_block // self.block)

        def index(place: int) -> int:
            model_blocks, inside = divmod(place, self.model_block)
            return model_blocks * per_model_block + inside // self.block

        return index(position + self.prompt_offset) - index(self.prompt_offset)

    def all(self, length: int) -> list[tuple[int, int]]:
        """Every block of a canvas: where it begins and ends."""
        blocks, start = [], 0
        while start < length:
            _, stop = self.bounds(np.array([start]), length)
            blocks.append((start, int(stop[0])))
            start = blocks[-1][1]
        return blocks


@dataclass(frozen=True, slots=True)
class Reveal:
    """What one denoising step may touch."""

    start: int  # first position of the open block
    stop: int  # one past its last
    count: int  # masked positions revealed


def _equal_shares(total: int, parts: int) -> list[int]:
    """`total` in whole parts as equal as can be, the larger ones first."""
    small, larger = divmod(total, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def dream_counts(length: int, steps: int) -> list[int]:
    """Dream: a step reveals a share of what is still masked, rounded down; the last one the rest.

    Steps that reveal nothing are left out: a forward pass on an unchanged row gives nothing new.
    """
    times = np.linspace(1.0, LAST_TIME, steps + 1, dtype=np.float32)
    counts, masked = [], length
    for step in range(steps):
        share = np.float32(1.0) - times[step + 1] / times[step]
        count = masked if step == steps - 1 else int(np.float32(masked) * share)
        counts.append(count)
        masked -= count
    return [count for count in counts if count]


# How many positions each step reveals of so many, in so many steps; by threshold, at the least.
COUNTS = {"schedule": _equal_shares, "dream": dream_counts, "threshold": _equal_shares}


def reveals(
    gen_length: int, steps: int, block_length: int, reveal: str = "schedule"
) -> list[Reveal]:
    """The whole schedule; every block has its share of the steps, and no step reveals nothing."""
    blocks = Blocks(block_length).all(gen_length)
    shares = _equal_shares(steps, len(blocks))
    last = blocks[-1][1] - blocks[-1][0]
    if len(blocks) > 1 and shares[-1] > last:  # a short last block takes what it can fill
        shares = [*_equal_shares(steps - last, len(blocks) - 1), last]
    return [
        Reveal(start, stop, count)
        for (start, stop), share in zip(blocks, shares, strict=True)
        for count in COUNTS[reveal](stop - start, share)
    ]


def block_reveals(
    length: int, steps_per_block: int, blocks: Blocks, reveal: str, *, first_token_first: bool
) -> list[Reveal]:
    """The schedule of a block-causal model: equally many steps for every full block, and as many
    tokens per step in a block of which the prompt takes a part. With `first_token_first`, the first
    position of each of the model's own blocks has a step of its own."""
    schedule = []
    counts = COUNTS[reveal](min(blocks.block, length), steps_per_block)
    for start, stop in blocks.all(length):
        alone = int(first_token_first and blocks.begins_model_block(np.array([start])).all())
        schedule += [Reveal(start, stop, 1)] * alone
        left = stop - start - alone
        for count in counts:
            if left > 0:
                schedule.append(Reveal(start, stop, min(count, left)))
                left -= count
    return schedule


def hole_reveals(
    masked: Bools, blocks: Blocks, tokens_per_step: int, reveal: str = "schedule"
) -> list[Reveal]:
    """The schedule that fills the masked positions of a text; a block without any takes no step."""
    schedule = []
    for start, stop in blocks.all(masked.size):
        left = int(masked[start:stop].sum())
        if left:
            counts = COUNTS[reveal](left, -(-left // tokens_per_step))
            schedule += [Reveal(start, stop, count) for count in counts]
    return schedule


def masked_after(schedule: Sequence[Reveal]) -> dict[int, Ints]:
    """How many masked positions each step of a schedule leaves of its block, the fewest first, by
    where the block begins."""
    counts: dict[int, list[int]] = {}
    for reveal in schedule:
        counts.setdefault(reveal.start, []).append(reveal.count)
    return {start: np.cumsum([0, *each[:0:-1]]) for start, each in counts.items()}


def next_counts(left: Mapping[int, Ints], start: Ints, masked: Bools) -> Ints:
    """How many positions each canvas reveals next of its open block, which begins here: it goes on
    where the schedule had as many of them left."""
    rows = zip(start.tolist(), masked.sum(axis=1).tolist(), strict=True)
    return np.array([now - left[begin][left[begin] < now].max(initial=0) for begin, now in rows])


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
        return np.asarray(self.given == self.mask_id)

    def is_end(self, tokens: Ints) -> Bools:
        """Which tokens end a text."""
        ends: Bools = np.zeros(tokens.shape, np.bool_)
        for end in self.end_ids:  # few; np.isin takes ten times as long on one row
            ends |= tokens == end
        return ends

    def length(self, tokens: Ints) -> int:
        """Tokens of one clean canvas before its end, or before what is not predicted yet."""
        tokens = tokens[: self.answer_length]
        (ends,) = np.nonzero(self.is_end(tokens) | (tokens == self.mask_id))
        return int(ends[0]) if ends.size else int(tokens.size)

    def read(self, tokens: Ints) -> str:
        """The text of one clean canvas."""
        return self.decode(tokens[: self.length(tokens)].tolist())

    def read_partial(self, tokens: Ints) -> str:
        """The text of one canvas up to its first known end, with a `HOLE` for every masked token."""
        tokens = tokens[: self.answer_length]
        (ends,) = np.nonzero(self.is_end(tokens))
        ids = tokens[: ends[0] if ends.size else None]
        holes = int((ids == self.mask_id).sum())
        # A word may read otherwise at the start of a text, so all is decoded at once, masks included, if
        # they can be told from the rest.
        mask, text = self.decode([self.mask_id]) if holes else "", self.decode(ids.tolist())
        if mask and text.count(mask) == holes:
            text = text.replace(mask, HOLE)
        elif holes:
            runs = itertools.groupby(ids.tolist(), self.mask_id.__eq__)
            pieces = ((hole, list(run)) for hole, run in runs)
            text = "".join(HOLE * len(run) if hole else self.decode(run) for hole, run in pieces)
        return text

    def counted(self, tokens: Ints) -> Bools:
        """Positions that make a text likely or not: the holes, or all up to and including the first
        end token."""
        if self.given is not None:
            return np.tile(self.holes, (len(tokens), 1))
        ends = self.is_end(tokens)
        counted: Bools = (np.cumsum(ends, axis=1) - ends) == 0
        counted[:, self.answer_length :] = False
        return counted

    def nll(self, canvas: Canvas) -> Floats:
        """Mean −log p of every token at the step that revealed it, up to the end of the text."""
        counted = self.counted(canvas.tokens)
        return np.asarray(-(canvas.logp * counted).sum(axis=1) / counted.sum(axis=1))

    def clean(self, tokens: Ints, logp: Floats, predicted: Bools | None = None) -> CleanText:
        """Predicted texts with their confidence; what was not asked for or predicted does not count."""
        counted = self.counted(tokens) & (
            tokens != self.mask_id if predicted is None else predicted
        )
        known = np.maximum(counted.sum(axis=1), 1)
        return CleanText(tokens, logp, (np.exp(logp) * counted).sum(axis=1) / known)

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
        holes = (tokens[start:stop] for start, stop in edges.reshape(-1, 2))
        return tuple(self.decode(hole.tolist()) for hole in holes)

    def remaskable(self, tokens: Ints, spans: Spans) -> tuple[Bools, Floats]:
        """Of one complete text the holes, or the text and a little room behind its end to grow into;
        and how doubtful each of these positions is, if these characters are."""
        length = self.length(tokens)
        movable = np.arange(tokens.size) < min(length + ROOM_TO_GROW, self.answer_length)
        if self.given is not None:
            movable = self.holes
        doubt = np.zeros(tokens.size)
        if len(spans):
            ends = np.cumsum(self._widths(tokens[:length].tolist()))
            for start, stop, weight in doubts(spans):
                first, last = np.searchsorted(ends, [start, max(stop - 1, start)], side="right")
                np.maximum(doubt[first : last + 1], weight, out=doubt[first : last + 1])
        return movable, doubt * movable

    def _widths(self, ids: list[int]) -> list[int]:
        """Characters that each token adds to the text. A token by itself may read otherwise, as a part
        of a character or a piece of a word; then the text is read token by token, which is slow."""
        pieces = [self.decode([token]) for token in ids]
        if "".join(pieces) == self.decode(ids):
            return [len(piece) for piece in pieces]
        ends = [len(self.decode(ids[:stop])) for stop in range(len(ids) + 1)]
        return [max(0, end - start) for start, end in itertools.pairwise(ends)]
