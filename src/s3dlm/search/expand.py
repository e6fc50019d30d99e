"""From particles to children: b samples of each, taken as they fall or made to differ.

The most confident positions are revealed first, so independent siblings mostly repeat each other
and a step's budget is spent on copies. `distinct` looks through more draws and takes the first that
differ: sampling without replacement, as far as the draws reach.
"""

from __future__ import annotations

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
    distinct: bool,
) -> Children:
    """`branching` children of every particle; finished particles have copies of themselves."""
    parent = np.repeat(np.arange(len(particles)), branching)
    row = particles.row[parent]
    canvas = particles.canvas.take(parent)
    (open_,) = np.nonzero(row >= 0)
    if open_.size:
        grow = _distinct if distinct else _independent
        grown = grow(process, canvas.take(open_), particles.prediction, row[open_], index, rng)
        canvas.tokens[open_], canvas.logp[open_] = grown.tokens, grown.logp
    before = particles.canvas.logp.sum(axis=1)[parent]
    return Children(
        canvas,
        parent,
        particles.score[parent],
        particles.log_weight[parent],
        particles.memory.take(parent),
        canvas.logp.sum(axis=1) - before,
    )


def _independent(
    process: Process,
    canvas: Canvas,
    prediction: object,
    row: Ints,
    index: int,
    rng: np.random.Generator,
) -> Canvas:
    """Every child from a draw of its own."""
    return process.expand(canvas, prediction, row, occurrence(row), index, rng)


def _distinct(
    process: Process,
    canvas: Canvas,
    prediction: object,
    row: Ints,
    index: int,
    rng: np.random.Generator,
) -> Canvas:
    """Children of equal parents differ from each other while their draws allow it."""
    wider = np.repeat(np.arange(row.size), OVERSAMPLING)
    draw = _spread(row)
    grown = process.expand(canvas.take(wider), prediction, row[wider], draw, index, rng)
    chosen = _first_that_differ(grown.tokens, row)
    return Canvas(grown.tokens[chosen], grown.logp[chosen])


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
