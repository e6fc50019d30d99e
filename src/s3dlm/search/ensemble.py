"""Searches made of searches: block lengths side by side, conditional sweeps.

All speak the same language as one search (requests out, predictions in, steps, an outcome), so
whoever drives a search drives these. A method's row says which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from s3dlm.search.loop import Search, relay, search
from s3dlm.search.particles import Canvas, CanvasPredictions, CleanText, Lineage, Particles, Process
from s3dlm.search.resample import effective_sample_size
from s3dlm.search.score import Scorer, Scores
from s3dlm.search.step import FINISHED, Outcome, Step

if TYPE_CHECKING:
    from s3dlm.settings import Settings


def _block_lengths(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    rng: np.random.Generator,
    limit: int | None = None,
) -> Search:
    """HEX: the particles are shared out over block lengths and searched in lockstep."""
    processes = process.with_block_lengths()
    shares = [len(range(first, settings.size, len(processes))) for first in range(len(processes))]
    affordable = None if limit is None else max(1, limit // process.passes)
    shares = [share for share in shares if share][:affordable]
    each = None if limit is None else limit // len(shares)
    members = [
        search(one, scorer, settings.adapted(population="particles", particles=share), rng, each)
        for one, share in zip(processes, shares, strict=False)
    ]
    return (yield from _side_by_side(members, shares))


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
        running = search(process, scorer, settings, rng, left, pinned=pinned)
        outcome: Outcome = yield from relay(running, partial(_noted, history))
        nfe, nfe_logical = nfe + outcome.nfe, nfe_logical + outcome.nfe_logical
        if outcome.stopped != FINISHED or (limit is not None and limit - nfe < process.passes):
            break
        weight = np.exp(outcome.particles.log_weight - outcome.particles.log_weight.max())
        chosen = int(rng.choice(weight.size, p=weight / weight.sum()))
        pinned = _trajectory(history, chosen)
    return replace(outcome, nfe=nfe, nfe_logical=nfe_logical)


ENSEMBLES: dict[str, Callable[..., Search]] = {
    "none": search,
    "block_lengths": _block_lengths,
    "sweeps": _sweeps,
}


def _side_by_side(members: Sequence[Search], sizes: Sequence[int]) -> Search:
    """Members in lockstep: their requests become one list, their steps one. A member that ends
    before others stays in their steps as it is. They begin with so many particles each."""
    said = [next(member) for member in members]
    outcomes: dict[int, Outcome] = {}
    while len(outcomes) < len(members):
        waiting = [index for index, one in enumerate(said) if not isinstance(one, Step)]
        if waiting:
            replies = yield [said[index] for index in waiting]
        else:
            yield _merge_steps(said, sizes)
            sizes = [step.survivor.size for step in said]
            waiting = [index for index in range(len(members)) if index not in outcomes]
            replies = [None] * len(waiting)
        for index, reply in zip(waiting, replies, strict=True):
            try:
                said[index] = members[index].send(reply)
            except StopIteration as end:
                outcomes[index] = end.value
                said[index] = _resting(said[index])
    return merge_outcomes([outcomes[index] for index in range(len(members))])


def _resting(step: Step) -> Step:
    """What an observer sees of a search after its last step: its survivors, unchanged."""
    kept = step.survivor
    weight = step.weight[kept] / step.weight[kept].sum()
    return replace(
        step,
        tokens=step.tokens[kept],
        logp=step.logp[kept],
        clean=step.clean[kept],
        clean_logp=step.clean_logp[kept],
        parent=np.arange(kept.size),
        score=step.score[kept],
        parts=[step.parts[one] for one in kept.tolist()],
        confidence=step.confidence[kept],
        weight=weight,
        survivor=np.arange(kept.size),
        ess=effective_sample_size(weight),
        unique_ancestors=kept.size,
        nfe=0,
        resampled=False,
    )


def _merge_steps(steps: Sequence[Step], sizes: Sequence[int]) -> Step:
    """One step of all members, which had so many particles each before it."""
    parents = np.cumsum([0, *sizes])
    children = np.cumsum([0, *(step.parent.size for step in steps)])
    weight = np.concatenate([step.weight for step in steps]) / len(steps)
    return replace(
        max(steps, key=lambda step: step.index),
        tokens=np.concatenate([step.tokens for step in steps]),
        logp=np.concatenate([step.logp for step in steps]),
        clean=np.concatenate([step.clean for step in steps]),
        clean_logp=np.concatenate([step.clean_logp for step in steps]),
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
        nfe=sum(step.nfe for step in steps),
    )


def merge_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    groups = [outcome.particles for outcome in outcomes]

    def joined(arrays: list[Any]) -> Any:
        return np.concatenate(arrays)

    score = joined([one.score for one in groups])
    particles = Particles(
        Canvas(
            joined([one.canvas.tokens for one in groups]),
            joined([one.canvas.logp for one in groups]),
        ),
        CanvasPredictions(None, np.full(score.size, -1), 0),
        score,
        joined([one.log_weight for one in groups]),
        Lineage.begin(score),
    )
    clean = CleanText(
        joined([outcome.clean.tokens for outcome in outcomes]),
        joined([outcome.clean.logp for outcome in outcomes]),
        joined([outcome.clean.confidence for outcome in outcomes]),
    )
    scores = Scores(
        joined([outcome.scores.total for outcome in outcomes]),
        [parts for outcome in outcomes for parts in outcome.scores.parts],
        [spans for outcome in outcomes for spans in outcome.scores.spans],
    )
    nfe = sum(outcome.nfe for outcome in outcomes)
    logical = sum(outcome.nfe_logical for outcome in outcomes)
    stopped = next((one.stopped for one in outcomes if one.stopped != FINISHED), FINISHED)
    return Outcome(particles, clean, scores, nfe, logical, stopped)


def _noted(history: list[Step], step: Step) -> Step:
    history.append(step)
    return step


def _trajectory(history: Sequence[Step], survivor: int) -> list[Canvas]:
    """The canvases of one survivor, from the first step to the last."""
    path: list[Canvas] = []
    for step in reversed(history):
        child = int(step.survivor[survivor])
        path.append(Canvas(step.tokens[[child]], step.logp[[child]]))
        survivor = int(step.parent[child])
    return path[::-1]
