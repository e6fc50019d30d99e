"""Masked diffusion as a process that the search can drive; the search knows of no mask.

A canvas starts fully masked; every step samples the open block from the prediction, reveals the most
eager positions and leaves the rest masked. The open block of a canvas is that of its first masked
position, so canvases that reveal at their own pace also open their next block on their own. A
revealed token never changes. An answer whose first end token is known together with all before it is
finished: what follows cannot change its text, so the rest is filled with that end token and the canvas
is never forwarded again.

A block-causal model (SDAR, LLaDA2, Fast-dLLM v2, bd3lm) was trained on blocks that count from the start
of the row and see no later block. So the answer's first block is what the prompt leaves of one, the row
is cut at the end of the open block, and the look-ahead is complete text up to there: predictions behind
it would be untrained. The last block is filled whole, as in training; what it holds beyond the length
that was asked for is never read. Keys and values of finished blocks never change, so the model caches
them exactly (models/cache.py).

A process may be given a text with holes. Then the known tokens stand on the canvas from the start, no
step and no move changes them, and only what fills the holes counts as more or less likely. Such a
text ends where it was given to end: the model is never asked for end tokens (infill.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from s3dlm.diffusion.blocks import (
    Blocks,
    Reveal,
    TextReader,
    block_reveals,
    hole_reveals,
    masked_after,
    next_counts,
)
from s3dlm.diffusion.decoding import Decoding
from s3dlm.diffusion.schedule import Draw, revealed
from s3dlm.errors import SettingsError
from s3dlm.models.packing import PLAIN, Rows, Sampling
from s3dlm.search.particles import (
    PORTION,
    Bools,
    Canvas,
    CanvasPredictions,
    CleanText,
    Ints,
    Progress,
)

if TYPE_CHECKING:
    from s3dlm.search.run import Run

STATISTICAL = frozenset({"margin", "entropy", "pool"})  # policies that need statistics


@dataclass(frozen=True, slots=True)
class MaskedDiffusion:
    """One prompt's denoising, under a schedule or a reveal rule."""

    prompt: Ints  # (prompt,)
    schedule: list[Reveal]
    blocks: Blocks
    decoding: Decoding
    draws: int  # the most children one distinct canvas can have
    look_ahead_wanted: bool
    reader: TextReader
    label: str  # names the prompt in errors
    sampling: Sampling = PLAIN
    sampled_looks: int = 0  # clean texts drawn from a prediction besides the likeliest
    likeliest: bool = False  # reveal the likeliest tokens; draws are only looked at
    steps_per_block: int = 1  # of a block-causal model
    # In a model that predicts the next token, the first of a block is predicted by the block before
    # it, which is finished: it is revealed before all others.
    first_token_first: bool = False
    left: Mapping[int, Ints] | None = None  # for canvases that are masked again: `masked_after`

    @classmethod
    def of(cls, process: MaskedDiffusion, **changes: Any) -> Self:
        """The same denoising as a process of this kind."""
        names = MaskedDiffusion.__dataclass_fields__
        return cls(**{name: getattr(process, name) for name in names} | changes)

    @classmethod
    def in_run(cls, run: Run) -> MaskedDiffusion:
        """A run's process, for methods that know masks."""
        if not isinstance(run.process, MaskedDiffusion):
            raise SettingsError(
                "this method is for models of masked diffusion, and this model is none; choose another, "
                "such as method='s3' or 'revise'"
            )
        return run.process

    @property
    def mask_id(self) -> int:
        return self.reader.mask_id

    @property
    def steps(self) -> int:
        return len(self.schedule)

    @property
    def passes(self) -> int:
        return 2 if self.sampling.guidance else 1

    def progress(self, canvas: Canvas, step: int) -> Progress:
        if self.decoding.adaptive or self.left is not None:
            tokens = canvas.tokens
            masked, length = tokens == self.mask_id, tokens.shape[1]
            first = np.where(masked.any(axis=1), masked.argmax(axis=1), length)
            given = max(0, self._known(self._blank()[None]))
            blocks = self.blocks.number(int(first.min()))
            return Progress(self._known(tokens) - given, length - given, blocks)
        begun = {reveal.start for reveal in self.schedule[: step + 1]}
        following = {reveal.start for reveal in self.schedule[step + 1 : step + 2]}
        return Progress(min(step + 1, self.steps), self.steps, len(begun - following))

    def _known(self, tokens: Ints) -> int:
        """Positions known on the canvas of which least is known."""
        return int((tokens != self.mask_id).sum(axis=1).min())

    def start(self, size: int, rng: np.random.Generator) -> Canvas:
        tokens = np.tile(self._blank(), (size, 1))
        return Canvas(tokens, np.zeros(tokens.shape))

    def _blank(self) -> Ints:
        given = self.reader.given
        return np.full(self.schedule[-1].stop, self.mask_id) if given is None else given

    def is_open(self, canvas: Canvas) -> Bools:
        return np.asarray((canvas.tokens == self.mask_id).any(axis=1))

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        """Cut at the end of the model's open block, if it has blocks."""
        tokens = canvas.tokens
        start, stop = self._open_block(tokens)
        decoding = self.decoding
        draws = max(self.draws, self.sampled_looks) if decoding.temperature > 0 else 1
        masked = tokens == self.mask_id
        _, ends = self.blocks.model_bounds(masked.argmax(axis=1), tokens.shape[1])
        cut = int(ends.max())
        return Rows(
            prompt=self.prompt,
            canvas=tokens[:, :cut],
            masked=masked[:, :cut] & (np.arange(cut) < ends[:, None]),
            start=start,
            stop=stop,
            uniforms=rng.random((len(tokens), int((stop - start).max()), draws)),
            temperature=decoding.temperature,
            look_ahead=self.look_ahead_wanted,
            statistics=not decoding.adaptive and decoding.policy in STATISTICAL,
            label=f"step {step + 1} of {self.steps}, prompt {self.label}",
            sampling=self.sampling,
        )

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        place, sampled = self._drawn(canvas, prediction, draw)
        # What was re-masked goes on at the pace of the schedule's end.
        count: int | Ints = self.schedule[min(step, self.steps - 1)].count
        if self.left is not None:
            count = next_counts(self.left, place[:, 0], sampled.masked)
        ranked, deferred = sampled, np.isin(sampled.tokens, self.sampling.deferred)
        if prediction.value is not None and prediction.value.deferred is not None:
            ranked = sampled.deferring(deferred, prediction.value.deferred[prediction.row])
        chosen = revealed(self.decoding, ranked, deferred, count, rng)
        tokens, logp = canvas.tokens.copy(), canvas.logp.copy()
        where = chosen.nonzero()[0], place[chosen]
        tokens[where], logp[where] = sampled.tokens[chosen], sampled.logp[chosen]
        self._finish(tokens)
        return Canvas(tokens, logp)

    def _drawn(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints
    ) -> tuple[Ints, Draw]:
        """The places of each open block, and what is sampled for them."""
        predicted, row = prediction.value, prediction.row
        assert predicted is not None
        draw = draw % predicted.draws.shape[2] if self.decoding.temperature > 0 else 0 * draw
        place, masked = self._open_places(canvas.tokens, predicted.draws.shape[1])
        tokens, logp = predicted.draws[row, :, draw], predicted.draws_logp[row, :, draw]
        if self.likeliest:
            inside = np.minimum(place, predicted.top.shape[1] - 1)
            tokens = np.take_along_axis(predicted.top[row], inside, axis=1)
            logp = np.take_along_axis(predicted.top_logp[row], inside, axis=1)
        margin, entropy = (
            s if s is None else s[row] for s in (predicted.margin, predicted.entropy)
        )
        if self.first_token_first:
            alone = self.blocks.begins_model_block(place[:, 0]) & masked[:, 0]
            masked[alone, 1:] = False
        return place, Draw(tokens, logp, masked, margin, entropy)

    def _open_block(self, tokens: Ints) -> tuple[Ints, Ints]:
        """Each canvas's block with its first masked position: where it begins and ends."""
        return self.blocks.bounds((tokens == self.mask_id).argmax(axis=1), tokens.shape[1])

    def _open_places(self, tokens: Ints, width: int) -> tuple[Ints, Bools]:
        """The places from the start of each open block, and which of them it has masked."""
        start, stop = self._open_block(tokens)
        place = start[:, None] + np.arange(width)
        inside = place < stop[:, None]
        each = np.arange(len(tokens))[:, None]
        return place, inside & (tokens[each, place * inside] == self.mask_id)

    def _finish(self, tokens: Ints) -> None:
        """Fill what follows a known end whose past is known too, or an answer as long as was asked."""
        end_ids, length = self.reader.end_ids, self.reader.answer_length
        end = self.reader.is_end(tokens).argmax(axis=1)
        mask = (tokens == self.mask_id).argmax(axis=1)
        for row in np.flatnonzero(end < mask):
            # argmax is 0 where there is none: an end at 0 counts only if it is one.
            if end[row] or tokens[row, 0] in end_ids:
                tokens[row, end[row] :] = tokens[row, end[row]]
        if tokens.shape[1] > length:
            complete = (tokens[:, :length] != self.mask_id).all(axis=1)
            tokens[complete, length:] = end_ids[0] if end_ids.size else 0

    def look_aheads(self, canvas: Canvas, prediction: CanvasPredictions) -> Iterator[CleanText]:
        tokens, logp, value, row = canvas.tokens, canvas.logp, prediction.value, prediction.row
        if value is None:
            yield self.reader.clean(tokens, logp)
            return
        # What is known stands in a prediction too, and of two log-probabilities one is zero.
        predicted, both = tokens.copy(), logp.copy()
        width = value.top.shape[1]  # what follows was not asked for
        predicted[:, :width] = value.top[row]
        both[:, :width] += value.top_logp[row]
        finished = row < 0
        predicted[finished], both[finished] = tokens[finished], logp[finished]
        yield self.reader.clean(predicted, both)
        if self.sampled_looks and self.decoding.temperature > 0:
            place, masked = self._open_places(canvas.tokens, value.draws.shape[1])
            masked &= ~finished[:, None]
            each, at = masked.nonzero()
            source, inside = row[each], (slice(None), each, place[masked])
            size, length = predicted.shape
            portion = max(1, PORTION // size)
            for first in range(0, self.sampled_looks, portion):
                some = slice(first, min(first + portion, self.sampled_looks))
                texts = np.tile(predicted, (some.stop - first, 1, 1))
                chances = np.tile(both, (some.stop - first, 1, 1))
                texts[inside] = value.draws[source, at, some].T
                chances[inside] = value.draws_logp[source, at, some].T
                yield self.reader.clean(texts.reshape(-1, length), chances.reshape(-1, length))

    def greedy(self) -> MaskedDiffusion:
        if self.sampled_looks:
            return replace(self, likeliest=True)
        return replace(self, decoding=self.decoding.model_copy(update={"temperature": 0.0}))

    def remask(
        self, canvas: Canvas, where: Bools, rng: np.random.Generator
    ) -> tuple[MaskedDiffusion, Canvas]:
        """By the blocks and the schedule of the first time. Every canvas goes at its own pace, until
        the slowest is full."""
        where = where if self.reader.given is None else where & self.reader.holes
        tokens = np.where(where, self.mask_id, canvas.tokens)
        masked, length = tokens == self.mask_id, tokens.shape[1]
        left, steps = masked_after(self.schedule), np.zeros(len(tokens), dtype=np.int64)
        for start, stop in self.blocks.all(length):
            if start not in left:
                continue  # it had no holes
            steps += (left[start] < masked[:, start:stop].sum(axis=1)[:, None]).sum(axis=1)
            steps += masked[:, start] * self.first_token_first
        schedule = [Reveal(0, length, 1)] * max(1, int(steps.max()))
        process = replace(self, schedule=schedule, left=left)
        return process, Canvas(tokens, np.where(where, 0.0, canvas.logp))

    def scheduled(self, length: int) -> MaskedDiffusion:
        """The process of a block-causal model with its schedule for a canvas of this length."""
        steps, alone, reveal = self.steps_per_block, self.first_token_first, self.decoding.reveal
        schedule = block_reveals(length, steps, self.blocks, reveal, first_token_first=alone)
        return replace(self, schedule=schedule)

    def with_given(self, given: Ints, block: int, tokens_per_step: int) -> MaskedDiffusion:
        """The process that fills the holes of a text, block by block from left to right."""
        blocks, masked = Blocks(block), given == self.mask_id
        schedule = hole_reveals(masked, blocks, tokens_per_step, self.decoding.reveal)
        reader = replace(self.reader, given=given)
        return replace(self, reader=reader, blocks=blocks, schedule=schedule)
