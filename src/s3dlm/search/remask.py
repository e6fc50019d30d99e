"""Re-masking: part of a finished text is masked and denoised anew.

What is masked is a rule in the registry `REMASKINGS`, to which `register_remasking` and the entry-point
group `s3dlm.remaskings` add.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from s3dlm.inputs import Registry
from s3dlm.search.particles import Bools, Canvas, Floats, Ints, Process
from s3dlm.verifier.base import Spans

LIKELY = 0.5  # a token that is more doubtful than this counts as doubted


@dataclass(frozen=True, slots=True)
class Text:
    """One finished text that is about to be masked in part; arrays are (length,)."""

    logp: Floats  # how probable each token was when it was revealed
    movable: Bools  # what may be masked
    doubt: Floats  # how doubtful each token is to the verifier, from 0 to 1; 0 where none may be masked

    @property
    def doubted(self) -> Bools:
        """What is more likely wrong than right."""
        return np.asarray(self.doubt > LIKELY)

    def most(self, fraction: float) -> int:
        """The most positions that are masked if on average it is this fraction."""
        size = int(self.movable.sum())
        return max(1, min(size, round(2 * fraction * size)))


@dataclass(frozen=True, slots=True)
class Remasking:
    """A rule of what is re-masked.

    Args:
        hide: (text, fraction, rng) → which positions.
        by_doubt: Whether it asks the verifier what it doubts.
    """

    hide: Callable[[Text, float, np.random.Generator], Bools]
    by_doubt: bool = False


def _lowest(where: Bools, order: Floats | Ints, most: int, rng: np.random.Generator) -> Bools:
    """From one to `most` of these positions, the lowest in this order."""
    count = int(rng.integers(1, most + 1))
    chosen = np.zeros_like(where)
    chosen[np.argsort(np.where(where, order, np.inf), kind="stable")[:count]] = True
    return chosen & where


def _random(text: Text, fraction: float, rng: np.random.Generator) -> Bools:
    return _lowest(text.movable, rng.random(text.logp.size), text.most(fraction), rng)


def _unsure(text: Text, fraction: float, rng: np.random.Generator) -> Bools:
    """The least sure positions first."""
    return _lowest(text.movable, text.logp, text.most(fraction), rng)


def _doubted(text: Text, fraction: float, rng: np.random.Generator) -> Bools:
    """Some of what the verifier doubts: with all of it masked, a part that was right is lost too."""
    doubted = text.doubted
    if not doubted.any():
        return doubted
    most = min(int(doubted.sum()), text.most(fraction))
    return _lowest(doubted, rng.random(text.logp.size), most, rng)


def _rest(text: Text, fraction: float, rng: np.random.Generator) -> Bools:
    """All from the first place that the verifier doubts."""
    return text.movable & (np.cumsum(text.doubted) > 0)


def _earlier(text: Text, fraction: float, rng: np.random.Generator) -> Bools:
    """As `rest`, or every other time from a place before it, since what went wrong may stand there."""
    rest = _rest(text, fraction, rng)
    if rng.random() < 0.5 or not rest.any():
        return rest
    first = rng.integers(int(rest.argmax()) + 1)
    return text.movable & (np.arange(rest.size) >= first)


REMASKINGS: Registry[Remasking] = Registry("remask", "s3dlm.remaskings", Remasking)
for _name, _rule in {
    "from_doubt": Remasking(_rest, by_doubt=True),
    "from_doubt_or_earlier": Remasking(_earlier, by_doubt=True),
    "doubted": Remasking(_doubted, by_doubt=True),
    "unsure": Remasking(_unsure),
    "random": Remasking(_random),
}.items():
    REMASKINGS.register(_name, _rule)


def register_remasking(name: str, rule: Remasking, *, replace: bool = False) -> Remasking:
    """Make a rule of what is re-masked known by name, as a value of the setting `remask`."""
    return REMASKINGS.register(name, rule, replace=replace)


def positions(
    process: Process, canvas: Canvas, spans: Sequence[Spans], rule: Remasking, fraction: float,
    rng: np.random.Generator, *, at_least_one: bool,
) -> Bools:  # fmt: skip
    """What is masked of each text.

    Args:
        process: Says what may be masked at all.
        canvas: The texts.
        spans: What the verifier doubts of each.
        rule: What is masked.
        fraction: The mean share of a text that some rules mask.
        rng: The run's random stream.
        at_least_one: Whether unsure tokens are masked where the rule masks nothing: a budget has to be
            spent on something.
    """
    where = np.zeros(canvas.tokens.shape, dtype=np.bool_)
    for row, tokens in enumerate(canvas.tokens):
        movable, doubt = process.reader.remaskable(tokens, spans[row])
        text = Text(canvas.logp[row], movable, doubt)
        where[row] = rule.hide(text, fraction, rng) & movable
        if at_least_one and not where[row].any():
            where[row] = _unsure(text, fraction, rng)
    return where
