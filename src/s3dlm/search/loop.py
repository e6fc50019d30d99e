"""Algorithm 1, once for all methods: expand → predict → score → weigh → resample.

`search` is a generator that owns no model. It yields a request whenever it needs a prediction and is
sent the answer; it yields a `Step` after every denoising step, which nobody can change; it returns
the `Outcome`. Whoever drives it (engine.py) may run many searches side by side in one forward.

The look-ahead forward on a child is the forward it is next expanded from, so a step costs at most
N·b rows; canvases that are equal token for token are forwarded once and verified once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from s3dlm.search.methods import Plan
from s3dlm.search.particles import (
    Canvas,
    CleanText,
    Floats,
    Ints,
    Particles,
    Process,
    distinct,
    occurrence,
)
from s3dlm.search.resample import RESAMPLERS, effective_sample_size, normalise
from s3dlm.search.score import Scorer
from s3dlm.search.weigh import WEIGHTS


@dataclass(frozen=True, slots=True)
class Step:
    """What an observer sees of one denoising step; arrays are read-only by convention."""

    index: int  # from 0
    total: int
    tokens: Ints  # (children, length)
    clean: Ints  # (children, length) the look-ahead
    parent: Ints  # (children,) index into the previous step's survivors
    score: Floats  # (children,) NaN where nothing was scored
    parts: list[Mapping[str, float]]  # of each child's score
    confidence: Floats  # (children,)
    weight: Floats  # (children,) normalised
    survivor: Ints  # (particles,) index into the children
    ess: float  # effective sample size of the weights
    unique_ancestors: int  # parents that still have offspring
    log_normaliser: float  # log of the mean unnormalised weight
    rows: int  # rows forwarded for this step
    resampled: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The population after the last step."""

    particles: Particles
    clean: CleanText
    parts: list[Mapping[str, float]]
    rows: int  # rows forwarded in all


@dataclass(frozen=True, slots=True)
class _Children:
    """All children of one step."""

    canvas: Canvas
    parent: Ints  # (children,)
    parent_score: Floats
    log_weight: Floats  # inherited


Search = Generator[Any, Any, Outcome]


def search(process: Process, scorer: Scorer, plan: Plan, rng: np.random.Generator) -> Search:
    """Run one prompt's search; see the module's docstring for what is yielded and sent."""
    start = process.start()
    prediction = yield process.ask(start.tokens, 0, rng)
    particles = _first(process, scorer, plan, start, prediction)
    total_rows = 1
    for index in range(process.steps):
        children = _expand(process, particles, plan, index, rng)
        prediction, row, rows = yield from _predict(process, children.canvas, index + 1, rng)
        total_rows += rows
        clean = process.look_ahead(children.canvas, prediction, row)
        score, parts = _score(scorer, plan, clean, index, process.steps)
        log_weight = _weigh(children, score, plan)
        kept, left_over, resampled = _resample(children, log_weight, plan, rng)
        yield _step(
            index, process, children, clean, score, parts, log_weight, kept, rows, resampled
        )
        particles = Particles(
            children.canvas.take(kept), prediction, row[kept], score[kept], left_over
        )
    last = CleanText(clean.tokens[kept], clean.confidence[kept])
    return Outcome(particles, last, [parts[index] for index in kept.tolist()], total_rows)


def _first(
    process: Process, scorer: Scorer, plan: Plan, start: Canvas, prediction: Any
) -> Particles:
    """N equal particles share one row; they start from the score of the first look-ahead."""
    row = np.zeros(1, dtype=np.int64)
    score = np.array([np.nan])
    if plan.scored == "every step":
        score, _ = scorer(process.look_ahead(start, prediction, row), "the first look-ahead")
    everyone = np.zeros(plan.particles, dtype=np.int64)
    return Particles(
        start.take(everyone), prediction, everyone, score[everyone], np.zeros(plan.particles)
    )


