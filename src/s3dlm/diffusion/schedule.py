"""When which positions are revealed: LLaDA's semi-autoregressive blocks, or as many as are sure.

A schedule is a list with one entry per denoising step: the block that is open and how many of its
masked positions the step reveals, in equal shares (LLaDA) or in shares of what is left (Dream). A policy is a function that says how eager a position is to be
revealed; the most eager ones go first. A reveal rule needs no schedule: it looks at what was sampled
and reveals all that is sure enough, at least one position. Nothing here knows a model or a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


ENDLESS = 1 << 40  # longer than any canvas


@dataclass(frozen=True, slots=True)
class Blocks:
    """Where the blocks of a canvas lie. In a block-causal model they are parts of the model's own
    blocks, which count from the start of the row, so the prompt takes some positions of the first."""

    size: int
    whole: int = ENDLESS  # the model's own block
    taken: int = 0  # positions of the first of these that belong to the prompt

    def bounds(self, position: Ints, length: int) -> tuple[Ints, Ints]:
        """Where the block of each position begins and ends."""
        inside = (position + self.taken) % self.whole
        begin = position - inside
        start = begin + inside // self.size * self.size
        stop = np.minimum(start + self.size, begin + self.whole)
        return np.maximum(start, 0), np.minimum(stop, length)

    def whole_end(self, position: Ints, length: int) -> Ints:
        """Where the model's own block of each position ends."""
        end: Ints = position - (position + self.taken) % self.whole + self.whole
        return end.clip(max=length)

    def number(self, position: int) -> int:
        """How many blocks end at or before a position."""
        return self._index(position + self.taken) - self._index(self.taken)

    def _index(self, place: int) -> int:
        return place // self.whole * -(-self.whole // self.size) + place % self.whole // self.size

    def all(self, length: int) -> list[tuple[int, int]]:
        """Every block of a canvas: where it begins and ends."""
        found, start = [], 0
        while start < length:
            _, stop = self.bounds(np.array([start]), length)
            found.append((start, int(stop[0])))
            start = found[-1][1]
        return found


@dataclass(frozen=True, slots=True)
class Reveal:
    """What one denoising step may touch."""

    start: int  # first position of the open block
    stop: int  # one past its last
    count: int  # masked positions revealed


def _share(total: int, parts: int) -> list[int]:
    """`total` in whole parts as equal as can be, the larger ones first."""
    small, larger = divmod(total, parts)
    return [small + 1] * larger + [small] * (parts - larger)


LAST_TIME = 1e-3  # Dream's times run from 1 to this


def dream_counts(length: int, steps: int, last_time: float = LAST_TIME) -> list[int]:
    """Dream: a step reveals a share of what is still masked, rounded down; the last one the rest.

    Steps that reveal nothing are left out: a forward pass on an unchanged row gives nothing new.
    """
    times = np.linspace(1.0, last_time, steps + 1, dtype=np.float32)
    counts, masked = [], length
    for step in range(steps):
        share = np.float32(1.0) - times[step + 1] / times[step]
        count = masked if step == steps - 1 else int(np.float32(masked) * share)
        counts.append(count)
        masked -= count
    return [count for count in counts if count]


SCHEDULE = "schedule"
COUNTS: dict[str, Callable[[int, int], list[int]]] = {SCHEDULE: _share, "dream": dream_counts}


def reveals(gen_length: int, steps: int, block_length: int, counts: str = SCHEDULE) -> list[Reveal]:
    """The whole schedule; steps go to blocks by their length, and no step reveals nothing."""
    starts = range(0, gen_length, block_length)
    blocks = [(start, min(start + block_length, gen_length)) for start in starts]
    return [
        Reveal(start, stop, count)
        for (start, stop), share in zip(blocks, _steps_per_block(blocks, steps), strict=True)
        for count in COUNTS[counts](stop - start, share)
    ]


def block_reveals(
    length: int, steps: int, blocks: Blocks, counts: str = SCHEDULE, *, first_alone: bool = False
) -> list[Reveal]:
    """The schedule of a block-causal model: `steps` for every full block, and a block of which the
    prompt takes a part is filled at the same pace. With `first_alone`, the first position of each of
    the model's own blocks has a step of its own."""
    found = []
    for start, stop in blocks.all(length):
        alone = first_alone and (start + blocks.taken) % blocks.whole == 0
        found += [Reveal(start, stop, 1)] * alone
        left = stop - start - alone
        for count in COUNTS[counts](min(blocks.size, length), steps):
            if left > 0:
                found.append(Reveal(start, stop, min(count, left)))
                left -= count
    return found


