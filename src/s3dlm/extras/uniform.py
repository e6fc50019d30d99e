"""Diffusion by uniform noise as a process that the search can drive, as DiffusionGemma does it.

There are no masks: a row is full of tokens, and those not yet known are drawn at random. Every step
samples all positions of the open block, accepts the surest of them while their entropies stay within a
bound, and draws all others anew. So nothing is final: a token that was accepted may be taken back. A block
is finished when its likeliest text no longer changes and the model is sure of it, or with its last step;
that text then stands, and the next block opens behind it.

A canvas shows what is accepted, and `HIDDEN` elsewhere; the noise is part of its state, and so is what
the last prediction tells the next one (self-conditioning), which children inherit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from s3dlm.diffusion.blocks import Blocks, TextReader
from s3dlm.diffusion.infill import check_support, template_row
from s3dlm.errors import SettingsError
from s3dlm.models.base import Model, Noise
from s3dlm.models.packing import Rows, Sampling
from s3dlm.search.particles import (
    Bools,
    Canvas,
    CanvasPredictions,
    CleanText,
    Floats,
    Ints,
    Progress,
)

if TYPE_CHECKING:
    from s3dlm.job import Job

HIDDEN = -1  # in the place of a token that is not known; no token has this id


@dataclass(frozen=True, slots=True)
class NoisyState:
    """What a canvas that is not finished holds beside its known tokens."""

    row: Ints  # (length,) as the model reads it: known tokens, noise elsewhere
    free: Bools  # (length,) what may still change
    step: int = 0  # of the open block
    looks: tuple[bytes, ...] = ()  # its last likeliest texts
    vectors: NDArray[np.float32] | None = None  # (block, any) what its last prediction expected
    told: bytes = b""  # the key of the canvas whose prediction that was

    @property
    def key(self) -> bytes:
        known = self.free.tobytes() + self.step.to_bytes(4, "little") + self.told
        return blake2b(self.row.tobytes() + known, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class UniformDiffusion:
    """One prompt's denoising from uniform noise."""

    prompt: Ints  # (prompt,)
    reader: TextReader
    length: int
    block: int
    steps_per_block: int
    vocabulary: int  # noise is drawn from the ids below
    temperature: float  # of a block's first step
    noise: Noise
    sampling: Sampling
    draws: int  # the most children one distinct canvas can have
    label: str  # names the prompt in errors
    sampled_looks: int = 0  # clean texts drawn from a prediction besides the likeliest
    blind: bool = False  # whether the model sees nothing behind the open block
    passes: int = 1

    @property
    def steps(self) -> int:
        return self.steps_per_block * len(Blocks(self.block).all(self.length))

    def start(self, size: int, rng: np.random.Generator) -> Canvas:
        given = self.reader.given
        tokens = np.full(self.length, HIDDEN) if given is None else given
        return self._opened(np.tile(tokens, (size, 1)), np.tile(tokens == HIDDEN, (size, 1)), rng)

    def _opened(
        self, tokens: Ints, free: Bools, rng: np.random.Generator, step: Sequence[int] = (),
        logp: Floats | None = None,
    ) -> Canvas:  # fmt: skip
        """Canvases on which these positions may change, with fresh noise where nothing is known."""
        drawn = rng.integers(0, self.vocabulary, tokens.shape)
        canvas = Canvas(tokens, np.zeros(tokens.shape) if logp is None else logp)
        for row in np.flatnonzero(free.any(axis=1)).tolist():
            read = np.where(tokens[row] == HIDDEN, drawn[row], tokens[row])
            canvas.state[row] = NoisyState(read, free[row], step[row] if step else 0)
        return canvas

    def is_open(self, canvas: Canvas) -> Bools:
        return np.array([state is not None for state in canvas.state], dtype=np.bool_)

    def progress(self, canvas: Canvas, step: int) -> Progress:
        place = [
            (self.length, 0) if s is None else (int(s.free.argmax()), s.step) for s in canvas.state
        ]
        first, step = min(place)
        blocks, all_blocks = first // self.block, len(Blocks(self.block).all(self.length))
        blocks = all_blocks if first == self.length else blocks
        return Progress(blocks * self.steps_per_block + step, self.steps, blocks)

    def _open_block(self, states: Sequence[NoisyState]) -> tuple[Ints, Ints, Bools]:
        """Where the block of each state's first free position begins and ends, and what is free."""
        free = np.stack([state.free for state in states])
        start, stop = Blocks(self.block).bounds(free.argmax(axis=1), self.length)
        return start, stop, free

    def ask(self, canvas: Canvas, step: int, rng: np.random.Generator) -> Rows:
        states = canvas.state.tolist()
        start, stop, free = self._open_block(states)
        place, cut = np.arange(self.length), int(stop.max()) if self.blind else self.length
        if self.blind:
            free = free & (place >= start[:, None]) & (place < stop[:, None])
        left = np.array([1 - state.step / self.steps_per_block for state in states])
        draws = self.draws if self.temperature > 0 else 1
        cooling = self.noise.cooling
        return Rows(
            prompt=self.prompt,
            canvas=np.stack([state.row for state in states])[:, :cut],
            masked=free[:, :cut],
            start=start,
            stop=stop,
            uniforms=rng.random((len(states), int((stop - start).max()), draws)),
            temperature=self.temperature * (cooling + (1 - cooling) * left),
            look_ahead=not self.blind,
            statistics=True,
            label=f"step {step + 1} of {self.steps}, prompt {self.label}",
            sampling=self.sampling,
            vectors=[state.vectors for state in states],
        )

    def expand(
        self, canvas: Canvas, prediction: CanvasPredictions, draw: Ints, step: int,
        rng: np.random.Generator,
    ) -> Canvas:  # fmt: skip
        value, source, states = prediction.value, prediction.row, canvas.state.tolist()
        assert value is not None
        assert value.entropy is not None
        fresh = rng.integers(0, self.vocabulary, canvas.tokens.shape)
        tokens, logp = canvas.tokens.copy(), canvas.logp.copy()
        child = Canvas(tokens, logp)
        start, stop, free = self._open_block(states)
        for row, (state, which) in enumerate(zip(states, source, strict=True)):
            (where,) = free[row, start[row] : stop[row]].nonzero()  # in the block
            at, one = start[row] + where, draw[row] % value.draws.shape[2]
            entropy, likeliest = value.entropy[which, where], value.top[which, at]
            looks = (*state.looks, likeliest.tobytes())[-1 - self.noise.stability :]
            stable = len(looks) == 1 + self.noise.stability and len(set(looks)) == 1
            sure = stable and entropy.mean() < self.noise.confidence
            if sure or state.step + 1 >= self.steps_per_block:
                tokens[row, at], logp[row, at] = likeliest, value.top_logp[which, at]
                left = state.free.copy()
                left[at] = False
                if not self._ends(tokens[row], left):
                    read = np.where(tokens[row] == HIDDEN, fresh[row], tokens[row])
                    child.state[row] = NoisyState(read, left)
                continue
            accepted = within(entropy, self.noise.entropy_bound)
            tokens[row, at] = np.where(accepted, value.draws[which, where, one], HIDDEN)
            logp[row, at] = np.where(accepted, value.draws_logp[which, where, one], 0.0)
            read = np.where(tokens[row] == HIDDEN, fresh[row], tokens[row])
            vectors = None if value.vectors is None else value.vectors[which]
            told = b"" if vectors is None else state.key
            child.state[row] = NoisyState(read, state.free, state.step + 1, looks, vectors, told)
        return child

    def _ends(self, tokens: Ints, free: Bools) -> bool:
        """Whether an answer is complete: nothing is left to change, or a finished block has its end; then
        what follows is filled."""
        if not free.any():
            return True
        first = int(free.argmax())
        (ends,) = np.nonzero(self.reader.is_end(tokens[:first]))
        if ends.size:
            tokens[ends[0] :] = tokens[ends[0]]
        return bool(ends.size)

    def look_aheads(self, canvas: Canvas, prediction: CanvasPredictions) -> Iterator[CleanText]:
        tokens, logp, value, row = canvas.tokens, canvas.logp, prediction.value, prediction.row
        if value is None:
            yield self.reader.clean(tokens, logp)
            return
        tokens, logp, (asked,) = tokens.copy(), logp.copy(), np.nonzero(row >= 0)
        start, stop, free = self._open_block(canvas.state[asked].tolist())
        place, width = np.arange(self.length), value.top.shape[1]
        inside = free & (place >= start[:, None]) & (place < stop[:, None])
        predicted = (inside if self.blind else free)[:, :width].nonzero()
        rows, source = asked[predicted[0]], row[asked[predicted[0]]]
        tokens[rows, predicted[1]] = value.top[source, predicted[1]]
        logp[rows, predicted[1]] = value.top_logp[source, predicted[1]]
        yield self.reader.clean(tokens, logp)
        if self.temperature > 0:
            of, at = inside.nonzero()
            for draw in range(self.sampled_looks):
                texts, chances = tokens.copy(), logp.copy()
                source, where = row[asked[of]], at - start[of]
                texts[asked[of], at] = value.draws[source, where, draw]
                chances[asked[of], at] = value.draws_logp[source, where, draw]
                yield self.reader.clean(texts, chances)

    def greedy(self) -> UniformDiffusion:
        """The likeliest token everywhere; how sure the model is, is then of its plain distribution."""
        return replace(self, temperature=0.0)

    def remask(
        self, canvas: Canvas, where: Bools, rng: np.random.Generator
    ) -> tuple[UniformDiffusion, Canvas]:
        """Noise in these positions. All of their blocks may change again; of the steps as large a share
        is left as of the tokens."""
        movable = np.ones(self.length, np.bool_) if self.reader.given is None else self.reader.holes
        where = where & movable
        tokens, logp = np.where(where, HIDDEN, canvas.tokens), np.where(where, 0.0, canvas.logp)
        free, steps = np.zeros_like(where), []
        for row, noisy in enumerate(where):
            share = 0.0
            for start, stop in Blocks(self.block).all(self.length):
                if noisy[start:stop].any():
                    free[row, start:stop] = movable[start:stop]
                    share = max(share, noisy[start:stop].sum() / movable[start:stop].sum())
            left = max(2, int(np.ceil(self.steps_per_block * share)))
            steps.append(max(0, self.steps_per_block - left))
        return self, self._opened(tokens, free, rng, steps, logp)


