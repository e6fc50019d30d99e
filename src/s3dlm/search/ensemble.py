"""Searches made of searches: members side by side on other schedules, sweeps one after another, and
repairs of what the verifier's arithmetic contradicts.

All speak the same language as one search (requests out, predictions in, steps, an outcome), so
whoever drives a search drives these.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from s3dlm.search.loop import Outcome, Search, Step, search
from s3dlm.search.methods import Plan
from s3dlm.search.particles import Canvas, CleanText, Memory, Particles, Process
from s3dlm.search.resample import effective_sample_size
from s3dlm.search.score import Scorer


def side_by_side(members: Sequence[Search]) -> Search:
    """Members with equally many steps in lockstep: their requests become one list, their steps one."""
    said = [next(member) for member in members]
    outcomes: list[Outcome] = []
    while not outcomes:
        waiting = [index for index, one in enumerate(said) if not isinstance(one, Step)]
        if waiting:
            replies = yield [said[index] for index in waiting]
        else:
            yield _merge_steps(said)
            waiting, replies = list(range(len(members))), [None] * len(members)
        for index, reply in zip(waiting, replies, strict=True):
            try:
                said[index] = members[index].send(reply)
            except StopIteration as end:
                outcomes.append(end.value)
    return _merge_outcomes(outcomes)


def _merge_steps(steps: Sequence[Step]) -> Step:
    parents = np.cumsum([0, *(step.survivor.size for step in steps)])
    children = np.cumsum([0, *(step.parent.size for step in steps)])
    weight = np.concatenate([step.weight for step in steps]) / len(steps)
    return replace(
        steps[0],
        tokens=np.concatenate([step.tokens for step in steps]),
        logp=np.concatenate([step.logp for step in steps]),
        clean=np.concatenate([step.clean for step in steps]),
        parent=np.concatenate(
            [step.parent + first for step, first in zip(steps, parents, strict=False)]
        ),
        score=np.concatenate([step.score for step in steps]),
        parts=[parts for step in steps for parts in step.parts],
        confidence=np.concatenate([step.confidence for step in steps]),
        weight=weight,
        survivor=np.concatenate(
            [step.survivor + first for step, first in zip(steps, children, strict=False)]
        ),
        ess=effective_sample_size(weight),
        unique_ancestors=sum(step.unique_ancestors for step in steps),
        rows=sum(step.rows for step in steps),
    )


def _merge_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    groups = [outcome.particles for outcome in outcomes]

    def joined(arrays: list[Any]) -> Any:
        return np.concatenate(arrays)

    particles = Particles(
        Canvas(
            joined([one.canvas.tokens for one in groups]),
            joined([one.canvas.logp for one in groups]),
        ),
        None,
        joined([one.row for one in groups]),
        joined([one.score for one in groups]),
        joined([one.log_weight for one in groups]),
        Memory.fresh(joined([one.score for one in groups])),
    )
    clean = CleanText(
        joined([outcome.clean.tokens for outcome in outcomes]),
        joined([outcome.clean.logp for outcome in outcomes]),
        joined([outcome.clean.confidence for outcome in outcomes]),
    )
    parts = [parts for outcome in outcomes for parts in outcome.parts]
    return Outcome(particles, clean, parts, sum(outcome.rows for outcome in outcomes))


def sweeps(process: Process, scorer: Scorer, plan: Plan, rng: np.random.Generator) -> Search:
    """Particle Gibbs: after each sweep one trajectory, drawn by weight, is retraced by the next."""
    reference: list[Canvas] = []
    rows = 0
    for _ in range(plan.sweeps):
        history: list[Step] = []
        running = search(process, scorer, plan, rng, reference=reference)
        outcome = yield from _recorded(running, history)
        rows += outcome.rows
        weight = np.exp(outcome.particles.log_weight - outcome.particles.log_weight.max())
        chosen = int(rng.choice(weight.size, p=weight / weight.sum()))
        reference = _lineage(history, chosen)
    return replace(outcome, rows=rows)


def repaired(process: Process, scorer: Scorer, plan: Plan, rng: np.random.Generator) -> Search:
    """A search whose survivors are hidden again from their first wrong equality on and searched
    anew, as often as the plan says or until nothing is wrong."""
    outcome = yield from search(process, scorer, plan, rng)
    for _ in range(plan.repairs):
        canvas = outcome.particles.canvas
        doubt = scorer.first_doubt(canvas.tokens)
        if (doubt < 0).all():
            break
        start = process.forget(canvas, doubt)
        retry = process.resumed(start)
        again = yield from search(retry, scorer, plan, rng, start=start)
        outcome = replace(again, rows=outcome.rows + again.rows)
    return outcome


def _recorded(running: Search, history: list[Step]) -> Generator[Any, Any, Outcome]:
    reply = None
    while True:
        try:
            said = running.send(reply)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        if isinstance(said, Step):
            history.append(said)
        reply = yield said


def _lineage(history: Sequence[Step], survivor: int) -> list[Canvas]:
    """The canvases of one survivor, from the first step to the last."""
    path: list[Canvas] = []
    for step in reversed(history):
        child = int(step.survivor[survivor])
        path.append(Canvas(step.tokens[[child]], step.logp[[child]]))
        survivor = int(step.parent[child])
    return path[::-1]