def _expand(
    process: Process, particles: Particles, plan: Plan, index: int, rng: np.random.Generator
) -> _Children:
    """b children of every particle, each from a draw of its own."""
    parent = np.repeat(np.arange(len(particles)), plan.branching)
    row = particles.row[parent]
    canvas = particles.canvas.take(parent)
    (open_,) = np.nonzero(row >= 0)
    if open_.size:
        grown = process.expand(
            canvas.take(open_),
            particles.prediction,
            row[open_],
            occurrence(row[open_]),
            index,
            rng,
        )
        canvas.tokens[open_], canvas.logp[open_] = grown.tokens, grown.logp
    return _Children(canvas, parent, particles.score[parent], particles.log_weight[parent])


def _predict(
    process: Process, canvas: Canvas, step: int, rng: np.random.Generator
) -> Generator[Any, Any, tuple[Any, Ints, int]]:
    """One row per distinct canvas that is not finished; row −1 stands for a finished one."""
    first, kind = distinct(canvas.tokens)
    open_ = process.is_open(canvas.tokens[first])
    rows = int(open_.sum())
    if not rows:
        return None, np.full(kind.size, -1), 0
    row_of_kind = np.where(open_, np.cumsum(open_) - 1, -1)
    prediction = yield process.ask(canvas.tokens[first[open_]], step, rng)
    return prediction, row_of_kind[kind], rows


def _score(
    scorer: Scorer, plan: Plan, clean: CleanText, index: int, steps: int
) -> tuple[Floats, list[Mapping[str, float]]]:
    last = index == steps - 1
    if plan.scored == "every step" or (plan.scored == "at the end" and last):
        return scorer(clean, f"step {index + 1} of {steps}")
    return np.full(len(clean.tokens), np.nan), [{}] * len(clean.tokens)


def _weigh(children: _Children, score: Floats, plan: Plan) -> Floats:
    if np.isnan(score).any():
        return children.log_weight
    return WEIGHTS[plan.weight](children.log_weight, children.parent_score, score, plan.lam)


def _resample(
    children: _Children, log_weight: Floats, plan: Plan, rng: np.random.Generator
) -> tuple[Ints, Floats, bool]:
    """Survivors' indices, the weights they carry on, and whether they were resampled."""
    if plan.resampling is None:
        return np.arange(log_weight.size), log_weight, False
    if plan.ess_threshold is not None:
        ess = effective_sample_size(normalise(log_weight))
        if ess >= plan.ess_threshold * log_weight.size:
            kept, carried = _one_child_each(children, log_weight, plan.particles, rng)
            return kept, carried, False
    offspring = RESAMPLERS[plan.resampling](log_weight, plan.particles, rng)
    return np.repeat(np.arange(offspring.size), offspring), np.zeros(plan.particles), True


def _one_child_each(
    children: _Children, log_weight: Floats, particles: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Without resampling, every particle goes on as one of its own children, chosen by weight; it
    carries their mean, which keeps the estimate unbiased."""
    family = log_weight.reshape(particles, -1)
    top = family.max(axis=1, keepdims=True)
    shares = np.exp(family - top)
    edges = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    chosen = (edges <= rng.random((particles, 1))).sum(axis=1)
    kept = np.arange(particles) * family.shape[1] + chosen
    return kept, top[:, 0] + np.log(shares.mean(axis=1))


def _step(
    index: int,
    process: Process,
    children: _Children,
    clean: CleanText,
    score: Floats,
    parts: list[Mapping[str, float]],
    log_weight: Floats,
    kept: Ints,
    rows: int,
    resampled: bool,
) -> Step:
    weight = normalise(log_weight)
    top = float(log_weight.max())
    return Step(
        index=index,
        total=process.steps,
        tokens=children.canvas.tokens,
        clean=clean.tokens,
        parent=children.parent,
        score=score,
        parts=parts,
        confidence=clean.confidence,
        weight=weight,
        survivor=kept,
        ess=effective_sample_size(weight),
        unique_ancestors=int(np.unique(children.parent[kept]).size),
        log_normaliser=top + float(np.log(np.exp(log_weight - top).mean())),
        rows=rows,
        resampled=resampled,
    )