def hole_reveals(
    masked: NDArray[np.bool_], blocks: Blocks, pace: int, counts: str = SCHEDULE
) -> list[Reveal]:
    """The schedule that fills the masked positions of a text, at most `pace` of them per step; a block
    without any takes no step."""
    found = []
    for start, stop in blocks.all(masked.size):
        left = int(masked[start:stop].sum())
        if left:
            found += [Reveal(start, stop, one) for one in COUNTS[counts](left, -(-left // pace))]
    return found


def _steps_per_block(blocks: list[tuple[int, int]], steps: int) -> list[int]:
    """Equal shares where all blocks can use them; a short last block takes what it can fill."""
    shares = _share(steps, len(blocks))
    last = blocks[-1][1] - blocks[-1][0]
    if len(blocks) > 1 and shares[-1] > last:
        shares = [*_share(steps - last, len(blocks) - 1), last]
    return shares


def block_lengths(gen_length: int, steps: int) -> list[int]:
    """The block lengths an ensemble over schedules uses: HEX's five, from L/32 to L/2."""
    lengths = {max(1, gen_length // share) for share in (32, 16, 8, 4, 2)}
    fitting = [length for length in sorted(lengths) if -(-gen_length // length) <= steps]
    return fitting or [gen_length]


MOST_EDITS = 16  # rounds of editing, after a block is full
WAITS = 1e30  # less eager than anything else, and still a number


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampled tokens of the open block and what a policy may judge them by; all (children, block)."""

    tokens: NDArray[np.int64]
    logp: Floats  # log-probability of the sampled token, plain or as sampled
    margin: Floats | None = None  # probability of the best token minus the second best
    entropy: Floats | None = None  # of the whole distribution, in nats

    def last(self, waits: NDArray[np.bool_], mass: Floats) -> Draw:
        """As if the tokens that wait were impossible and the others shared their probability."""
        others = np.log1p(-np.minimum(mass, 1 - 1e-9))
        return Draw(
            self.tokens,
            np.where(waits, -WAITS, np.minimum(self.logp - others, 0.0)),
            None if self.margin is None else np.where(waits, -WAITS, self.margin),
            None if self.entropy is None else np.where(waits, WAITS, self.entropy),
        )


Policy = Callable[[Draw, np.random.Generator], Floats]


def _low_confidence(draw: Draw, rng: np.random.Generator) -> Floats:
    return draw.logp


def _random(draw: Draw, rng: np.random.Generator) -> Floats:
    return rng.random(draw.logp.shape)


def _margin(draw: Draw, rng: np.random.Generator) -> Floats:
    assert draw.margin is not None
    return draw.margin


def _entropy(draw: Draw, rng: np.random.Generator) -> Floats:
    assert draw.entropy is not None
    return -draw.entropy


def _left_to_right(draw: Draw, rng: np.random.Generator) -> Floats:
    return np.broadcast_to(-np.arange(draw.logp.shape[1], dtype=np.float64), draw.logp.shape)


POLICIES: dict[str, Policy] = {
    "low_confidence": _low_confidence,
    "random": _random,
    "margin": _margin,
    "entropy": _entropy,
    "left_to_right": _left_to_right,
}


def choose(
    eagerness: Floats, masked: NDArray[np.bool_], count: int | NDArray[np.int64]
) -> NDArray[np.bool_]:
    """The `count` most eager masked positions of every row, at least one; ties go to the left.
    The count is one for all rows, or each row has its own."""
    ranked = np.where(masked, -eagerness, np.inf).argsort(axis=1, kind="stable")
    chosen = np.zeros(masked.shape, dtype=np.bool_)
    first = np.arange(masked.shape[1]) < np.maximum(np.atleast_1d(count), 1)[:, None]
    np.put_along_axis(chosen, ranked, np.broadcast_to(first, ranked.shape), axis=1)
    return chosen & masked


def draw_positions(
    eagerness: Floats,
    masked: NDArray[np.bool_],
    count: int,
    temperature: float,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """`count` masked positions of every row, at least one, drawn without replacement from
    softmax(eagerness / temperature); `alg_temp` in Dream's code."""
    # The largest of log-probability plus Gumbel noise are such a draw.
    return choose(eagerness / temperature + rng.gumbel(size=eagerness.shape), masked, count)


@dataclass(frozen=True, slots=True)
class RevealRule:
    """Which masked positions a step reveals when no schedule says how many."""

    # (draw, masked, the rule's number) → how eager each position is, and how many of each row go
    rank: Callable[[Draw, NDArray[np.bool_], float], tuple[Floats, NDArray[np.int64]]]
    setting: str  # that holds the rule's number
    needs_statistics: bool = False


def _threshold(
    draw: Draw, masked: NDArray[np.bool_], least: float
) -> tuple[Floats, NDArray[np.int64]]:
    """Fast-dLLM: every sampled token of at least this probability."""
    sure = masked & (np.exp(draw.logp) >= least)
    return draw.logp, sure.sum(axis=1)


def _factor(
    draw: Draw, masked: NDArray[np.bool_], factor: float
) -> tuple[Floats, NDArray[np.int64]]:
    """Fast-dLLM: the most n whose n-th most probable token has at least 1 − factor/(n + 1)."""
    falling = -np.sort(-np.where(masked, np.exp(draw.logp), -np.inf), axis=1)
    count = np.arange(1, masked.shape[1] + 1)
    return draw.logp, (count * (falling >= 1 - factor / (count + 1))).max(axis=1)


def _entropy_bound(
    draw: Draw, masked: NDArray[np.bool_], bound: float
) -> tuple[Floats, NDArray[np.int64]]:
    """Entropy-bounded unmasking (Ben-Hamu et al. 2025): the most positions, in order of entropy,
    whose entropies without the largest add up to at most the bound."""
    assert draw.entropy is not None
    rising = np.sort(np.where(masked, draw.entropy, np.inf), axis=1)
    before = np.cumsum(np.where(np.isinf(rising), 0.0, rising), axis=1)
    before = np.concatenate([np.zeros((len(rising), 1)), before[:, :-1]], axis=1)
    return -draw.entropy, (before <= bound).sum(axis=1)


REVEAL_RULES: dict[str, RevealRule] = {
    "threshold": RevealRule(_threshold, "reveal_threshold"),
    "factor": RevealRule(_factor, "reveal_factor"),
    "entropy": RevealRule(_entropy_bound, "reveal_bound", needs_statistics=True),
}
REVEALS = (*COUNTS, *REVEAL_RULES)  # the counts are fixed in advance, or follow from a rule
