"""From particles to children: b samples of each, taken as they fall or made to differ.

The most confident positions are revealed first, so independent siblings mostly repeat each other
and a step's budget is spent on copies. `distinct` looks through more draws and takes the first that
differ: sampling without replacement, as far as the draws reach. `filled` does so over all parents
together: where one has nothing new to offer, another has more children.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from s3dlm.search.particles import Canvas, Floats, Ints, Memory, Particles, Process, occurrence

OVERSAMPLING = 4  # draws looked through for every distinct child wanted


@dataclass(frozen=True, slots=True)
class Children:
    """All children of one step, before they are judged."""

    canvas: Canvas
    parent: Ints  # (children,) index into the particles
    parent_score: Floats
    log_weight: Floats  # inherited
    memory: Memory  # inherited
    gained: Floats  # (children,) log-probability of what this step revealed


def expand(
    process: Process,
    particles: Particles,
    branching: int,
    index: int,
    rng: np.random.Generator,
    *,
    siblings: str,
) -> Children:
    """`branching` children of every particle; finished particles have copies of themselves."""
    # A particle's only child is its own continuation, which no cousin may take the place of.
    grow = SIBLINGS["distinct" if siblings == "filled" and branching == 1 else siblings]
    parent, canvas = grow(process, particles, branching, index, rng)
    before = particles.canvas.logp.sum(axis=1)[parent]
    return Children(
        canvas,
        parent,
        particles.score[parent],
        particles.log_weight[parent],
        particles.memory.take(parent),
        canvas.logp.sum(axis=1) - before,
    )


Grow = Callable[[Process, Particles, int, int, np.random.Generator], tuple[Ints, Canvas]]
"""(process, particles, branching, step, rng) → each child's parent, and the children."""


def _independent(
    process: Process, particles: Particles, branching: int, index: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """Every child from a draw of its own."""
    parent = np.repeat(np.arange(len(particles)), branching)
    canvas, open_, row = _open(particles, parent)
    if open_.size:
        prediction, draw = particles.prediction, occurrence(row)
        if open_.size == parent.size:
            return parent, process.expand(canvas, prediction, row, draw, index, rng)
        grown = process.expand(canvas.take(open_), prediction, row, draw, index, rng)
        canvas.tokens[open_], canvas.logp[open_] = grown.tokens, grown.logp
    return parent, canvas


def _distinct(
    process: Process, particles: Particles, branching: int, index: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """Children of equal parents differ from each other while their draws allow it."""
    parent = np.repeat(np.arange(len(particles)), branching)
    canvas, open_, row = _open(particles, parent)
    if open_.size:
        wider = np.repeat(open_, OVERSAMPLING)
        kin = np.repeat(row, OVERSAMPLING)
        prediction, draw = particles.prediction, _spread(row)
        grown = process.expand(canvas.take(wider), prediction, kin, draw, index, rng)
        chosen = _first_that_differ(grown.tokens, row)
        canvas.tokens[open_], canvas.logp[open_] = grown.tokens[chosen], grown.logp[chosen]
    return parent, canvas


def _filled(
    process: Process, particles: Particles, branching: int, index: int, rng: np.random.Generator
) -> tuple[Ints, Canvas]:
    """As many different children as the step pays for, whoever their parents are; no copies, and
    one child of each finished particle."""
    (closed,) = np.nonzero(particles.row < 0)
    (open_,) = np.nonzero(particles.row >= 0)
    room = len(particles) * branching
    if not open_.size:
        return closed, particles.canvas.take(closed)
    kinds, first, count = np.unique(particles.row[open_], return_index=True, return_counts=True)
    draws = room * OVERSAMPLING
    parent = np.repeat(open_[first], draws)
    draw = np.tile(np.arange(draws), kinds.size)
    row = np.repeat(kinds, draws)
    grown = process.expand(
        particles.canvas.take(parent), particles.prediction, row, draw, index, rng
    )
    turn = draw // np.repeat(count, draws)  # a particle held twice has two children a turn
    fresh: dict[bytes, int] = {}
    for candidate in np.argsort(turn, kind="stable").tolist():
        fresh.setdefault(grown.tokens[candidate].tobytes(), candidate)
        if len(fresh) == room - closed.size:
            break
    chosen = np.sort(np.fromiter(fresh.values(), dtype=np.int64))
    kept, born = particles.canvas.take(closed), grown.take(chosen)
    canvas = Canvas(
        np.concatenate([kept.tokens, born.tokens]), np.concatenate([kept.logp, born.logp])
    )
    return np.concatenate([closed, parent[chosen]]), canvas


SIBLINGS: dict[str, Grow] = {
    "independent": _independent,
    "distinct": _distinct,
    "filled": _filled,
}


def _open(particles: Particles, parent: Ints) -> tuple[Canvas, Ints, Ints]:
    """Copies of the parents, which of them can grow, and the prediction's row of those."""
    row = particles.row[parent]
    (open_,) = np.nonzero(row >= 0)
    return particles.canvas.take(parent), open_, row[open_]


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
