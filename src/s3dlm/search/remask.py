"""Re-masking: part of a finished text is masked again and denoised anew, by the same loop.

What is masked is a row of `REMASKINGS`, to which `register_remasking` and the entry-point group
`s3dlm.remaskings` add; which texts go on is a name in `ACCEPT_RULES`. With positions chosen without
looking at the text, and `metropolis`, the moves leave p·exp(λ·score) invariant (docs/appendix/methods.md); the
other choices give that up to find good texts sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.errors import check_registration
from s3dlm.inputs import find_entry_points, load_entry_point
from s3dlm.search.particles import Bools, Canvas, Columns, Floats, Ints, Process, Spans, distinct
from s3dlm.search.resample import RESAMPLERS

if TYPE_CHECKING:
    from s3dlm.settings import Settings

GROUP = "s3dlm.remaskings"  # the entry-point group through which other packages add rules
LIKELY = 0.5  # a token that is more doubtful than this counts as doubted


@dataclass(frozen=True, slots=True)
class Text:
    """One finished text that is about to be masked in part; arrays are (length,)."""

    logp: Floats  # how probable each token was when it was revealed
    movable: Bools  # what may be masked
    doubt: Floats  # how doubtful each token is to the verifier, from 0 to 1; 0 where none may be masked
    order: Ints  # by which step each token was revealed

    @property
    def doubted(self) -> Bools:
        """What is more likely wrong than right."""
        return np.asarray(self.doubt > LIKELY)

    def most(self, settings: Settings) -> int:
        """The most positions that are masked if on average it is the fraction `remask_fraction`."""
        size = int(self.movable.sum())
        return max(1, min(size, round(2 * settings.remask_fraction * size)))


@dataclass(frozen=True, slots=True)
class Remasking:
    """A rule of what is masked again, and what it needs."""

    hide: Callable[[Text, Settings, np.random.Generator], Bools]
    by_doubt: bool = False  # it asks the verifier what it doubts
    by_weight: bool = False  # it also reads how much, and `remask_floor`


def _lowest(where: Bools, order: Floats | Ints, most: int, rng: np.random.Generator) -> Bools:
    """From one to `most` of these positions, the lowest in this order."""
    count = int(rng.integers(1, most + 1))
    chosen = np.zeros_like(where)
    chosen[np.argsort(np.where(where, order, np.inf), kind="stable")[:count]] = True
    return chosen & where


def _random(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    return _lowest(text.movable, rng.random(text.logp.size), text.most(settings), rng)


def _unsure(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """The least sure positions first."""
    return _lowest(text.movable, text.logp, text.most(settings), rng)


def _latest(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """Those revealed last first."""
    return _lowest(text.movable, -text.order, text.most(settings), rng)


def _doubted(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """Some of what the verifier doubts: with all of it masked, a part that was right is lost too."""
    doubted = text.doubted
    if not doubted.any():
        return doubted
    most = min(int(doubted.sum()), text.most(settings))
    return _lowest(doubted, rng.random(text.logp.size), most, rng)


def _weighted(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """Each position by itself, as likely as it is doubtful, and with a least probability."""
    chance = np.where(text.movable, np.maximum(text.doubt, settings.remask_floor), 0.0)
    return np.asarray(rng.random(chance.size) < chance)


def _rest(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """All from the first place that the verifier doubts."""
    return text.movable & (np.cumsum(text.doubted) > 0)


def _earlier(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """As `rest`, or every other time from a place before it, since what went wrong may stand there."""
    rest = _rest(text, settings, rng)
    if rng.random() < 0.5 or not rest.any():
        return rest
    first = rng.integers(int(rest.argmax()) + 1)
    return text.movable & (np.arange(rest.size) >= first)


def _since(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """All that was revealed with the first token that the verifier doubts, or after it."""
    if not text.doubted.any():
        return text.doubted
    return np.asarray(text.movable & (text.order >= text.order[text.doubted].min()))


def _sooner(text: Text, settings: Settings, rng: np.random.Generator) -> Bools:
    """As `since`, or every other time from a step before it."""
    since = _since(text, settings, rng)
    if rng.random() < 0.5 or not since.any():
        return since
    steps = np.unique(text.order[text.movable])
    first = rng.choice(steps[steps <= text.order[since].min()])
    return np.asarray(text.movable & (text.order >= first))


REMASKINGS: dict[str, Remasking] = {
    "all": Remasking(lambda text, settings, rng: text.movable),
    "rest": Remasking(_rest, by_doubt=True),
    "earlier": Remasking(_earlier, by_doubt=True),
    "since": Remasking(_since, by_doubt=True),
    "sooner": Remasking(_sooner, by_doubt=True),
    "doubted": Remasking(_doubted, by_doubt=True),
    "weighted": Remasking(_weighted, by_doubt=True, by_weight=True),
    "unsure": Remasking(_unsure),
    "latest": Remasking(_latest),
    "random": Remasking(_random),
}


@dataclass(frozen=True, slots=True)
class Rules(Collection[str]):
    """The names of those rules of which something holds, registered ones included."""

    kind: str = ""  # "move": all but the rule that hides everything; else a field of a rule

    def wanted(self, name: str, rule: Remasking) -> bool:
        return name != "all" if self.kind == "move" else not self.kind or getattr(rule, self.kind)

    def __iter__(self) -> Iterator[str]:
        return (name for name, rule in REMASKINGS.items() if self.wanted(name, rule))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        rule = REMASKINGS.get(name) or all_remaskings().get(name)
        return rule is not None and self.wanted(name, rule)


RULES = Rules()
MOVES = Rules("move")
BY_DOUBT = Rules("by_doubt")  # these ask the verifier
BY_WEIGHT = Rules("by_weight")


def register_remasking(name: str, rule: Remasking, *, replace: bool = False) -> Remasking:
    """Make a rule of what is masked again known by name, as a value of the setting `remask`."""
    check_registration("remasking", name, rule, Remasking, REMASKINGS, replace)
    REMASKINGS[name] = rule
    return rule


def all_remaskings() -> dict[str, Remasking]:
    """The built-in rules, those registered, and those that installed packages offer."""
    for name, entry in find_entry_points(GROUP).items():
        if name not in REMASKINGS:
            register_remasking(name, load_entry_point(entry, Remasking))
    return REMASKINGS


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
        movable, doubt = process.remaskable(tokens, spans[row])
        text = Text(canvas.logp[row], movable, doubt, canvas.order[row])
        where[row] = REMASKINGS[settings.remask].hide(text, settings, rng) & movable
        if settings.budget is not None and not where[row].any():
            where[row] = _unsure(text, settings, rng)
    return where


@dataclass(frozen=True, slots=True)
class Standing(Columns):
    """What is remembered of each text from round to round."""

    seat: Ints  # where it stood in the last step; −1: it was not there
    best: Floats  # the highest score that its particle has had since it began on an empty canvas
    stale: Ints  # rounds since then that did not raise it

    @classmethod
    def begin(cls, size: int) -> Standing:
        return cls(np.arange(size), np.full(size, -np.inf), np.zeros(size, np.int64))

    def after(self, score: Floats, fresh: Bools) -> Standing:
        """The same with the scores that a round has led to; some of the particles began afresh."""
        best = np.where(fresh, -np.inf, self.best)
        stale = np.where(score > best, 0, self.stale + 1)
        return Standing(np.arange(score.size), np.fmax(best, score), stale)


@dataclass(frozen=True, slots=True)
class Moved:
    """Texts before and after a move, and who moved to become whom."""

    before: Floats  # (texts,) scores
    after: Floats  # (moved,) scores
    origin: Ints  # (moved,) index into those before
    tokens: Ints  # (texts + moved, length)
    left: Bools  # (moved,) whether the text before is given up, whatever the new one is


def _replace(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> Ints:
    """Those that moved, whatever they became."""
    return moved.before.size + np.arange(moved.after.size)


def _metropolis(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> Ints:
    """A text that moved is kept with probability min(1, exp(λ·gain)), else the one before it."""
    gain = lam * (moved.after - moved.before[moved.origin])
    accepted = (np.log(rng.random(gain.size)) < gain) | moved.left
    return np.where(accepted, moved.before.size + np.arange(gain.size), moved.origin)


def _resample(moved: Moved, size: int, lam: float, rng: np.random.Generator) -> Ints:
    """Drawn from all different texts, before and after, by exp(λ·score)."""
    first, _ = distinct(moved.tokens)
    first = first[~np.isin(first, moved.origin[moved.left])]
    score = np.concatenate([moved.before, moved.after])[first]
    return np.repeat(first, RESAMPLERS["ssp"](lam * score, size, rng))


ACCEPT_RULES: dict[str, Callable[[Moved, int, float, np.random.Generator], Ints]] = {
    "replace": _replace,
    "metropolis": _metropolis,
    "resample": _resample,
}
BY_SCORE = frozenset({"metropolis", "resample"})
