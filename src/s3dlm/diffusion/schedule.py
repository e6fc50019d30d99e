"""Which masked positions a step reveals, and how many: a policy ranks them, a reveal rule may count them.

A policy says how eager a position is to be revealed; the most eager ones go first. A schedule
(blocks.py) says how many go, or all go whose sampled token is sure enough, at least one position. Nothing here knows a model or a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.search.particles import Bools, Floats, Ints

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding

POOL = 5  # positions from which the policy of this name takes any
DEFERRED = 1e30  # minus this is less eager than anything else, and still a number


@dataclass(frozen=True, slots=True)
class Draw:
    """Sampled tokens of the open block and what a policy may judge them by; all (children, block)."""

    tokens: Ints
    logp: Floats  # log-probability of the sampled token, plain or as sampled
    masked: Bools  # which positions may be revealed
    margin: Floats | None = None  # probability of the best token minus the second best
    entropy: Floats | None = None  # of the whole distribution, in nats

    def deferring(self, deferred: Bools, mass: Floats) -> Draw:
        """As if the deferred tokens were impossible and the others shared their probability."""
        others = np.log1p(-np.minimum(mass, 1 - 1e-9))
        return Draw(
            self.tokens,
            np.where(deferred, -DEFERRED, np.minimum(self.logp - others, 0.0)),
            self.masked,
            None if self.margin is None else np.where(deferred, -DEFERRED, self.margin),
            None if self.entropy is None else np.where(deferred, DEFERRED, self.entropy),
        )


Policy = Callable[[Draw, np.random.Generator], Floats]


def _margin(draw: Draw, rng: np.random.Generator) -> Floats:
    assert draw.margin is not None
    return draw.margin


def _entropy(draw: Draw, rng: np.random.Generator) -> Floats:
    assert draw.entropy is not None
    return -draw.entropy


def _left_to_right(draw: Draw, rng: np.random.Generator) -> Floats:
    return np.broadcast_to(-np.arange(draw.logp.shape[1], dtype=np.float64), draw.logp.shape)


def _pool(draw: Draw, rng: np.random.Generator) -> Floats:
    """LookUM: any of the surest few, in random order."""
    logp = np.where(draw.masked, draw.logp, -np.inf)
    rank = np.argsort(np.argsort(-logp, axis=1, kind="stable"), axis=1, kind="stable")
    return np.where(rank < POOL, rng.random(logp.shape), draw.logp - 1)


POLICIES: dict[str, Policy] = {
    "low_confidence": lambda draw, rng: draw.logp,
    "random": lambda draw, rng: rng.random(draw.logp.shape),
    "margin": _margin,
    "entropy": _entropy,
    "left_to_right": _left_to_right,
    "pool": _pool,
}


def choose(eagerness: Floats, count: int | Ints, masked: Bools) -> Bools:
    """The `count` most eager masked positions of every row, at least one; ties go to the left.
    The count is one for all rows, or each row has its own."""
    ranked = np.where(masked, -eagerness, np.inf).argsort(axis=1, kind="stable")
    chosen = np.zeros(masked.shape, dtype=np.bool_)
    first = np.arange(masked.shape[1]) < np.maximum(np.atleast_1d(count), 1)[:, None]
    chosen[np.arange(len(ranked))[:, None], ranked] = first
    return chosen & masked


def revealed(
    decoding: Decoding, draw: Draw, deferred: Bools, count: int | Ints, rng: np.random.Generator
) -> Bools:
    """What a step reveals of the open blocks; what is deferred comes after all others.

    Args:
        decoding: The policy and the reveal rule.
        draw: What was sampled.
        deferred: Which of it comes last.
        count: How many positions go by a schedule. Without one, every sampled token that is probable enough
            does, as in Fast-dLLM.
        rng: The search's random stream.
    """
    if decoding.adaptive:
        enough = draw.masked & (np.exp(draw.logp) >= decoding.reveal_threshold)
        return choose(draw.logp, enough.sum(axis=1), draw.masked)
    temperature = decoding.position_temperature
    eagerness = POLICIES[decoding.policy](draw, rng)
    if temperature and decoding.policy == "low_confidence":
        eagerness = np.exp(eagerness)  # Dream draws by probabilities, not by their logarithms
    eagerness = np.where(deferred, -DEFERRED, eagerness)
    if (
        temperature
    ):  # the largest of these are a draw without replacement by softmax(eagerness / temperature)
        eagerness = eagerness / temperature + rng.gumbel(size=eagerness.shape)
    return choose(eagerness, count, draw.masked)
