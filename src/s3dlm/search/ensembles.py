"""What ends a search early, and searches made of searches: HEX's block lengths, particle Gibbs' sweeps.

Each wraps a search and speaks its language (requests out, replies in, steps, an outcome), so whoever
drives a search drives these. A method's row names its ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from s3dlm.search.expand import expand
from s3dlm.search.loop import StepPlan, resample, search
from s3dlm.search.particles import (
    Canvas,
    Children,
    CleanText,
    Floats,
    Particles,
    Predict,
    Process,
    Reply,
    Survivors,
)
from s3dlm.search.score import Scorer, Scores
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome, Search, Searching, Step

if TYPE_CHECKING:
    from s3dlm.settings import Settings

T = TypeVar("T")


def relay(running: Searching[T], change: Callable[[Step], Step]) -> Searching[T]:
    """A search whose steps are changed on their way to whoever watches it."""
    reply: Reply = None
    while True:
        try:
            event = running.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value
        reply = yield change(event) if isinstance(event, Step) else event


def bounded(
    running: Search, process: Process, scorer: Scorer, settings: Settings, limit: int | None
) -> Search:
    """The search until the verifier is satisfied with a look-ahead, which is then the answer, or until
    the next forward pass is beyond the limit; then the look-aheads of all particles are the answers."""
    spent, steps, refused = 0, 0, False
    chosen: Step | None = None  # with the one text that satisfies
    reply: Reply = None
    while True:
        try:
            event = running.send(reply)
        except StopIteration as end:
            outcome: Outcome = end.value
            break
        if isinstance(event, Predict):
            first, spent = not spent, spent + len(event.rows.canvas) * process.passes
            refused = limit is not None and not first and spent > limit
            reply = None if refused else (yield event)
        elif isinstance(event, Step):
            steps = event.index + 1
            satisfied = scorer.satisfied(event.score, event.spans)
            if satisfied.any():
                event = chosen = _reveal(event, int(np.where(satisfied, event.score, -1).argmax()))
            reply = (yield event) or chosen is not None
        else:
            reply = yield event
    if chosen is not None:
        return _outcome_of(chosen, outcome)
    if not refused:
        return outcome
    clean, weight = outcome.clean, outcome.log_weight
    text, everyone, scores = (
        Canvas(clean.tokens, clean.logp),
        np.arange(len(outcome)),
        outcome.scores,
    )
    if settings.row.scored != "never":
        scores = yield from scorer.score(clean, "the end of the budget")
    survivors = Survivors(everyone, weight, resampled=False)
    yield Step.of(steps, process.steps, text, everyone, clean, scores, weight, survivors, 0)
    return replace(outcome, canvas=text, scores=scores, stopped=SPENT)


def _reveal(step: Step, best: int) -> Step:
    """The step after which this child alone survives, and its look-ahead is its text."""
    tokens, logp = step.tokens.copy(), step.logp.copy()
    tokens[best], logp[best] = step.clean[best], step.clean_logp[best]
    survivor = np.array([best])
    return replace(
        step, tokens=tokens, logp=logp, survivor=survivor, unique_ancestors=1, resampled=False
    )


def _outcome_of(step: Step, outcome: Outcome) -> Outcome:
    """The survivors of a step as the outcome of a search that ended with it."""
    index = step.survivor
    return replace(
        outcome,
        canvas=Canvas(step.tokens, step.logp).take(index),
        log_weight=np.zeros(index.size),
        clean=CleanText(step.clean, step.clean_logp, step.confidence).take(index),
        scores=Scores(step.score, step.parts, step.spans).take(index),
        stopped=SATISFIED,
    )


def one_search(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    rng: np.random.Generator,
    limit: int | None = None,
) -> Search:
    running = search(process, scorer, settings, rng)
    return bounded(running, process, scorer, settings, limit)


def _block_lengths(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    rng: np.random.Generator,
    limit: int | None = None,
) -> Search:
    """HEX: the particles are shared out over block lengths, which are searched one after the other."""
    processes = process.with_block_lengths()
    shares = [len(range(first, settings.size, len(processes))) for first in range(len(processes))]
    affordable = None if limit is None else max(1, limit // process.passes)
    shares = [share for share in shares if share][:affordable]
    each = None if limit is None else limit // len(shares)
    outcomes: list[Outcome] = []
    for member, share in zip(processes, shares, strict=False):
        sized = settings.adapted(population="particles", particles=share)
        running = one_search(member, scorer, sized, rng, each)
        outcomes.append((yield from unrelated(running) if outcomes else running))
    return Outcome.join(outcomes)


def _sweeps(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    rng: np.random.Generator,
    limit: int | None = None,
) -> Search:
    """Particle Gibbs: after each sweep one trajectory, drawn by weight, is pinned in the next."""
    pinned: list[Canvas] = []
    nfe = nfe_logical = 0
    for _ in range(settings.sweeps):
        history: list[Step] = []
        left = None if limit is None else limit - nfe
        running = search(process, scorer, settings, rng)
        if pinned:
            running = search(
                process,
                scorer,
                settings,
                rng,
                expand_by=partial(_retrace, pinned),
                resample_by=_resample_others,
            )
        running = bounded(running, process, scorer, settings, left)
        outcome = yield from relay(running, partial(_noted, history))
        nfe, nfe_logical = nfe + outcome.nfe, nfe_logical + outcome.nfe_logical
        if outcome.stopped != FINISHED or (limit is not None and limit - nfe < process.passes):
            break
        weight = np.exp(outcome.log_weight - outcome.log_weight.max())
        survivor = int(rng.choice(weight.size, p=weight / weight.sum()))
        pinned = []
        for step in reversed(history):
            child = int(step.survivor[survivor])
            pinned.insert(0, Canvas(step.tokens[[child]], step.logp[[child]]))
            survivor = int(step.parent[child])
    return replace(outcome, nfe=nfe, nfe_logical=nfe_logical)


def _noted(history: list[Step], step: Step) -> Step:
    history.append(step)
    return step


def _retrace(
    pinned: Sequence[Canvas],
    process: Process,
    particles: Particles,
    branching: int,
    child_sampling: str,
    step: int,
    rng: np.random.Generator,
) -> Children:
    """As `expand`, and the first child is the pinned trajectory's canvas at this step."""
    children = expand(process, particles, branching, child_sampling, step, rng)
    canvas = pinned[min(step, len(pinned) - 1)]
    children.canvas.tokens[0], children.canvas.logp[0] = canvas.tokens[0], canvas.logp[0]
    children.step_logp[0] = canvas.logp[0].sum() - particles.canvas.logp[0].sum()
    return children


def _resample_others(
    settings: Settings,
    plan: StepPlan,
    log_weight: Floats,
    particles: int,
    rng: np.random.Generator,
) -> Survivors:
    """As `resample`, and the first child survives for sure: only the others are drawn."""
    others = replace(plan, survivors=plan.survivors - 1)
    survivors = resample(settings, others, log_weight, particles, rng)
    if not survivors.resampled:
        return survivors
    return replace(
        survivors, index=np.append(0, survivors.index), log_weight=np.zeros(plan.survivors)
    )


ENSEMBLES: dict[str, Callable[..., Search]] = {
    "none": one_search,
    "block_lengths": _block_lengths,
    "sweeps": _sweeps,
}


def unrelated(running: Searching[T]) -> Searching[T]:
    """A search whose first step descends from no step before it."""
    first = True

    def orphaned(step: Step) -> Step:
        nonlocal first
        parent, first = np.full_like(step.parent, -1) if first else step.parent, False
        return replace(step, parent=parent)

    return relay(running, orphaned)
