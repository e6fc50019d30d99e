"""From particles to children: b samples of each, taken as they fall or made to differ.

The most confident positions are revealed first, so independent children mostly repeat each other
and a step's budget is spent on copies. `distinct` looks through more draws and takes the first that
differ: sampling without replacement, as far as the draws reach. `filled` does so over all parents
together: where one has nothing new to offer, another has more children.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import count

import numpy as np

from s3dlm.inputs import Registry
from s3dlm.search.particles import Canvas, Ints, Particles, Process

OVERSAMPLING = 4  # draws looked through for every distinct child wanted


GrowChildren = Callable[[Process, Particles, int, int, np.random.Generator], tuple[Ints, Canvas]]
"""(process, particles, branching, step, rng) → each child's parent, and the children. Finished particles
have copies of themselves."""


def occurrence(row: Ints) -> Ints:
    """For every entry how many equal ones stand before it, so that copies use different draws."""
    turns: defaultdict[int, count[int]] = defaultdict(count)
    return np.array([next(turns[value]) for value in row.tolist()], dtype=np.int64)


def grown(
    process: Process, particles: Particles, parent: Ints, step: int, rng: np.random.Generator
) -> Canvas:
    """A child of each of these parents from a draw of its own; finished ones copy themselves."""
    canvas, prediction = particles.canvas.take(parent), particles.prediction.take(parent)
    open_ = np.flatnonzero(prediction.row >= 0)
    if open_.size:
        some = prediction.take(open_)
        draw = occurrence(some.row)
        canvas.put(open_, process.expand(canvas.take(open_), some, draw, step, rng))
    return canvas


def _independent(
    process: Process, particles: Particles, branching: int, step: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    parent = np.repeat(np.arange(len(particles)), branching)
    return parent, grown(process, particles, parent, step, rng)


def _distinct(
    process: Process, particles: Particles, branching: int, step: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """Children of equal parents differ from each other while their draws allow it."""
    parent = np.repeat(np.arange(len(particles)), branching)
    canvas = particles.canvas.take(parent)
    open_ = np.flatnonzero(particles.prediction.row[parent] >= 0)
    if not open_.size:
        return parent, canvas
    row = particles.prediction.row[parent[open_]]
    turn, count = occurrence(row), np.bincount(row)[row]
    # First one draw for each child, then the spare ones.
    draw = (turn[:, None] + count[:, None] * np.arange(OVERSAMPLING)).reshape(-1)
    wider = np.repeat(open_, OVERSAMPLING)
    prediction = particles.prediction.take(parent[wider])
    grown = process.expand(canvas.take(wider), prediction, draw, step, rng)
    fresh: dict[int, dict[bytes, int]] = {}  # by parent, the first candidate of each kind
    for candidate in np.arange(draw.size).reshape(-1, OVERSAMPLING).T.reshape(-1).tolist():
        kin = fresh.setdefault(int(row[candidate // OVERSAMPLING]), {})
        kin.setdefault(grown.tokens[candidate].tobytes(), candidate)
    differing = {parent: list(kin.values()) for parent, kin in fresh.items()}
    chosen = [
        differing[kind][place] if place < len(differing[kind]) else child * OVERSAMPLING
        for child, (kind, place) in enumerate(zip(row.tolist(), turn.tolist(), strict=True))
    ]
    canvas.put(open_, grown.take(np.array(chosen)))
    return parent, canvas


def _filled(
    process: Process, particles: Particles, branching: int, step: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """As many different children as the step pays for, whoever their parents are; no copies, and
    one child of each finished particle."""
    row = particles.prediction.row
    (closed,), (open_,) = np.nonzero(row < 0), np.nonzero(row >= 0)
    if not open_.size:
        return closed, particles.canvas.take(closed)
    room = len(particles) * branching
    kinds, first, count = np.unique(row[open_], return_index=True, return_counts=True)
    draws = room * OVERSAMPLING
    parent, draw = np.repeat(open_[first], draws), np.tile(np.arange(draws), kinds.size)
    prediction, canvas = particles.prediction.take(parent), particles.canvas.take(parent)
    grown = process.expand(canvas, prediction, draw, step, rng)
    turn = draw // np.repeat(count, draws)  # a particle held twice has two children per turn
    fresh: dict[bytes, int] = {}
    for candidate in np.argsort(turn, kind="stable").tolist():
        fresh.setdefault(grown.tokens[candidate].tobytes(), candidate)
        if len(fresh) == room - closed.size:
            break
    chosen = np.sort(np.fromiter(fresh.values(), dtype=np.int64))
    children = Canvas.join([particles.canvas.take(closed), grown.take(chosen)])
    return np.concatenate([closed, parent[chosen]]), children


CHILD_SAMPLINGS: Registry[GrowChildren] = Registry(
    "child_sampling", "s3dlm.child_samplings", object
)
for _name, _sampling in {
    "independent": _independent,
    "distinct": _distinct,
    "filled": _filled,
}.items():
    CHILD_SAMPLINGS.register(_name, _sampling)
