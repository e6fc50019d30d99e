"""Masked diffusion as a process that the search can drive; the search knows of no mask.

A canvas starts fully masked; every step samples the open block from the prediction, reveals the most
eager positions and leaves the rest masked. The open block of a canvas is that of its first masked
position, so canvases that reveal at their own pace also open their next block on their own. A
revealed token never changes. An answer whose first end
token is known together with all before it is finished: what follows cannot change its text, so the
rest is filled with that end token and the canvas is never forwarded again.

A process may be given a text with holes. Then the known tokens stand on the canvas from the start, no
step and no move changes them, and only what fills the holes counts as more or less likely. Such a
text ends where it was given to end: the model is never asked for end tokens (infilling.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from s3dlm.diffusion.schedule import (
    POLICIES,
    REVEAL_RULES,
    SCHEDULE,
    WAITS,
    Blocks,
    Draw,
    Reveal,
    block_lengths,
    choose,
    draw_positions,
    hole_reveals,
    reveals,
)
from s3dlm.models.packing import PLAIN, Rows, Sampling
from s3dlm.search.particles import Canvas, CleanText, Floats, Ints, Prediction, Spans

ROOM_TO_GROW = 4  # positions behind the end that a repaired text may take
POLICIES_WITH_STATISTICS = frozenset({"margin", "entropy"})


@dataclass(frozen=True, slots=True)
class MaskedDiffusion:
    """One prompt's denoising, under LLaDA's schedule or a reveal rule."""

    prompt: Ints  # (prompt,)
    schedule: list[Reveal]
    policy: str
    temperature: float
    draws: int  # the most children one distinct canvas can have
    look_ahead_wanted: bool
    mask_id: int
    end_ids: Ints
    decode: Callable[[list[int]], str]
    label: str  # names the prompt in errors
    reveal: str = SCHEDULE  # or a reveal rule; the schedule's counts are then not used
    reveal_number: float = 0.0  # of the rule
    sampling: Sampling = PLAIN
    position_temperature: float = 0.0  # above 0, positions are drawn and not ranked
    given: Ints | None = None  # (length,) a text whose holes are masked; None: nothing is known
    block: int = 0  # positions per block; 0: as many as the schedule's first block has
    looks: int = 0  # clean texts drawn from a prediction besides the likeliest
    likeliest: bool = False  # reveal the likeliest tokens; draws are only looked at

    @property
    def steps(self) -> int:
        return len(self.schedule)

    @property
    def adaptive(self) -> bool:
        return self.reveal in REVEAL_RULES

    @property
    def passes(self) -> int:
        return 2 if self.sampling.guidance else 1

    def ends_block(self, step: int) -> bool:
        following = self.schedule[step + 1 : step + 2]
        return not following or following[0].start != self.schedule[step].start

    def blocks_done(self, tokens: Ints) -> int:
        masked = tokens == self.mask_id
        first = np.where(masked.any(axis=1), masked.argmax(axis=1), tokens.shape[1])
        return self.blocks.number(int(first.min()))

    def known(self, tokens: Ints) -> int:
        return int((tokens != self.mask_id).sum(axis=1).min())

    def start(self) -> Canvas:
        if self.given is not None:
            return Canvas(self.given[None].copy(), np.zeros((1, self.given.size)))
        shape = (1, self.schedule[-1].stop)
        return Canvas(np.full(shape, self.mask_id, dtype=np.int64), np.zeros(shape))

    def is_open(self, tokens: Ints) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = (tokens == self.mask_id).any(axis=1)
        return result

    def ask(self, tokens: Ints, step: int, rng: np.random.Generator) -> Rows:
        start, stop = self._open_block(tokens)
        draws = max(self.draws, self.looks) if self.temperature > 0 else 1
        return Rows(
            prompt=self.prompt,
            canvas=tokens,
            masked=tokens == self.mask_id,
            start=start,
            stop=stop,
            uniforms=rng.random((len(tokens), int((stop - start).max()), draws)),
            temperature=self.temperature,
            look_ahead=self.look_ahead_wanted,
            statistics=self._needs_statistics(),
            label=f"step {step + 1} of {self.steps}, prompt {self.label}",
            sampling=self.sampling,
        )

    def expand(
        self,
        canvas: Canvas,
        prediction: Prediction,
        draw: Ints,
        step: int,
        rng: np.random.Generator,
    ) -> Canvas:
        predicted, row = prediction.value, prediction.row
        draw = draw if self.temperature > 0 else np.zeros_like(draw)
        start, stop = self._open_block(canvas.tokens)
        place = start[:, None] + np.arange(predicted.draws.shape[1])
        tokens, logp = predicted.draws[row, :, draw], predicted.draws_logp[row, :, draw]
        if self.likeliest:
            asked = np.minimum(place, predicted.top.shape[1] - 1)
            tokens = np.take_along_axis(predicted.top[row], asked, axis=1)
            logp = np.take_along_axis(predicted.top_logp[row], asked, axis=1)
        sampled = Draw(
            tokens=tokens,
            logp=logp,
            margin=None if predicted.margin is None else predicted.margin[row],
            entropy=None if predicted.entropy is None else predicted.entropy[row],
        )
        ranked, waits = sampled, np.zeros(tokens.shape, dtype=np.bool_)
        if predicted.withheld is not None:
            waits = np.isin(sampled.tokens, self.sampling.withheld)
            ranked = sampled.last(waits, predicted.withheld[row])
        masked = self._masked(canvas.tokens, place, stop)
        chosen = self._choose(ranked, waits, self._may_be_revealed(masked, start), step, rng)
        tokens, logp = canvas.tokens.copy(), canvas.logp.copy()
        where = chosen.nonzero()[0], place[chosen]
        tokens[where], logp[where] = sampled.tokens[chosen], sampled.logp[chosen]
        self._finish(tokens)
        return Canvas(tokens, logp)

    def _may_be_revealed(self, masked: NDArray[np.bool_], start: Ints) -> NDArray[np.bool_]:
        """Which of the masked positions of open blocks, which begin at `start`, a step may reveal."""
        return masked

    def _choose(
        self,
        sampled: Draw,
        waits: NDArray[np.bool_],
        masked: NDArray[np.bool_],
        step: int,
        rng: np.random.Generator,
    ) -> NDArray[np.bool_]:
        """What a step reveals of the open blocks; what waits is revealed after all others."""
        if self.adaptive:
            rank = REVEAL_RULES[self.reveal].rank
            eagerness, counts = rank(sampled, masked, self.reveal_number)
            return choose(eagerness, masked, counts)
        eagerness, count = POLICIES[self.policy](sampled, rng), self.schedule[step].count
        if not self.position_temperature:
            return choose(np.where(waits, -WAITS, eagerness), masked, count)
        if self.policy == "low_confidence":
            eagerness = np.exp(eagerness)  # Dream draws by probabilities, not by their logarithms
        eagerness = np.where(waits, -WAITS, eagerness)
        return draw_positions(eagerness, masked, count, self.position_temperature, rng)

    def _open_block(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Each canvas's block with its first masked position: where it begins and ends."""
        first = (tokens == self.mask_id).argmax(axis=1)
        return self.blocks.bounds(first, tokens.shape[1])

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.block or self.schedule[0].stop)

    def _needs_statistics(self) -> bool:
        if self.adaptive:
            return REVEAL_RULES[self.reveal].needs_statistics
        return self.policy in POLICIES_WITH_STATISTICS

    def _finish(self, tokens: Ints) -> None:
        """Fill what follows a known end whose past is known too."""
        end = self._is_end(tokens).argmax(axis=1)
        mask = (tokens == self.mask_id).argmax(axis=1)
        for row in np.flatnonzero(end < mask):
            # argmax is 0 where there is none: an end at 0 counts only if it is one.
            if end[row] or tokens[row, 0] in self.end_ids:
                tokens[row, end[row] :] = tokens[row, end[row]]

    def sampled_look_aheads(
        self, canvas: Canvas, prediction: Prediction, usual: CleanText
    ) -> list[CleanText]:
        if not self.looks or prediction.value is None or self.temperature == 0:
            return []
        value, row = prediction.value, prediction.row
        start, stop = self._open_block(canvas.tokens)
        place = start[:, None] + np.arange(value.draws.shape[1])
        masked = self._masked(canvas.tokens, place, stop) & (row >= 0)[:, None]
        where = masked.nonzero()[0], place[masked]
        found = []
        for draw in range(self.looks):
            tokens, logp = usual.tokens.copy(), usual.logp.copy()
            tokens[where] = value.draws[row, :, draw][masked]
            logp[where] = value.draws_logp[row, :, draw][masked]
            found.append(self._clean(tokens, logp))
        return found

    def _masked(self, tokens: Ints, place: Ints, stop: Ints) -> NDArray[np.bool_]:
        """Which places of open blocks, which end at `stop`, are masked."""
        masked: NDArray[np.bool_] = place < stop[:, None]
        masked &= np.take_along_axis(tokens, place * masked, axis=1) == self.mask_id
        return masked

    def look_ahead(self, canvas: Canvas, prediction: Prediction) -> CleanText:
        tokens, logp = canvas.tokens, canvas.logp
        if prediction.value is not None:
            # What is known stands in a prediction too, and of two log-probabilities one is zero.
            value, row = prediction.value, prediction.row
            predicted, both = tokens.copy(), logp.copy()
            width = value.top.shape[1]  # what follows was not asked for
            predicted[:, :width] = value.top[row]
            both[:, :width] += value.top_logp[row]
            finished = row < 0
            if finished.any():
                predicted[finished], both[finished] = tokens[finished], logp[finished]
            tokens, logp = predicted, both
        return self._clean(tokens, logp)

    def _clean(self, tokens: Ints, logp: Floats) -> CleanText:
        counted = self._counted(tokens) & (tokens != self.mask_id)  # not asked for, not counted
        known = np.maximum(counted.sum(axis=1), 1)
        return CleanText(tokens, logp, (np.exp(logp) * counted).sum(axis=1) / known)

    def length(self, tokens: Ints) -> int:
        """Tokens of one clean canvas before its first end."""
        (ends,) = np.nonzero(self._is_end(tokens))
        return int(ends[0]) if ends.size else int(tokens.size)

    def read(self, tokens: Ints) -> str:
        return self.decode(tokens[: self.length(tokens)].tolist())

    def greedy(self) -> MaskedDiffusion:
        return replace(self, likeliest=True) if self.looks else replace(self, temperature=0.0)

    def movable(self, tokens: Ints) -> NDArray[np.bool_]:
        """The holes; or the text, and a little room behind its end to grow into."""
        if self.given is not None:
            return np.tile(self._holes(), (len(tokens), 1))
        result: NDArray[np.bool_] = np.arange(tokens.shape[1]) < np.array(
            [self.length(row) + ROOM_TO_GROW for row in tokens]
        ).reshape(-1, 1)
        return result

    def places(self, tokens: Ints, spans: Spans) -> NDArray[np.bool_]:
        found = np.zeros(tokens.size, dtype=np.bool_)
        if len(spans):
            ends = np.cumsum(self._widths(tokens[: self.length(tokens)].tolist()))
            for start, stop in spans:
                first, last = np.searchsorted(ends, [start, max(stop - 1, start)], side="right")
                found[first : min(last + 1, tokens.size)] = True
        return found

    def _widths(self, ids: list[int]) -> list[int]:
        """Characters that each token adds to the text. A token by itself may read otherwise, as a part
        of a character or a piece of a word; then the text is read token by token, which is slow."""
        pieces = [self.decode([token]) for token in ids]
        if "".join(pieces) == self.decode(ids):
            return [len(piece) for piece in pieces]
        ends = [len(self.decode(ids[:stop])) for stop in range(len(ids) + 1)]
        return [max(0, end - start) for start, end in itertools.pairwise(ends)]

    def hide(self, canvas: Canvas, hidden: NDArray[np.bool_]) -> Canvas:
        tokens = np.where(hidden, self.mask_id, canvas.tokens)
        return Canvas(tokens, np.where(hidden, 0.0, canvas.logp))

    def resumed(self, canvas: Canvas) -> MaskedDiffusion:
        """The whole canvas is one block: what is hidden may be anywhere in it."""
        most = int((canvas.tokens == self.mask_id).sum(axis=1).max())
        pace, length = max(one.count for one in self.schedule), canvas.tokens.shape[1]
        steps = max(1, -(-most // pace))
        return replace(self, schedule=[Reveal(0, length, pace)] * steps, block=length)

    def with_block_lengths(self) -> list[MaskedDiffusion]:
        length, steps = self.schedule[-1].stop, self.steps
        sizes = block_lengths(length, steps)
        if self.given is not None:
            pace = max(one.count for one in self.schedule)
            return [self.with_given(self.given, size, pace) for size in sizes]
        counts = SCHEDULE if self.adaptive else self.reveal
        return [replace(self, schedule=reveals(length, steps, size, counts)) for size in sizes]

    def with_given(self, given: Ints, size: int, pace: int) -> MaskedDiffusion:
        """The process that fills the holes of a text: blocks of this size from left to right, and at
        most `pace` positions per step."""
        counts = SCHEDULE if self.adaptive else self.reveal
        schedule = hole_reveals(given == self.mask_id, Blocks(size), pace, counts)
        return replace(self, given=given, block=size, schedule=schedule)

    def filled(self, tokens: Ints) -> tuple[str, ...]:
        """What stands in each hole of one complete text."""
        if self.given is None:
            return ()
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self._holes(), [False]])))
        return tuple(
            self.decode(tokens[start:stop].tolist()) for start, stop in edges.reshape(-1, 2)
        )

    def holds(self, tokens: Ints) -> bool:
        """Whether a text has all that was given, where it was given."""
        if self.given is None:
            return True
        return tokens.size == self.given.size and bool((tokens == self.given)[~self._holes()].all())

    def _holes(self) -> NDArray[np.bool_]:
        assert self.given is not None
        holes: NDArray[np.bool_] = self.given == self.mask_id
        return holes

    def nll(self, canvas: Canvas) -> Floats:
        counted = self._counted(canvas.tokens)
        result: Floats = -(canvas.logp * counted).sum(axis=1) / counted.sum(axis=1)
        return result

    def _is_end(self, tokens: Ints) -> NDArray[np.bool_]:
        if not self.end_ids.size:
            return np.zeros(tokens.shape, dtype=np.bool_)
        ends: NDArray[np.bool_] = tokens == self.end_ids[0]
        for end in self.end_ids[1:]:
            ends |= tokens == end
        return ends

    def _counted(self, tokens: Ints) -> NDArray[np.bool_]:
        """Positions that make a text likely or not: the holes, or all up to and including the first
        end token."""
        if self.given is not None:
            return np.tile(self._holes(), (len(tokens), 1))
        ends = self._is_end(tokens)
        return (np.cumsum(ends, axis=1) - ends) == 0
