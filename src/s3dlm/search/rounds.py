"""A method from its first text to its last: one search, or rounds of them until something says stop.

With a budget the first round is one greedy answer, where there is a verifier to judge it. Each later
round is the method's own search, begun on empty canvases or on finished texts of which a part is
masked again. It ends when the verifier is satisfied, when the budget is spent or after the given
number of rounds; the best of what was found until then is there at any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.search.ensembles import ENSEMBLES, bounded, one_search, relay, unrelated
from s3dlm.search.loop import search
from s3dlm.search.moves import BY_DOUBT, KEEP_RULES, SCORED_KEEPS, Moved, positions
from s3dlm.search.particles import Ints, Process
from s3dlm.search.score import Scorer
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome, Search, Searching, Step

if TYPE_CHECKING:
    from s3dlm.settings import Settings

LEAST = 2  # forward passes below which no round is begun


def run_rounds(
    process: Process, scorer: Scorer, settings: Settings, rng: np.random.Generator
) -> Search:
    """The whole of a method."""
    ensemble, budget = ENSEMBLES[settings.row.ensemble], settings.budget
    if budget is None and not settings.rounds:
        return (yield from ensemble(process, scorer, settings, rng))
    if budget is None or settings.row.scored == "never":
        population = yield from ensemble(process, scorer, settings, rng, budget)
    else:
        greedy = settings.adapted(
            population="one",
            branches=False,
            weight="none",
            resampling=None,
            ess_threshold=None,
            pruned=False,
            child_sampling="independent",
            scored="every step" if scorer.satisfied_at is not None else "at the end",
        )
        population = yield from one_search(process.greedy(), scorer, greedy, rng, budget)
    price = math.ceil(population.nfe / len(population))
    seat = np.arange(len(population))  # where each text stood in the last step
    most = (settings.rounds or budget or 0) if settings.has_rounds else 0
    for number in range(1, most + 1):
        population = yield from _judged(population, scorer, settings)
        left = math.inf if budget is None else budget - population.nfe
        if population.stopped != FINISHED or left < LEAST or _nothing_to_mend(population, settings):
            break
        begun = _round(population, process, scorer, _sized(settings, left, price), rng, left, seat)
        population, seat = yield from relay(begun, partial(replace, round=number))
    if scorer.satisfied(population.scores.total, population.scores.spans).any():
        return replace(population, stopped=SATISFIED)
    spent = budget is not None and budget - population.nfe < LEAST  # else it made all its rounds
    if most and spent and population.stopped == FINISHED:
        return replace(population, stopped=SPENT)
    return population


def _judged(population: Outcome, scorer: Scorer, settings: Settings) -> Search:
    """The population with the scores that a move needs, and whether they are enough."""
    by_score = settings.remask != "all" and settings.accept in SCORED_KEEPS
    scores = population.scores
    if (settings.remask in BY_DOUBT or by_score) and np.isnan(scores.total).any():
        scores = yield from scorer.score(population.clean, "a move")
    satisfied = scorer.satisfied(scores.total, scores.spans).any()
    return replace(
        population, scores=scores, stopped=SATISFIED if satisfied else population.stopped
    )


def _nothing_to_mend(population: Outcome, settings: Settings) -> bool:
    """Whether a fixed number of rounds, meant to mend what looks wrong, has no more to do."""
    mends = settings.budget is None and settings.remask in BY_DOUBT
    return mends and not any(len(spans) for spans in population.scores.spans)


def _sized(settings: Settings, left: float, price: int) -> Settings:
    """The method with as many trajectories as are likely to fit into what is left."""
    trajectories = max(1, int(min(left, 1e9)) // price)
    if settings.size * settings.children <= trajectories:
        return settings
    size = max(1, trajectories // settings.children)
    return settings.adapted(population="particles", particles=size, pruned=False)


def _round(
    population: Outcome,
    process: Process,
    scorer: Scorer,
    settings: Settings,
    rng: np.random.Generator,
    left: float,
    seat: Ints,
) -> Searching[tuple[Outcome, Ints]]:
    """The population after one more search, and where each of it stood in the search's last step."""
    limit = None if math.isinf(left) else int(left)
    before = len(population)
    if settings.remask == "all":
        running = ENSEMBLES[settings.row.ensemble](process, scorer, settings, rng, limit)
        again, _ = yield from _from_seats(running, np.full(settings.size, -1))
        index = np.arange(before + len(again))
    else:
        origin = np.arange(settings.size) % before
        canvas = population.canvas.take(origin)
        spans = [population.scores.spans[row] for row in origin.tolist()]
        where = positions(process, canvas, spans, settings, rng)
        seats_before = seat[origin]
        if settings.restart_fraction:
            empty = rng.random(settings.size) < settings.restart_fraction
            where[empty], seats_before[empty] = True, -1
        resumed, start = process.remask(canvas, where)
        size = settings.size
        same_size = settings.adapted(population="particles", particles=size, pruned=False)
        running = search(resumed, scorer, same_size, rng, start=start)
        running = bounded(running, resumed, scorer, same_size, limit)
        again, start_of = yield from _from_seats(running, seats_before)
        if again.stopped != SATISFIED:
            judged = yield from _judged(again, scorer, settings)
            moved = Moved(
                population.scores.total,
                judged.scores.total,
                origin[start_of],
                np.concatenate([population.canvas.tokens, again.canvas.tokens]),
            )
            index = KEEP_RULES[settings.accept](moved, settings.size, settings.lam, rng)
    if again.stopped == SATISFIED:  # its one text is the answer
        index = before + np.arange(len(again))
    both = Outcome.join([population, again])
    seats = np.concatenate([np.full(before, -1), np.arange(len(again))])
    return replace(both.take(index), stopped=again.stopped), seats[index]


