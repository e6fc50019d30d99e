"""From particles to children: b samples of each, taken as they fall or made to differ.

The most confident positions are revealed first, so independent children mostly repeat each other
and a step's budget is spent on copies. `distinct` looks through more draws and takes the first that
differ: sampling without replacement, as far as the draws reach. `filled` does so over all parents
together: where one has nothing new to offer, another has more children.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from s3dlm.search.particles import Canvas, Children, Ints, Particles, Process, occurrence

OVERSAMPLING = 4  # draws looked through for every distinct child wanted


def expand(
    process: Process,
    particles: Particles,
    branching: int,
    child_sampling: str,
    step: int,
    rng: np.random.Generator,
) -> Children:
    """`branching` children of every particle; finished particles have copies of themselves."""
    # A particle's only child is its own continuation, whose place no other child may take.
    if child_sampling == "filled" and branching == 1:
        child_sampling = "distinct"
    parent, canvas = CHILD_SAMPLINGS[child_sampling](process, particles, branching, step, rng)
    before = particles.canvas.logp.sum(axis=1)[parent]
    return Children(
        canvas,
        parent,
        particles.score[parent],
        particles.log_weight[parent],
        particles.lineage.take(parent),
        canvas.logp.sum(axis=1) - before,
    )


ChildSampling = Callable[[Process, Particles, int, int, np.random.Generator], tuple[Ints, Canvas]]
"""(process, particles, branching, step, rng) → each child's parent, and the children."""


def _independent(
    process: Process, particles: Particles, branching: int, step: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """Every child from a draw of its own."""
    parent = np.repeat(np.arange(len(particles)), branching)
    canvas, open_ = particles.canvas.take(parent), _open(particles, parent)
    if open_.size:
        prediction = particles.prediction.take(parent[open_])
        draw = occurrence(prediction.row)
        if open_.size == parent.size:
            return parent, process.expand(canvas, prediction, draw, step, rng)
        grown = process.expand(canvas.take(open_), prediction, draw, step, rng)
        canvas.tokens[open_], canvas.logp[open_] = grown.tokens, grown.logp
    return parent, canvas


def _distinct(
    process: Process, particles: Particles, branching: int, step: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """Children of equal parents differ from each other while their draws allow it."""
    parent = np.repeat(np.arange(len(particles)), branching)
    canvas, open_ = particles.canvas.take(parent), _open(particles, parent)
    if open_.size:
        row = particles.prediction.row[parent[open_]]
        wider = np.repeat(open_, OVERSAMPLING)
        prediction = particles.prediction.take(parent[wider])
        grown = process.expand(canvas.take(wider), prediction, _spread(row), step, rng)
        chosen = _first_that_differ(grown.tokens, row)
        canvas.tokens[open_], canvas.logp[open_] = grown.tokens[chosen], grown.logp[chosen]
    return parent, canvas


def _filled(
    process: Process, particles: Particles, branching: int, step: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """As many different children as the step pays for, whoever their parents are; no copies, and
    one child of each finished particle."""
    row = particles.prediction.row
    (closed,) = np.nonzero(row < 0)
    (open_,) = np.nonzero(row >= 0)
    room = len(particles) * branching
    if not open_.size:
        return closed, particles.canvas.take(closed)
    kinds, first, count = np.unique(row[open_], return_index=True, return_counts=True)
    draws = room * OVERSAMPLING
    parent = np.repeat(open_[first], draws)
    draw = np.tile(np.arange(draws), kinds.size)
    prediction = replace(particles.prediction, row=np.repeat(kinds, draws))
    grown = process.expand(particles.canvas.take(parent), prediction, draw, step, rng)
    turn = draw // np.repeat(count, draws)  # a particle held twice has two children per turn
    fresh: dict[bytes, int] = {}
    for candidate in np.argsort(turn, kind="stable").tolist():
        fresh.setdefault(grown.tokens[candidate].tobytes(), candidate)
        if len(fresh) == room - closed.size:
            break
    chosen = np.sort(np.fromiter(fresh.values(), dtype=np.int64))
    kept, born = particles.canvas.take(closed), grown.take(chosen)
    return np.concatenate([closed, parent[chosen]]), Canvas.join([kept, born])


CHILD_SAMPLINGS: dict[str, ChildSampling] = {
    "independent": _independent,
    "distinct": _distinct,
    "filled": _filled,
}


def _open(particles: Particles, parent: Ints) -> Ints:
    """Which children have a parent that is not finished."""
    (open_,) = np.nonzero(particles.prediction.row[parent] >= 0)
    return open_


def _spread(row: Ints) -> Ints:
    """Draw numbers of the widened children: first one for each child, then the spare ones."""
    turn = occurrence(row)
    count = np.bincount(row, minlength=int(row.max()) + 1)[row]
    spare = turn[:, None] + count[:, None] * np.arange(OVERSAMPLING)[None, :]
    result: Ints = spare.reshape(-1)
    return result


def _first_that_differ(tokens: Ints, row: Ints) -> Ints:
    """For every child the index of the candidate it becomes."""
    fresh: dict[int, list[int]] = {}
    seen: set[tuple[int, bytes]] = set()
    kin = np.repeat(row, OVERSAMPLING)
    # Candidates in the order of their draws: all first choices before any spare one.
    order = np.argsort(np.tile(np.arange(OVERSAMPLING), row.size), kind="stable")
    for candidate in order.tolist():
        key = (int(kin[candidate]), tokens[candidate].tobytes())
        if key not in seen:
            seen.add(key)
            fresh.setdefault(key[0], []).append(candidate)
    turn = occurrence(row)
    own = np.arange(row.size) * OVERSAMPLING
    chosen = [
        fresh[kind][place] if place < len(fresh[kind]) else first
        for kind, place, first in zip(row.tolist(), turn.tolist(), own.tolist(), strict=True)
    ]
    return np.asarray(chosen, dtype=np.int64)
