"""Rounds: a method again and again, within a budget.

With a budget the first search is one greedy answer, where there is a verifier to judge it. Each later
round is the method's own search from empty canvases, until the verifier is satisfied or the budget is
spent; the best of what was found until then is there at any time.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from s3dlm.search.particles import Canvas, Floats, Ints, Looked, Particles, Process, Survivors
from s3dlm.search.run import Run
from s3dlm.search.score import Scores
from s3dlm.search.step import (
    FINISHED,
    SATISFIED,
    SPENT,
    Outcome,
    SatisfiedError,
    SpentError,
    Telling,
)

if TYPE_CHECKING:
    from s3dlm.search.method import Method

# (population, method, passes left, number) → the population after one more search.
Again = Callable[[Outcome, "Method", float, int], Awaitable[Outcome]]
LEAST = 2  # forward passes below which no round is begun
MOST_IDLE = (
    20  # rounds in a row that meet only canvases they know: there is nothing new to be found
)


async def attempt(
    run: Run, search: Callable[[Run], Awaitable[object]], *, rows: int = 1,
    limit: int | None = None, process: Process | None = None, round: int | None = None,
    places: Ints | None = None,
) -> Outcome:  # fmt: skip
    """One search from its beginning to its end, which may be that of the budget.

    Args:
        run: The run that it is a part of.
        search: A method's `search`, or anything like it.
        rows: Children of a step.
        limit: The most forward passes it may take.
        process: Another denoising than the run's.
        round: Its number among the searches for the prompt.
        places: Where the canvases it starts from stood before, for the genealogy; −1: nowhere.
    """
    told = Telling(run.told.steps, run.told.round if round is None else round, places)
    part = replace(
        run, process=process or run.process, limit=limit, reserve=rows * run.judging, told=told,
        particles=None, _asked=False,
    )  # fmt: skip
    run.made = run.unshared = 0  # what it has forwarded since its last search counts for this one
    stopped = FINISHED
    try:
        await search(part)
    except SatisfiedError:
        stopped = SATISFIED
    except SpentError:
        stopped = SPENT
        await _give_up(part)
    found = part.particles
    assert found is not None, "a search has at least its start"
    return Outcome(
        found.canvas, found.log_weight, found.clean, found.scores, part.nfe, part.nfe_logical,
        np.arange(len(found)), stopped,
    )  # fmt: skip


async def _give_up(run: Run) -> None:
    """The look-aheads of the last population are the answers."""
    particles, process = run.particles, run.process
    assert particles is not None
    clean = next(process.look_aheads(particles.canvas, particles.prediction))
    if not run.steps:
        run.told.begin(run.nfe)
    scores = Scores.missing(len(particles))
    if run.judged:
        scores = await run.scorer.score(clean, "the end of the budget")
    text, everyone = Canvas(clean.tokens, clean.logp), np.arange(len(particles))
    survivors = Survivors(everyone, particles.log_weight, resampled=False)
    looked = Looked(particles.prediction, clean, scores)
    weight = particles.log_weight
    run.told.add(process.steps, run.nfe, text, everyone, looked, weight, survivors)
    run.particles = replace(particles, canvas=text, clean=clean, scores=scores)


async def sample(
    run: Run, size: int, verified: str, sampling: str = "independent", *,
    start: Canvas | None = None, weigh: Callable[[Floats], Floats] | None = None,
) -> Particles:  # fmt: skip
    """Trajectories that go on independently of each other.

    Args:
        run: The search.
        size: How many.
        verified: "never", "at the end" or "every step".
        sampling: Whether those that are still equal must differ, a name in `expand.CHILD_SAMPLINGS`.
        start: The canvases to start from, if they are not empty.
        weigh: From the last scores to the log-weights of the texts; None: all weigh the same.
    """
    every = verified == "every step"
    particles = await run.begin(size, verified=every, start=start)
    while particles.open:
        children = run.expand(particles, 1, sampling)
        ahead = await run.predict(children)
        at_end = verified == "at the end" and children.last
        looked = await run.verify(ahead, wanted=every or at_end)
        weight = weigh(looked.score) if weigh is not None and at_end else None
        particles = run.keep(children, looked, weight)
    return particles


async def rounds(
    run: Run, method: Method, again: Again, most: int, *, by_doubt: bool = False
) -> Outcome:
    """A first search, and those after it until the verifier is satisfied or the budget is spent.

    Args:
        run: The run that they are a part of.
        method: The method; its budget may leave room for fewer trajectories.
        again: One more of them.
        most: How many there may be after the first.
        by_doubt: Whether they go on from what the verifier doubts.
    """
    budget = method.budget
    population = await _first(run, method)
    price, idle = math.ceil(population.nfe / len(population)), 0
    for number in range(1, most + 1):
        left = math.inf if budget is None else budget - population.nfe
        # A fixed number of rounds, meant to mend what looks wrong, may have nothing more to do.
        mended = by_doubt and budget is None and not any(map(len, population.scores.spans))
        ended = population.stopped != FINISHED or is_satisfied(run, population.scores)
        if ended or left < LEAST or mended or idle == MOST_IDLE:
            break
        spent = population.nfe
        population = await again(population, affordable(method, left, price), left, number)
        idle = idle + 1 if budget is not None and population.nfe == spent else 0
    return _ended(run, population, budget if most else None)


async def _first(run: Run, method: Method) -> Outcome:
    """With a budget one greedy answer; its look-aheads are verified on the way if one may be enough."""
    limit = method.budget
    if limit is None or method.once_only or method.verified == "never":
        return await method.once(run, limit=limit)
    verified = "at the end" if run.scorer.satisfied_at is None else "every step"
    search = partial(sample, size=1, verified=verified)
    return await attempt(run, search, process=run.process.greedy(), limit=limit)


async def restarted(run: Run, before: Outcome, method: Method, left: float, number: int) -> Outcome:
    """The method from empty canvases; all texts that it finds join those before."""
    places = np.full(method.size, -1)
    more = await method.once(run, limit=int(left), round=number, places=places)
    if more.stopped == SATISFIED:  # its one text is the answer
        return with_cost_of(more, before)
    return replace(Outcome.join([before, more]), stopped=more.stopped)


def affordable(method: Method, left: float, price: int) -> Method:
    """The method with as many trajectories as are likely to fit into what is left."""
    trajectories = max(1, int(min(left, 1e9)) // price)
    if method.size * method.children <= trajectories:
        return method
    return method.sized(max(1, trajectories // method.children))


def is_satisfied(run: Run, scores: Scores) -> bool:
    """Whether the verifier is satisfied with one of the texts."""
    return bool(run.scorer.satisfied(scores.total, scores.spans).any())


def with_cost_of(population: Outcome, before: Outcome) -> Outcome:
    """The population, with the forward passes of what came before it."""
    nfe, logical = population.nfe + before.nfe, population.nfe_logical + before.nfe_logical
    return replace(population, nfe=nfe, nfe_logical=logical)


def _ended(run: Run, population: Outcome, budget: int | None) -> Outcome:
    """The population with the reason why the rounds ended."""
    if is_satisfied(run, population.scores):
        return replace(population, stopped=SATISFIED)
    spent = budget is not None and budget - population.nfe < LEAST
    if spent and population.stopped == FINISHED:
        return replace(population, stopped=SPENT)
    return population