def _from_seats(running: Search, seat: Ints) -> Searching[tuple[Outcome, Ints]]:
    """The search, whose first step names its parents by their places in the step before, and from
    which of its starts each of its last particles descends."""
    start_of, first = np.arange(seat.size), True

    def named(step: Step) -> Step:
        nonlocal start_of, first
        start_of = start_of[step.parent[step.survivor]]
        parent, first = seat[step.parent] if first else step.parent, False
        return replace(step, parent=parent)

    outcome = yield from relay(running, named)
    return outcome, start_of


def run_trials(
    processes: Sequence[Process], scorer: Scorer, settings: Settings, rng: np.random.Generator
) -> Search:
    """The method on each process, one after the other, each with its share of the budget, until the
    verifier is satisfied; the outcome of the best, with the cost of all. The best has the highest
    score; where nothing is scored, and among equal scores, the most likely text: the lowest mean
    −log p per token that was filled in."""
    if len(processes) == 1:
        return (yield from run_rounds(processes[0], scorer, settings, rng))
    outcomes: list[Outcome] = []
    nfe, rounds = 0, [-1]
    for trial, process in enumerate(processes):
        sized = settings
        if settings.budget is not None:
            sized = settings.adapted(budget=(settings.budget - nfe) // (len(processes) - trial))
        running = run_rounds(process, scorer, sized, rng)
        renumbered = relay(running, partial(_renumber, rounds, rounds[-1] + 1))
        outcome = yield from unrelated(renumbered) if outcomes else renumbered
        outcomes.append(replace(outcome, trial=trial))
        nfe += outcome.nfe
        if outcome.stopped == SATISFIED:
            break
    best = max(outcomes, key=lambda outcome: _rank(outcome, processes[outcome.trial]))
    return replace(best, nfe=nfe, nfe_logical=sum(outcome.nfe_logical for outcome in outcomes))


def _renumber(rounds: list[int], first: int, step: Step) -> Step:
    rounds.append(step.round + first)
    return replace(step, round=rounds[-1])


def _rank(outcome: Outcome, process: Process) -> tuple[float, float]:
    score, nll = outcome.scores.total, process.nll(outcome.canvas)
    if np.isnan(score).all():
        return 0.0, -float(nll.min())
    top = float(np.nanmax(score))
    return top, -float(nll[score == top].min())
