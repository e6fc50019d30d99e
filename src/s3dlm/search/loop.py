"""Algorithm 1, once for all methods: expand → predict → score → weigh → resample.

`search` is a generator that owns no model. It yields a request whenever it needs a prediction and is
sent the answer; it yields a `Step` after every denoising step, which nobody can change; it returns
the `Outcome`. Whoever drives it (engine.py) may run many searches side by side in one forward.

The look-ahead forward on a child is the forward it is next expanded from, so a step costs at most
N·b rows; canvases that are equal token for token are forwarded once and verified once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from s3dlm.search.expand import Children, expand
from s3dlm.search.methods import Plan
from s3dlm.search.particles import (
    Canvas,
    CleanText,
    Floats,
    Ints,
    Memory,
    Particles,
    Process,
    distinct,
)
from s3dlm.search.resample import RESAMPLERS, effective_sample_size, normalise
from s3dlm.search.score import Scorer
from s3dlm.search.weigh import TILTS, WEIGHTS


@dataclass(frozen=True, slots=True)
class Step:
    """What an observer sees of one denoising step; arrays are read-only by convention."""

    index: int  # from 0
    total: int
    tokens: Ints  # (children, length)
    logp: Floats  # (children, length) of each known token when it became known
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
    resampling_seconds: float = 0.0


Search = Generator[Any, Any, Outcome]

SURE = math.log(0.9)  # at least so probable is all that is hidden where a search may stop early


def search(
    process: Process,
    scorer: Scorer,
    plan: Plan,
    rng: np.random.Generator,
    *,
    reference: Sequence[Canvas] = (),
    start: Canvas | None = None,
) -> Search:
    """Run one prompt's search; see the module's docstring for what is yielded and sent.

    With a reference, the first particle retraces it step by step (conditional SMC). With a start,
    the particles begin there and not on an empty canvas.
    """
    if start is None:
        start = process.start().take(np.zeros(plan.particles, dtype=np.int64))
    prediction, row, total_rows = yield from _predict(process, start, 0, rng, plan.heat)
    particles = _first(process, scorer, plan, start, prediction, row)
    seconds, agreed = 0.0, 0
    for index in range(process.steps):
        due = process.is_due(plan.cadence, index)
        branching = plan.branching if due else 1
        children = expand(process, particles, branching, index, rng, siblings=plan.siblings)
        if reference:
            children = _retrace(children, reference[index])
        prediction, row, rows = yield from _predict(
            process, children.canvas, index + 1, rng, plan.heat
        )
        total_rows += rows
        clean = process.look_ahead(children.canvas, prediction, row)
        judged = _judge(process, scorer, plan, children, clean, index, due=due)
        started = time.perf_counter()
        kept, left_over, resampled = _resample(
            children, judged, plan, rng, plan.survivors(index, process.steps), due, bool(reference)
        )
        seconds += time.perf_counter() - started
        yield _step(index, process, children, clean, judged, kept, rows, resampled)
        particles = Particles(
            children.canvas.take(kept),
            prediction,
            row[kept],
            judged.known[kept],
            left_over,
            judged.memory.take(kept),
        )
        last = clean.take(kept)
        if plan.patience:
            agreed = agreed + 1 if _settled(scorer, particles.canvas, last) else 0
            if agreed == plan.patience:
                particles = replace(particles, canvas=Canvas(last.tokens, last.logp))
                break
    parts = [judged.parts[index] for index in kept.tolist()]
    return Outcome(particles, last, parts, total_rows, seconds)


def _settled(scorer: Scorer, canvas: Canvas, clean: CleanText) -> bool:
    """All survivors would say the same text now, and each is sure of all that it still hides: copies
    of one early guess agree, too, and mean nothing."""
    hidden = (clean.logp - canvas.logp).sum(axis=1)
    return bool((hidden >= SURE).all()) and len({scorer.text(one) for one in clean.tokens}) == 1


def _first(
    process: Process, scorer: Scorer, plan: Plan, start: Canvas, prediction: Any, row: Ints
) -> Particles:
    """Particles that know the score of their first look-ahead; equal ones share one row."""
    score = np.full(row.size, np.nan)
    if plan.scored == "every step":
        score, _ = scorer(process.look_ahead(start, prediction, row), "the first look-ahead")
    return Particles(start, prediction, row, score, np.zeros(row.size), Memory.fresh(score))


def _retrace(children: Children, reference: Canvas) -> Children:
    children.canvas.tokens[0], children.canvas.logp[0] = reference.tokens[0], reference.logp[0]
    return children


def _predict(
    process: Process, canvas: Canvas, step: int, rng: np.random.Generator, heat: float
) -> Generator[Any, Any, tuple[Any, Ints, int]]:
    """One row per distinct canvas that is not finished; row −1 stands for a finished one.

    The heat is on while at least half of the canvases are copies of others.
    """
    first, kind = distinct(canvas.tokens)
    open_ = process.is_open(canvas.tokens[first])
    rows = int(open_.sum())
    if not rows:
        return None, np.full(kind.size, -1), 0
    row_of_kind = np.where(open_, np.cumsum(open_) - 1, -1)
    collapsed = 2 * first.size <= kind.size
    prediction = yield process.ask(
        canvas.tokens[first[open_]], step, rng, heat if collapsed else 1.0
    )
    return prediction, row_of_kind[kind], rows


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a step thinks of its children."""

    score: Floats  # (children,) NaN where nothing was scored
    known: Floats  # (children,) the score, or the last one known of the lineage
    parts: list[Mapping[str, float]]
    log_weight: Floats
    memory: Memory


