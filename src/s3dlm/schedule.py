"""When which positions are revealed: LLaDA's semi-autoregressive blocks and the remasking policies.

A schedule is a list with one entry per denoising step: the block that is open and how many of its
masked positions the step reveals. A policy is a function that says how eager a position is to be
revealed; the most eager ones go first. Nothing here knows a model or a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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


def reveals(gen_length: int, steps: int, block_length: int) -> list[Reveal]:
    """The whole schedule; steps go to blocks by their length, and no step reveals nothing."""
    starts = range(0, gen_length, block_length)
    blocks = [(start, min(start + block_length, gen_length)) for start in starts]
    return [
        Reveal(start, stop, count)
        for (start, stop), share in zip(blocks, _steps_per_block(blocks, steps), strict=True)
        for count in _share(stop - start, share)
    ]


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


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampled tokens of the open block and what a policy may judge them by; all (children, block)."""

    tokens: NDArray[np.int64]
    logp: Floats  # log-probability of the sampled token, untempered
    margin: Floats | None = None  # probability of the best token minus the second best
    entropy: Floats | None = None  # of the whole distribution, in nats


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


def choose(eagerness: Floats, masked: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    """The `count` most eager masked positions of every row; ties go to the left."""
    ranked = np.where(masked, -eagerness, np.inf).argsort(axis=1, kind="stable")[:, :count]
    chosen = np.zeros(masked.shape, dtype=np.bool_)
    chosen[np.arange(len(masked))[:, None], ranked] = True
    return chosen & masked
