"""What ends a search early, and searches made of searches: HEX's block lengths, particle Gibbs' sweeps.

Each wraps a search and speaks its language (requests out, replies in, steps, an outcome), so whoever
drives a search drives these. A method's row names its ensemble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from s3dlm.search.expand import expand
from s3dlm.search.loop import StepPlan, resample, search
from s3dlm.search.particles import (
    Canvas,
    Children,
    CleanText,
    Floats,
    Lineage,
    Particles,
    Predict,
    Reply,
    Survivors,
)
from s3dlm.search.score import Scores
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Outcome, Search, Searching, Setup, Step

T = TypeVar("T")


def relay(running: Searching[T], change: Callable[[Step, bool], Step]) -> Searching[T]:
    """A search whose steps are changed on their way to whoever watches it; of each step the change is
    told whether it is the first."""
    reply: Reply = None
    first = True
    while True:
        try:
            event = running.send(reply)
        except StopIteration as end:
            value: T = end.value
            return value
        if isinstance(event, Step):
            event, first = change(event, first), False
        reply = yield event


def unrelated(step: Step, first: bool) -> Step:
    """For `relay`: the first step descends from no step before it."""
    return replace(step, parent=np.full_like(step.parent, -1)) if first else step


def bounded(running: Search, setup: Setup, limit: int | None) -> Search:
    """The search until the verifier is satisfied with a look-ahead, which is then the answer, or until
    the next forward pass is beyond the limit; then the look-aheads of all particles are the answers."""
    process, scorer = setup.process, setup.scorer
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
        index = chosen.survivor
        return replace(
            outcome,
            canvas=Canvas(chosen.tokens, chosen.logp).take(index),
            log_weight=np.zeros(1),
            clean=CleanText(chosen.clean, chosen.clean_logp, chosen.confidence).take(index),
            scores=Scores(chosen.score, chosen.parts, chosen.spans).take(index),
            stopped=SATISFIED,
        )
    if not refused:
        return outcome
    clean, weight, scores = outcome.clean, outcome.log_weight, outcome.scores
    if setup.settings.row.scored != "never":
        scores = yield from scorer.score(clean, "the end of the budget")
    text, everyone = Canvas(clean.tokens, clean.logp), np.arange(len(outcome))
    lineage = Lineage.begin(scores.total)
    particles = Children(text, everyone, scores.total, weight, lineage, np.zeros(len(outcome)))
    survivors = Survivors(everyone, weight, resampled=False)
    start = 0 if steps else outcome.nfe
    yield Step.of((steps, process.steps), particles, clean, scores, weight, survivors, 0, start)
    return replace(outcome, canvas=text, scores=scores, stopped=SPENT)


def _reveal(step: Step, best: int) -> Step:
    """The step after which this child alone survives, and its look-ahead is its text."""
    tokens, logp = step.tokens.copy(), step.logp.copy()
    tokens[best], logp[best] = step.clean[best], step.clean_logp[best]
    survivor = np.array([best])
    return replace(
        step, tokens=tokens, logp=logp, survivor=survivor, unique_ancestors=1, resampled=False
    )


def one_search(setup: Setup, limit: int | None = None) -> Search:
    return bounded(search(setup), setup, limit)


def _block_lengths(setup: Setup, limit: int | None = None) -> Search:
    """HEX: the particles are shared out over block lengths, which are searched one after the other."""
    process, settings = setup.process, setup.settings
    processes = process.with_block_lengths()
    shares = [len(range(first, settings.size, len(processes))) for first in range(len(processes))]
    affordable = None if limit is None else max(1, limit // process.passes)
    shares = [share for share in shares if share][:affordable]
    each = None if limit is None else limit // len(shares)
    outcomes: list[Outcome] = []
    for member, share in zip(processes, shares, strict=False):
        sized = settings.adapted(population="particles", particles=share)
        running = one_search(replace(setup, process=member, settings=sized), each)
        outcomes.append((yield from relay(running, unrelated) if outcomes else running))
    return Outcome.join(outcomes)


def _sweeps(setup: Setup, limit: int | None = None) -> Search:
    """Particle Gibbs: after each sweep one trajectory, drawn by weight, is pinned in the next, where
    the first particle follows it to its end and always survives (conditional SMC)."""
    pinned: list[Canvas] = []  # one per step

    def retrace(setup: Setup, particles: Particles, branching: int, step: int) -> Children:
        children = expand(setup, particles, branching, step)
        if pinned:
            canvas = pinned[min(step, len(pinned) - 1)]
            children.canvas.tokens[0], children.canvas.logp[0] = canvas.tokens[0], canvas.logp[0]
            children.step_logp[0] = canvas.logp[0].sum() - particles.canvas.logp[0].sum()
        return children

    def resample_others(
        setup: Setup, plan: StepPlan, log_weight: Floats, particles: int
    ) -> Survivors:
        free = replace(plan, survivors=plan.survivors - bool(pinned))
        survivors = resample(setup, free, log_weight, particles)
        if not (pinned and survivors.resampled):
            return survivors
        index = np.append(0, survivors.index)
        return Survivors(index, np.zeros(index.size), resampled=True)

    history: list[Step] = []

    def note(step: Step, first: bool) -> Step:
        history.append(step)
        return step

    nfe = nfe_logical = 0
    for _ in range(setup.settings.sweeps):
        history.clear()
        sweep = search(setup, expand=retrace, resample=resample_others)
        left = None if limit is None else limit - nfe
        outcome = yield from relay(bounded(sweep, setup, left), note)
        nfe, nfe_logical = nfe + outcome.nfe, nfe_logical + outcome.nfe_logical
        if outcome.stopped != FINISHED:
            break
        if limit is not None and limit - nfe < setup.process.passes:
            break
        weight = np.exp(outcome.log_weight - outcome.log_weight.max())
        survivor = int(setup.rng.choice(weight.size, p=weight / weight.sum()))
        pinned.clear()
        for step in reversed(history):
            child = int(step.survivor[survivor])
            pinned.insert(0, Canvas(step.tokens[[child]], step.logp[[child]]))
            survivor = int(step.parent[child])
    return replace(outcome, nfe=nfe, nfe_logical=nfe_logical)


ENSEMBLES: dict[str, Callable[[Setup, int | None], Search]] = {
    "none": one_search,
    "block_lengths": _block_lengths,
    "sweeps": _sweeps,
}