def _judge(
    process: Process,
    scorer: Scorer,
    plan: Plan,
    children: Children,
    clean: CleanText,
    index: int,
    *,
    due: bool,
) -> _Judged:
    """Score the clean texts where the method does, and multiply the potentials in."""
    last = index == process.steps - 1
    if not ((plan.scored == "every step" and due) or (plan.scored == "at the end" and last)):
        missing = np.full(len(clean.tokens), np.nan)
        score, parts = missing, [_NO_PARTS] * len(clean.tokens)
    else:
        score, parts = scorer(clean, f"step {index + 1} of {process.steps}")
    memory, log_weight = children.memory, children.log_weight
    if plan.weight == "confidence" or not np.isnan(score).any():
        progress = (index + 1) / process.steps
        tilted, lam = TILTS[plan.tilt](score, plan.lam, progress, plan.ess_target)
        memory = memory.after(tilted)
        potential = WEIGHTS[plan.weight](children, memory, tilted, lam, last)
        log_weight, memory = log_weight + potential, memory.pay(potential)
    known = np.where(np.isnan(score), children.parent_score, score)
    return _Judged(score, known, parts, log_weight, memory)


_NO_PARTS: Mapping[str, float] = {}


def _resample(
    children: Children,
    judged: _Judged,
    plan: Plan,
    rng: np.random.Generator,
    count: int,
    due: bool,
    pinned: bool,
) -> tuple[Ints, Floats, bool]:
    """Survivors' indices, the weights they carry on, and whether they were resampled; a pinned
    first child survives for sure, and only the others are drawn."""
    log_weight = judged.log_weight
    if plan.resampling is None or not due:
        return np.arange(log_weight.size), log_weight, False
    if plan.ess_threshold is not None:
        ess = effective_sample_size(normalise(log_weight))
        if ess >= plan.ess_threshold * log_weight.size:
            kept, carried = _one_child_each(log_weight, int(children.parent[-1]) + 1, rng)
            return kept, carried, False
    offspring = RESAMPLERS[plan.resampling](log_weight, count - pinned, rng)
    offspring[0] += pinned
    return np.repeat(np.arange(offspring.size), offspring), np.zeros(count), True


def _one_child_each(
    log_weight: Floats, particles: int, rng: np.random.Generator
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
    children: Children,
    clean: CleanText,
    judged: _Judged,
    kept: Ints,
    rows: int,
    resampled: bool,
) -> Step:
    weight = normalise(judged.log_weight)
    top = float(judged.log_weight.max())
    return Step(
        index=index,
        total=process.steps,
        tokens=children.canvas.tokens,
        logp=children.canvas.logp,
        clean=clean.tokens,
        parent=children.parent,
        score=judged.score,
        parts=judged.parts,
        confidence=clean.confidence,
        weight=weight,
        survivor=kept,
        ess=effective_sample_size(weight),
        unique_ancestors=len(set(children.parent[kept].tolist())),
        log_normaliser=top - math.log(weight.size * float(weight.max())),
        rows=rows,
        resampled=resampled,
    )
