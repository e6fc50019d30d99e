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

from s3dlm.search.books import Spending, SpentError, Telling
from s3dlm.search.particles import Canvas, Floats, Ints, Particles, Process, Survivors
from s3dlm.search.run import Run, SatisfiedError, unrelated
from s3dlm.search.score import Scores
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome

if TYPE_CHECKING:
    from s3dlm.search.method import Method

LEAST = 2  # forward passes below which no round is begun
IDLE = 20  # rounds in a row that meet only canvases they know: there is nothing new to be found


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
        places: Where the canvases it starts from stood before, for the genealogy.
    """
    # What the run has forwarded itself since the last search counts for this one.
    spent = Spending(limit, rows * run.judging, run.spent.made, run.spent.unshared)
    run.spent = replace(run.spent, made=0, unshared=0)
    told = Telling(run.told.steps, run.told.round if round is None else round, places)
    part = replace(run, process=process or run.process, spent=spent, told=told, particles=None)
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
    place = np.arange(len(found))
    return Outcome(
        found.canvas, found.log_weight, found.clean, found.scores, part.nfe, part.nfe_logical,
        place, place if told.origin is None else told.origin, stopped,
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
    end = (text, everyone, clean, scores, particles.log_weight, survivors)
    run.told.add(process.steps, run.nfe, *end)
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
        weight = weigh(looked[1].total) if weigh is not None and at_end else None
        particles = run.keep(children, ahead, looked, weight)
    return particles


async def draft(run: Run, limit: int) -> Outcome:
    """One greedy answer; its look-aheads are verified on the way if one of them may be enough."""
    verified = "at the end" if run.scorer.satisfied_at is None else "every step"
    search = partial(sample, size=1, verified=verified)
    return await attempt(run, search, process=run.process.greedy(), limit=limit)


async def rounds(run: Run, method: Method, budget: int) -> Outcome:
    """The method within a budget; all texts that it finds are its population."""
    if method.once_only or method.verified == "never":
        population = await method.once(run, limit=budget)
    else:
        population = await draft(run, budget)
    price, idle = math.ceil(population.nfe / len(population)), 0
    for number in range(1, budget + 1 if method.repeats else 1):
        left = budget - population.nfe
        if is_satisfied(run, population) or population.stopped != FINISHED:
            break
        if left < LEAST or idle == IDLE:
            break
        again = affordable(method, left, price)
        places = unrelated(again.size)
        more = await again.once(run, limit=left, round=number, places=places)
        idle = 0 if more.nfe else idle + 1
        if more.stopped == SATISFIED:  # its one text is the answer
            population = with_cost_of(more, population)
            break
        population = replace(Outcome.join([population, more]), stopped=more.stopped)
    return ended(run, population, budget if method.repeats else None)


def affordable(method: Method, left: float, price: int) -> Method:
    """The method with as many trajectories as are likely to fit into what is left."""
    trajectories = max(1, int(min(left, 1e9)) // price)
    if method.size * method.children <= trajectories:
        return method
    return method.sized(max(1, trajectories // method.children))


def is_satisfied(run: Run, population: Outcome) -> bool:
    """Whether the verifier is satisfied with one of the texts."""
    scores = population.scores
    return bool(run.scorer.satisfied(scores.total, scores.spans).any())


def with_cost_of(population: Outcome, before: Outcome) -> Outcome:
    """The population, with the forward passes of what came before it."""
    nfe, logical = population.nfe + before.nfe, population.nfe_logical + before.nfe_logical
    return replace(population, nfe=nfe, nfe_logical=logical)


def ended(run: Run, population: Outcome, budget: int | None) -> Outcome:
    """The population with the reason why the rounds ended."""
    if is_satisfied(run, population):
        return replace(population, stopped=SATISFIED)
    spent = budget is not None and budget - population.nfe < LEAST
    if spent and population.stopped == FINISHED:
        return replace(population, stopped=SPENT)
    return population
