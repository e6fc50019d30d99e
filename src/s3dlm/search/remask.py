"""Re-masking: part of a finished text is masked again and denoised anew, by the same loop.

What is masked is a name in `REMASKINGS`; which texts go on is a name in `ACCEPT_RULES`. With positions
chosen without looking at the text, and `metropolis`, the moves leave p·exp(λ·score) invariant
(docs/method.md); the other choices give that up to find good texts sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.search.particles import Bools, Canvas, Floats, Ints, Process, Spans, distinct
from s3dlm.search.resample import RESAMPLERS

if TYPE_CHECKING:
    from s3dlm.settings import Settings


@dataclass(frozen=True, slots=True)
class Text:
    """One finished text that is about to be masked in part."""

    logp: Floats  # (length,) how probable each token was when it was revealed
    movable: Bools  # (length,) what may be masked
    doubted: Bools  # (length,) what of it the verifier doubts

    def most(self, fraction: float) -> int:
        """The most positions that are masked if it is this fraction on average."""
        size = int(self.movable.sum())
        return max(1, min(size, round(2 * fraction * size)))


def _lowest(where: Bools, order: Floats, most: int, rng: np.random.Generator) -> Bools:
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
    if not text.doubted.any():
        return text.doubted
    most = min(int(text.doubted.sum()), text.most(fraction))
    return _lowest(text.doubted, rng.random(text.logp.size), most, rng)


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


REMASKINGS: dict[str, Callable[[Text, float, np.random.Generator], Bools]] = {
    "all": lambda text, fraction, rng: text.movable,
    "rest": _rest,
    "earlier": _earlier,
    "doubted": _doubted,
    "unsure": _unsure,
    "random": _random,
}
BY_DOUBT = frozenset({"rest", "earlier", "doubted"})  # these ask the verifier


def positions(
    process: Process,
    canvas: Canvas,
    spans: Sequence[Spans],
    settings: Settings,
    rng: np.random.Generator,
) -> Bools:
    """What is masked again of each text. Where that is nothing and there is a budget, which has to be
    spent on something, unsure tokens are."""
    where = np.zeros(canvas.tokens.shape, dtype=np.bool_)
    for row, tokens in enumerate(canvas.tokens):
        text = Text(canvas.logp[row], *process.remaskable(tokens, spans[row]))
        where[row] = REMASKINGS[settings.remask](text, settings.remask_fraction, rng)
        if settings.budget is not None and not where[row].any():
            where[row] = _unsure(text, settings.remask_fraction, rng)
    return where


@dataclass(frozen=True, slots=True)
class Moved:
    """Texts before and after a move, and who moved to become whom."""

    before: Floats  # (texts,) scores
    after: Floats  # (moved,) scores
    origin: Ints  # (moved,) index into those before
    tokens: Ints  # (texts + moved, length)


def _replace(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> Ints:
    """Those that moved, whatever they became."""
    return moved.before.size + np.arange(moved.after.size)


def _metropolis(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> Ints:
    """A text that moved is kept with probability min(1, exp(λ·gain)), else the one before it."""
    gain = lam * (moved.after - moved.before[moved.origin])
    accepted = np.log(rng.random(gain.size)) < gain
    return np.where(accepted, moved.before.size + np.arange(gain.size), moved.origin)


def _resample(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> Ints:
    """Drawn from all different texts, before and after, by exp(λ·score)."""
    first, _ = distinct(moved.tokens)
    score = np.concatenate([moved.before, moved.after])[first]
    return np.repeat(first, RESAMPLERS["ssp"](lam * score, size, rng))


ACCEPT_RULES: dict[str, Callable[[Moved, int, float, np.random.Generator], Ints]] = {
    "replace": _replace,
    "metropolis": _metropolis,
    "resample": _resample,
}
BY_SCORE = frozenset({"metropolis", "resample"})
