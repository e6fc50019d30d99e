"""Several searches for one prompt, of which one gives the answer: a hole of several lengths.

They run one after the other, each with its share of the budget, and stop at the first that satisfies
the verifier. The best is the one with the highest score; where nothing is scored, and among equal
scores, the one whose text is most likely: the lowest mean −log p per token that was filled in.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s3dlm.search.loop import Search, relay
from s3dlm.search.particles import Process
from s3dlm.search.rounds import run_method
from s3dlm.search.score import Scorer
from s3dlm.search.step import SATISFIED, Outcome, Step

if TYPE_CHECKING:
    from s3dlm.settings import Settings


def run_trials(
    processes: Sequence[Process], scorer: Scorer, settings: Settings, rng: np.random.Generator
) -> Search:
    """The method on each process; the outcome of the best, with the cost of all."""
    if len(processes) == 1:
        return (yield from run_method(processes[0], scorer, settings, rng))
    outcomes: list[Outcome] = []
    nfe = round_ = 0
    for number, process in enumerate(processes):
        sized = settings
        if settings.budget is not None:
            share = (settings.budget - nfe) // (len(processes) - number)
            sized = settings.adapted(budget=share)
        running = run_method(process, scorer, sized, rng)
        outcome, round_ = yield from _numbered(running, round_, fresh=number > 0)
        outcomes.append(replace(outcome, trial=number))
        nfe += outcome.nfe
        if outcome.stopped == SATISFIED:
            break
    best = max(outcomes, key=lambda one: _worth(one, processes[one.trial]))
    return replace(best, nfe=nfe, nfe_logical=sum(one.nfe_logical for one in outcomes))


def _worth(outcome: Outcome, process: Process) -> tuple[float, float]:
    score, nll = outcome.scores.total, process.nll(outcome.particles.canvas)
    if np.isnan(score).all():
        return 0.0, -float(nll.min())
    top = float(np.nanmax(score))
    return top, -float(nll[score == top].min())


def _numbered(
    running: Search, first: int, *, fresh: bool
) -> Generator[Any, Any, tuple[Outcome, int]]:
    """A search whose rounds count from `first`; a fresh one descends from no step before it."""
    round_ = first

    def numbered(step: Step) -> Step:
        nonlocal fresh, round_
        parent = np.full_like(step.parent, -1) if fresh else step.parent
        fresh, round_ = False, step.round + first
        return replace(step, parent=parent, round=round_)

    outcome = yield from relay(running, numbered)
    return outcome, round_ + 1
