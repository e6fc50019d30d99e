"""Re-masking: part of a finished text is hidden again and denoised anew, by the same loop.

What is hidden is a name in `HIDINGS`; which texts go on is a name in `KEEP_RULES`. With positions chosen
without looking at the text, and `metropolis`, the moves leave p·exp(λ·score) invariant
(docs/method.md); the other choices give that up to find good texts sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.search.particles import Bools, Canvas, Floats, Ints, Process, distinct
from s3dlm.search.resample import RESAMPLERS
from s3dlm.verifier.base import Spans

if TYPE_CHECKING:
    from s3dlm.settings import Settings


@dataclass(frozen=True, slots=True)
class Text:
    """One finished text that is about to be hidden in part."""

    tokens: Ints  # (length,)
    logp: Floats  # (length,) how probable each token was when it was revealed
    movable: Bools  # (length,) what may be hidden
    doubted: Bools  # (length,) what of it the verifier doubts


def _all(text: Text, share: float, rng: np.random.Generator) -> Bools:
    return text.movable


def _random(text: Text, share: float, rng: np.random.Generator) -> Bools:
    """So many positions, any of them."""
    return _some(text.movable, rng.random(text.tokens.size), share, rng)


def _unsure(text: Text, share: float, rng: np.random.Generator) -> Bools:
    """So many positions, the least sure ones first."""
    return _some(text.movable, text.logp, share, rng)


def _doubted(text: Text, share: float, rng: np.random.Generator) -> Bools:
    """Some of what the verifier doubts: with all of it hidden, a part that was right is lost too."""
    where = text.doubted
    if not where.any():
        return where
    most = min(int(where.sum()), _most(int(text.movable.sum()), share))
    return _first(where, rng.random(where.size), int(rng.integers(1, most + 1)))


def _rest(text: Text, share: float, rng: np.random.Generator) -> Bools:
    """All from the first place that the verifier doubts."""
    return text.movable & (np.cumsum(text.doubted) > 0)


def _earlier(text: Text, share: float, rng: np.random.Generator) -> Bools:
    """As `rest`, or every other time from a place before it, since what went wrong may stand there."""
    rest = _rest(text, share, rng)
    if rng.random() < 0.5 or not rest.any():
        return rest
    first = rng.integers(int(rest.argmax()) + 1)
    return text.movable & (np.arange(rest.size) >= first)


HIDINGS: dict[str, Callable[[Text, float, np.random.Generator], Bools]] = {
    "all": _all,
    "rest": _rest,
    "earlier": _earlier,
    "doubted": _doubted,
    "unsure": _unsure,
    "random": _random,
}
BY_DOUBT = frozenset({"rest", "earlier", "doubted"})  # these ask the verifier


def _some(movable: Bools, order: Floats, share: float, rng: np.random.Generator) -> Bools:
    """From one to twice the share of what may be hidden, the lowest first."""
    most = _most(int(movable.sum()), share)
    return _first(movable, order, int(rng.integers(1, most + 1)))


def _most(size: int, share: float) -> int:
    """The most of so many positions that are hidden if it is this share on average."""
    return max(1, min(size, round(2 * share * size)))


def _first(movable: Bools, order: Floats, count: int) -> Bools:
    """So many of what may be hidden, the lowest first."""
    first = np.argsort(np.where(movable, order, np.inf), kind="stable")[:count]
    chosen = np.zeros_like(movable)
    chosen[first] = True
    return chosen & movable


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
        text = Text(tokens, canvas.logp[row], *process.remaskable(tokens, spans[row]))
        where[row] = HIDINGS[settings.remask](text, settings.remask_fraction, rng)
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
    offspring = RESAMPLERS["ssp"](lam * score, size, rng)
    return np.repeat(first, offspring)


KEEP_RULES: dict[str, Callable[[Moved, int, float, np.random.Generator], Ints]] = {
    "replace": _replace,
    "metropolis": _metropolis,
    "resample": _resample,
}
SCORED_KEEPS = frozenset({"metropolis", "resample"})
