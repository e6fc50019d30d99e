"""Rounds of samples until the vote is decided (`stop_when="agreed"`).

Adaptive self-consistency (Aggarwal et al. 2023): the vote is decided when the leading answer would
stay ahead of the second with enough probability, whatever is sampled next. Independent trajectories
each have a vote. Particles of one search descend from each other, so each search has one vote, which
its survivors share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from s3dlm.search.resample import normalise
from s3dlm.search.rounds import IDLE, LEAST, ensemble, relay, unrelated
from s3dlm.search.step import AGREED, FINISHED, SPENT, Outcome, Search, Setup, Step

_EXACT = 1000  # votes up to which the probability is summed; from there on it is that of a normal


def ahead(first: float, second: float) -> float:
    """The probability that the leading answer is likelier than the second: that θ > 1/2, where θ is
    Beta(first + 1, second + 1). A part of a leading vote counts for nothing, of another as a whole."""
    lead, other = math.floor(first + 1e-9), math.ceil(second - 1e-9)
    tosses = lead + other + 1
    if tosses > _EXACT:
        return (1 + math.erf((lead - other) / math.sqrt(2 * tosses))) / 2
    return sum(math.comb(tosses, heads) for heads in range(other + 1, tosses + 1)) / (1 << tosses)


def needed(first: float, second: float, decided_at: float) -> int:
    """How many more votes could decide it, if all of them were for the leader."""
    more = 1
    while ahead(first + more, second) < decided_at:
        more += 1
    return more


def until_agreed(setup: Setup, answer: Callable[[str], str | None]) -> Search:
    """The method's trajectories, as many at a time as could decide the vote, until it is decided, all
    are made or the budget is spent; without independent trajectories whole searches, one at a time."""
    settings, make = setup.settings, ensemble(setup)
    alone, budget = settings.row.independent, settings.budget
    most = math.inf if budget is not None else settings.size
    outcomes: list[Outcome] = []
    votes: Counter[str] = Counter()
    made = nfe = idle = 0
    while True:
        (_, first), (_, second) = (*votes.most_common(2), ("", 0.0), ("", 0.0))[:2]
        if ahead(first, second) >= settings.decided_at:
            stopped = AGREED
            break
        left = None if budget is None else budget - nfe
        if made >= most or (left is not None and left < LEAST):
            stopped = FINISHED if left is None else SPENT
            break
        size = settings.size
        if alone:
            size = int(min(needed(first, second, settings.decided_at), size, most - made))
            if made and left is not None:  # as many as are likely to fit into what is left
                size = min(size, max(1, left // math.ceil(nfe / made)))
        sized = settings.adapted(population="particles", particles=size) if alone else settings

        def numbered(step: Step, first: bool, number: int = len(outcomes)) -> Step:
            return replace(unrelated(step, first) if number else step, round=number)

        outcome = yield from relay(make(replace(setup, settings=sized), left), numbered)
        outcomes.append(outcome)
        made, nfe = made + len(outcome), nfe + outcome.nfe
        shares = normalise(outcome.log_weight) * (len(outcome) if alone else 1)
        for tokens, share in zip(outcome.canvas.tokens, shares.tolist(), strict=True):
            if (given := answer(setup.scorer.text(tokens))) is not None:
                votes[given] += share
        idle = 0 if outcome.nfe else idle + 1
        if outcome.stopped != FINISHED or idle == IDLE:
            stopped = outcome.stopped
            break
    return replace(Outcome.join(outcomes), stopped=stopped)