def within(entropy: Floats, bound: float) -> Bools:
    """The positions of least entropy, as long as the entropies of those before them add up to no more
    than the bound; the surest one always is."""
    order = np.argsort(entropy, kind="stable")
    ordered = entropy[order]
    chosen = np.zeros(entropy.size, np.bool_)
    chosen[order[np.cumsum(ordered) - ordered <= bound]] = True
    return chosen


def uniform(model: Model, job: Job, prompt: Ints) -> UniformDiffusion:
    """The process of a job for a model of uniform noise."""
    method, decoding, denoiser = job.settings.search, job.settings.decoding, model.denoiser
    for_masks = {
        "guidance": decoding.guidance,
        "position_temperature": decoding.position_temperature,
        "end_tokens": "last" if decoding.end_tokens == "last" else "",
    }
    if unfit := [f"{name}={value!r}" for name, value in for_masks.items() if value]:
        raise SettingsError(
            f"{', '.join(unfit)} is for masked diffusion, and {model.name} denoises uniform noise; "
            "leave it out"
        )
    block = denoiser.noise.canvas or decoding.block_length
    blocks = -(-decoding.gen_length // block)
    ends = np.array(sorted(model.end_ids), np.int64)
    suppressed = tuple(ends.tolist()) if decoding.end_tokens == "never" else ()
    length, answer, given = blocks * block, decoding.gen_length, None
    if job.infill is not None:
        check_support(model, decoding)
        given = template_row(job.infill, HIDDEN, model, prompt.size)
        whole = denoiser.reads_prefix or decoding.block_length == decoding.gen_length
        length = answer = given.size
        block, suppressed, ends = length if whole else block, tuple(ends.tolist()), ends[:0]
        blocks = -(-length // block)
    return UniformDiffusion(
        prompt=prompt,
        reader=TextReader(model.tokenizer.decode, HIDDEN, ends, given, answer),
        length=length,
        block=block,
        steps_per_block=max(1, decoding.steps // blocks),
        vocabulary=denoiser.text_vocabulary or denoiser.vocabulary,
        temperature=decoding.temperature,
        noise=denoiser.noise,
        sampling=Sampling(decoding.top_k, decoding.top_p, tempered=True, suppressed=suppressed),
        draws=max(method.draws, method.looks - 1),
        label=job.label,
        sampled_looks=method.looks - 1,
        blind=denoiser.reads_prefix,
    )
