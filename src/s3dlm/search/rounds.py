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

import numpy as np

from s3dlm.search.ensembles import ENSEMBLES, bounded, one_search, relay, unrelated
from s3dlm.search.loop import search
from s3dlm.search.particles import Ints, Process
from s3dlm.search.remask import ACCEPT_RULES, BY_DOUBT, BY_SCORE, Moved, positions
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome, Search, Searching, Setup, Step

LEAST = 2  # forward passes below which no round is begun


def run_rounds(setup: Setup) -> Search:
    """The whole of a method."""
    settings, scorer = setup.settings, setup.scorer
    ensemble, budget = ENSEMBLES[settings.row.ensemble], settings.budget
    if budget is None and not settings.rounds:
        return (yield from ensemble(setup, None))
    if budget is None or settings.row.scored == "never":
        population = yield from ensemble(setup, budget)
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
        first = replace(setup, process=setup.process.greedy(), settings=greedy)
        population = yield from one_search(first, budget)
    price = math.ceil(population.nfe / len(population))
    seat = np.arange(len(population))  # where each text stood in the last step
    most = (settings.rounds or budget or 0) if settings.has_rounds else 0
    for number in range(1, most + 1):
        population = yield from _judged(population, setup)
        left = math.inf if budget is None else budget - population.nfe
        # A fixed number of rounds, meant to mend what looks wrong, may have nothing more to do.
        mends = budget is None and settings.remask in BY_DOUBT
        mended = mends and not any(len(spans) for spans in population.scores.spans)
        if population.stopped != FINISHED or left < LEAST or mended:
            break
        # As many trajectories as are likely to fit into what is left.
        sized, trajectories = settings, max(1, int(min(left, 1e9)) // price)
        if settings.size * settings.children > trajectories:
            size = max(1, trajectories // settings.children)
            sized = settings.adapted(population="particles", particles=size, pruned=False)
        again = _round(replace(setup, settings=sized), population, left, seat)
        population, seat = yield from relay(again, partial(_in_round, number))
    if scorer.satisfied(population.scores.total, population.scores.spans).any():
        return replace(population, stopped=SATISFIED)
    spent = budget is not None and budget - population.nfe < LEAST  # else it made all its rounds
    if most and spent and population.stopped == FINISHED:
        return replace(population, stopped=SPENT)
    return population


def _in_round(number: int, step: Step, first: bool) -> Step:
    return replace(step, round=number)


def _judged(population: Outcome, setup: Setup) -> Search:
    """The population with the scores that a move needs, and whether they are enough."""
    settings, scorer, scores = setup.settings, setup.scorer, population.scores
    by_score = settings.remask != "all" and settings.accept in BY_SCORE
    if (settings.remask in BY_DOUBT or by_score) and np.isnan(scores.total).any():
        scores = yield from scorer.score(population.clean, "a move")
    satisfied = scorer.satisfied(scores.total, scores.spans).any()
    stopped = SATISFIED if satisfied else population.stopped
    return replace(population, scores=scores, stopped=stopped)


def _round(
    setup: Setup, population: Outcome, left: float, seat: Ints
) -> Searching[tuple[Outcome, Ints]]:
    """The population after one more search, and where each of it stood in the search's last step."""
    settings, rng, before = setup.settings, setup.rng, len(population)
    limit, size = None if math.isinf(left) else int(left), settings.size
    if settings.remask == "all":
        running = ENSEMBLES[settings.row.ensemble](setup, limit)
        again, _ = yield from _from_seats(running, np.full(size, -1))
        index = np.arange(before + len(again))
    else:
        origin = np.arange(size) % before
        canvas, seats_before = population.canvas.take(origin), seat[origin]
        spans = [population.scores.spans[row] for row in origin.tolist()]
        where = positions(setup.process, canvas, spans, settings, rng)
        if settings.restart_fraction:
            empty = rng.random(size) < settings.restart_fraction
            where[empty], seats_before[empty] = True, -1
        process, start = setup.process.remask(canvas, where)
        same_size = settings.adapted(population="particles", particles=size, pruned=False)
        resumed = replace(setup, process=process, settings=same_size)
        running = bounded(search(resumed, start=start), resumed, limit)
        again, start_of = yield from _from_seats(running, seats_before)
        if again.stopped != SATISFIED:
            judged = yield from _judged(again, setup)
            moved = Moved(
                population.scores.total,
                judged.scores.total,
                origin[start_of],
                np.concatenate([population.canvas.tokens, again.canvas.tokens]),
            )
            index = ACCEPT_RULES[settings.accept](moved, size, settings.lam, rng)
    if again.stopped == SATISFIED:  # its one text is the answer
        index = before + np.arange(len(again))
    both = Outcome.join([population, again])
    seats = np.concatenate([np.full(before, -1), np.arange(len(again))])
    return replace(both.take(index), stopped=again.stopped), seats[index]


def _from_seats(running: Search, seat: Ints) -> Searching[tuple[Outcome, Ints]]:
    """The search, whose first step names its parents by their places in the step before, and from
    which of its starts each of its last particles descends."""
    start_of = np.arange(seat.size)

    def named(step: Step, first: bool) -> Step:
        nonlocal start_of
        start_of = start_of[step.parent[step.survivor]]
        return replace(step, parent=seat[step.parent]) if first else step

    outcome = yield from relay(running, named)
    return outcome, start_of


def run_trials(processes: Sequence[Process], setup: Setup) -> Search:
    """The method on each process, one after the other, each with its share of the budget, until the
    verifier is satisfied; the outcome of the best, with the cost of all. The best has the highest
    score; where nothing is scored, and among equal scores, the most likely text: the lowest mean
    −log p per token that was filled in."""
    if len(processes) == 1:
        return (yield from run_rounds(replace(setup, process=processes[0])))
    outcomes: list[Outcome] = []
    budget, nfe, rounds = setup.settings.budget, 0, 0
    for trial, process in enumerate(processes):
        settings, last = setup.settings, rounds
        if budget is not None:
            settings = settings.adapted(budget=(budget - nfe) // (len(processes) - trial))

        def renumber(step: Step, first: bool, before: int = rounds, trial: int = trial) -> Step:
            nonlocal last
            last = step.round + before
            step = replace(step, round=last)
            return unrelated(step, first) if trial else step

        running = run_rounds(replace(setup, process=process, settings=settings))
        outcome = yield from relay(running, renumber)
        outcomes.append(replace(outcome, trial=trial))
        nfe, rounds = nfe + outcome.nfe, last + 1
        if outcome.stopped == SATISFIED:
            break

    def rank(outcome: Outcome) -> tuple[float, float]:
        score, nll = outcome.scores.total, processes[outcome.trial].nll(outcome.canvas)
        if np.isnan(score).all():
            return 0.0, -float(nll.min())
        return float(np.nanmax(score)), -float(nll[score == np.nanmax(score)].min())

    best = max(outcomes, key=rank)
    return replace(best, nfe=nfe, nfe_logical=sum(outcome.nfe_logical for outcome in outcomes))
