"""A method from its first text to its last: one search, or rounds of them until something says stop.

With a budget the first round is one greedy answer, where there is a verifier to judge it. Each later
round is the method's own search, begun on empty canvases or on finished texts of which a part is
hidden again. It ends when the verifier is satisfied, when the budget is spent or after the given
number of rounds; the best of what was found until then is there at any time.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from s3dlm.search.ensemble import ENSEMBLES, merge_outcomes
from s3dlm.search.loop import Search, relay, search
from s3dlm.search.moves import BY_DOUBT, KEEP_RULES, SCORED_KEEPS, Moved, positions
from s3dlm.search.particles import Ints, Process
from s3dlm.search.score import Scorer
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome, Step

if TYPE_CHECKING:
    from s3dlm.settings import Settings

LEAST = 2  # forward passes below which no round is begun


def run_method(
    process: Process, scorer: Scorer, settings: Settings, rng: np.random.Generator
) -> Search:
    """The whole of a method."""
    if settings.budget is None and not settings.rounds:
        return (yield from ENSEMBLES[settings.row.ensemble](process, scorer, settings, rng))
    population = yield from _first(process, scorer, settings, rng)
    price = math.ceil(population.nfe / len(population.particles))
    seat = np.arange(len(population.particles))  # where each text stood in the last step
    for number in range(1, _most_rounds(settings) + 1):
        population = yield from _judged(population, scorer, settings)
        left = math.inf if settings.budget is None else settings.budget - population.nfe
        if population.stopped != FINISHED or left < LEAST or _undoubted(population, settings):
            break
        sized = _sized(settings, left, price)
        begun = _round(population, process, scorer, sized, rng, left, seat)
        population, seat = yield from relay(begun, partial(replace, round=number))
    return _ended(population, scorer, settings)


def _first(
    process: Process, scorer: Scorer, settings: Settings, rng: np.random.Generator
) -> Generator[Any, Any, Outcome]:
    if settings.budget is None or settings.row.scored == "never":
        return (
            yield from ENSEMBLES[settings.row.ensemble](
                process, scorer, settings, rng, settings.budget
            )
        )
    plain = settings.adapted(
        population="one",
        branches=False,
        weight="none",
        resampling=None,
        ess_threshold=None,
        pruned=False,
        child_sampling="independent",
        scored="every step" if scorer.enough is not None else "at the end",
    )
    return (yield from search(process.greedy(), scorer, plain, rng, settings.budget))


def _most_rounds(settings: Settings) -> int:
    """Rounds after the first."""
    return (settings.rounds or settings.budget or 0) if settings.has_rounds else 0


def _judged(
    population: Outcome, scorer: Scorer, settings: Settings
) -> Generator[Any, Any, Outcome]:
    """The population with the scores that a move needs, and whether they are enough."""
    moves = settings.remask in BY_DOUBT or (
        settings.remask != "all" and settings.accept in SCORED_KEEPS
    )
    if moves and np.isnan(population.scores.total).any():
        scores = yield from scorer.ask(population.clean, "a move")
        particles = replace(population.particles, score=scores.total)
        population = replace(population, scores=scores, particles=particles)
    if scorer.satisfied(population.scores).any():
        return replace(population, stopped=SATISFIED)
    return population


def _undoubted(population: Outcome, settings: Settings) -> bool:
    """Whether a fixed number of rounds, meant to mend what the verifier doubts, has no more to do."""
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
) -> Generator[Any, Any, tuple[Outcome, Ints]]:
    """The population after one more search, and where each of it stood in the search's last step."""
    limit = None if math.isinf(left) else int(left)
    before = len(population.particles)
    if settings.remask == "all":
        running = ENSEMBLES[settings.row.ensemble](process, scorer, settings, rng, limit)
        again, _ = yield from _from_seats(running, np.full(settings.size, -1))
        kept = np.arange(before + len(again.particles))
    else:
        origin = np.arange(settings.size) % before
        canvas = population.particles.canvas.take(origin)
        spans = [population.scores.spans[one] for one in origin.tolist()]
        always = settings.budget is not None  # what is left of it has to be spent on something
        where = positions(
            process, canvas, spans, settings.remask, settings.remask_fraction, rng, always=always
        )
        seats_before = seat[origin]
        if settings.restart_fraction:
            empty = rng.random(settings.size) < settings.restart_fraction
            where[empty], seats_before[empty] = True, -1
        resumed, start = process.remask(canvas, where)
        same_size = settings.adapted(population="particles", particles=settings.size, pruned=False)
        running = search(resumed, scorer, same_size, rng, limit, start=start)
        again, start_of = yield from _from_seats(running, seats_before)
        kept = origin
        if again.stopped != SATISFIED:
            kept = yield from _kept(population, again, origin[start_of], settings, scorer, rng)
    if again.stopped == SATISFIED:  # its one text is the answer
        kept = before + np.arange(len(again.particles))
    both = merge_outcomes([population, again])
    seats = np.concatenate([np.full(before, -1), np.arange(len(again.particles))])
    return replace(both.take(kept), stopped=again.stopped), seats[kept]


def _kept(
    population: Outcome,
    again: Outcome,
    origin: Ints,
    settings: Settings,
    scorer: Scorer,
    rng: np.random.Generator,
) -> Generator[Any, Any, Ints]:
    """Which texts go on, among those before and those after the move."""
    again = yield from _judged(again, scorer, settings)
    moved = Moved(
        population.scores.total,
        again.scores.total,
        origin,
        np.concatenate([population.particles.canvas.tokens, again.particles.canvas.tokens]),
    )
    return KEEP_RULES[settings.accept](moved, settings.size, settings.lam, rng)


def _from_seats(running: Search, seat: Ints) -> Generator[Any, Any, tuple[Outcome, Ints]]:
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


def _ended(population: Outcome, scorer: Scorer, settings: Settings) -> Outcome:
    if scorer.satisfied(population.scores).any():
        return replace(population, stopped=SATISFIED)
    if population.stopped != FINISHED or settings.budget is None or not _most_rounds(settings):
        return population
    spent = settings.budget - population.nfe < LEAST  # else it has made all its rounds
    return replace(population, stopped=SPENT) if spent else population
