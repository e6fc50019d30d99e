"""Algorithm 1, once for all methods: expand → predict → score → weigh → resample.

`search` is a generator that owns no model. It yields a request whenever it needs a prediction, or the
scores of a verifier that takes many texts at once, and is sent the answer; it yields a `Step` after every denoising step, which nobody can change; it returns
the `Outcome`. Whoever drives it (engine.py) may run many searches side by side in one forward pass.

The look-ahead pass on a child is the pass it is next expanded from, so a step costs at most N·b
forward passes; canvases that are equal token for token are forwarded once and verified once.

A process has a schedule, and then every search takes all its steps; or it is adaptive: every canvas
is filled at its own pace, and the search ends with the step after which all are finished.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from s3dlm.search.expand import expand
from s3dlm.search.particles import (
    Canvas,
    CanvasPredictions,
    Children,
    CleanText,
    Floats,
    Lineage,
    Particles,
    Process,
    distinct,
)
from s3dlm.search.resample import RESAMPLERS, effective_sample_size, normalise
from s3dlm.search.score import Scorer, Scores
from s3dlm.search.step import FINISHED, SATISFIED, SPENT, Kept, Outcome, Step
from s3dlm.search.weigh import weigh

if TYPE_CHECKING:
    from s3dlm.settings import Settings

Search = Generator[Any, Any, Outcome]


def search(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    rng: np.random.Generator,
    limit: int | None = None,
    *,
    start: Canvas | None = None,
    pinned: Sequence[Canvas] = (),
) -> Search:
    """Run one prompt's search; see the module's docstring for what is yielded and sent.

    With a start, the particles begin there and not on an empty canvas. With a pinned trajectory, one
    canvas per step, the first particle follows it to its end and always survives (conditional SMC).
    At the limit of forward passes, or at a score that is enough, the look-ahead is the answer.
    """
    particles = yield from _begin(process, scorer, settings, start, rng)
    nfe, nfe_logical = particles.prediction.nfe, process.passes
    blocks = 0
    for t in range(process.steps):
        before, blocks = blocks, process.progress(particles.canvas.tokens, t).blocks
        acts = settings.cadence == "step" or blocks > before
        branching = settings.children if acts else 1
        children = expand(process, particles, branching, settings.child_sampling, t, rng)
        if pinned:
            _follow(children, pinned[min(t, len(pinned) - 1)], particles.canvas)
        if limit is not None and nfe + _price(process, children.canvas) > limit:
            return (yield from _cut(process, scorer, settings, particles, t, nfe, nfe_logical))
        now = _Moment.of(t, process, settings, children, acts=acts)
        prediction = yield from _predict(process, children.canvas, t + 1, rng)
        clean, scores = yield from _look(process, scorer, children, prediction, now)
        log_weight, lineage = _weigh(settings, children, scores, now)
        satisfied = scorer.satisfied(scores)
        if enough := bool(satisfied.any()):
            best = int(np.where(satisfied, scores.total, -1).argmax())
            kept = _reveal(children, clean, best)
        else:
            kept = _resample(settings, log_weight, len(particles), now, rng, pinned=len(pinned) > 0)
        yield Step.of(t, process.steps, children, clean, scores, log_weight, kept, prediction.nfe)
        nfe += prediction.nfe
        nfe_logical += len(particles) * branching * process.passes
        particles = _survive(children, prediction, scores, lineage, kept)
        if now.last or enough:
            break
    return Outcome(
        particles,
        clean.take(kept.index),
        scores.take(kept.index),
        nfe,
        nfe_logical,
        SATISFIED if enough else FINISHED,
    )


def relay(
    running: Generator[Any, Any, Any], change: Callable[[Step], Step]
) -> Generator[Any, Any, Any]:
    """A search whose steps are changed on their way to whoever watches it."""
    reply = None
    while True:
        try:
            said = running.send(reply)
        except StopIteration as end:
            return end.value
        reply = yield change(said) if isinstance(said, Step) else said


def _look(
    process: Process,
    scorer: Scorer,
    children: Children,
    prediction: CanvasPredictions,
    now: _Moment,
) -> Generator[Any, Any, tuple[CleanText, Scores]]:
    """What each child would say if it were complete, and how good that is. Of several look-aheads
    the best counts: they come from one forward pass, and a verifier is cheap beside it."""
    every = process.look_ahead(children.canvas, prediction, sampled=now.scored)
    if not now.scored:
        return every, Scores.missing(len(children))
    scores = yield from scorer.ask(every, str(now))
    rank = scores.total + scorer.satisfied(scores)
    best = rank.reshape(-1, len(children)).argmax(axis=0)  # the usual one if it is as good
    index = best * len(children) + np.arange(len(children))
    return every.take(index), scores.take(index)


def _reveal(children: Children, clean: CleanText, best: int) -> Kept:
    """This child alone survives, and its look-ahead is its text."""
    children.canvas.tokens[best], children.canvas.logp[best] = clean.tokens[best], clean.logp[best]
    return Kept(np.array([best]), np.zeros(1), resampled=False)


def _price(process: Process, canvas: Canvas) -> int:
    """Forward passes that a prediction of these canvases takes."""
    first, _ = distinct(canvas.tokens)
    return int(process.is_open(canvas.tokens[first]).sum()) * process.passes


def _cut(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    particles: Particles,
    step: int,
    nfe: int,
    nfe_logical: int,
) -> Generator[Any, Any, Outcome]:
    """The end of a search that cannot pay for its next step: what it would say now."""
    clean = process.look_ahead(particles.canvas, particles.prediction)
    count, text = len(particles), Canvas(clean.tokens, clean.logp)
    scores = Scores.missing(count)
    if settings.row.scored != "never":
        scores = yield from scorer.ask(clean, "the end of the budget")
    children = Children(
        text,
        np.arange(count),
        particles.score,
        particles.log_weight,
        particles.lineage,
        np.zeros(count),
    )
    kept = Kept(np.arange(count), particles.log_weight, resampled=False)
    yield Step.of(step, process.steps, children, clean, scores, particles.log_weight, kept, 0)
    ended = replace(particles, canvas=text, score=scores.total)
    return Outcome(ended, clean, scores, nfe, nfe_logical, SPENT)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What a method does at one step, once the children are known."""

    step: int
    steps: int
    acts: bool
    last: bool
    survivors: int
    scored: bool

    @classmethod
    def of(
        cls, step: int, process: Process, settings: Settings, children: Children, *, acts: bool
    ) -> _Moment:
        done, whole, _ = process.progress(children.canvas.tokens, step)
        last = done == whole or step == process.steps - 1
        acts = acts or last
        scored = {"never": False, "at the end": last, "every step": acts}[settings.row.scored]
        return cls(step, process.steps, acts, last, settings.survivors(done - 1, whole), scored)

    def __str__(self) -> str:
        return f"step {self.step + 1} of {self.steps}"


def _begin(
    process: Process,
    scorer: Scorer,
    settings: Settings,
    start: Canvas | None,
    rng: np.random.Generator,
) -> Generator[Any, Any, Particles]:
    """Particles that know the score of their first look-ahead; equal ones share a forward pass."""
    canvas = process.start().take(np.zeros(settings.size, np.int64)) if start is None else start
    prediction = yield from _predict(process, canvas, 0, rng)
    score = np.full(len(canvas.tokens), np.nan)
    if settings.row.scored == "every step":
        clean = process.look_ahead(canvas, prediction)
        score = (yield from scorer.ask(clean, "the first look-ahead")).total
    return Particles(canvas, prediction, score, np.zeros(score.size), Lineage.begin(score))


def _follow(children: Children, pinned: Canvas, before: Canvas) -> None:
    """The first child is the pinned trajectory's next canvas."""
    children.canvas.tokens[0], children.canvas.logp[0] = pinned.tokens[0], pinned.logp[0]
    children.step_logp[0] = pinned.logp[0].sum() - before.logp[0].sum()


def _predict(
    process: Process, canvas: Canvas, step: int, rng: np.random.Generator
) -> Generator[Any, Any, CanvasPredictions]:
    """One prediction per distinct canvas that is not finished."""
    first, kind = distinct(canvas.tokens)
    open_ = process.is_open(canvas.tokens[first])
    nfe = int(open_.sum()) * process.passes
    if not nfe:
        return CanvasPredictions(None, np.full(kind.size, -1), 0)
    row_of_kind = np.where(open_, np.cumsum(open_) - 1, -1)
    value = yield process.ask(canvas.tokens[first[open_]], step, rng)
    return CanvasPredictions(value, row_of_kind[kind], nfe)


def _weigh(
    settings: Settings, children: Children, scores: Scores, now: _Moment
) -> tuple[Floats, Lineage]:
    """Log-weights after this step; a step that a scoring method leaves unscored changes none."""
    if settings.row.scored != "never" and not now.scored:
        return children.log_weight, children.lineage
    return weigh(settings.row.weight, settings.lam, children, scores.total, last=now.last)


def _resample(
    settings: Settings,
    log_weight: Floats,
    particles: int,
    now: _Moment,
    rng: np.random.Generator,
    *,
    pinned: bool,
) -> Kept:
    """Who survives; a pinned first child does for sure, and only the others are drawn."""
    if settings.resampling is None or not now.acts:
        return Kept(np.arange(log_weight.size), log_weight, resampled=False)
    if settings.ess_threshold is not None:
        ess = effective_sample_size(normalise(log_weight))
        if ess >= settings.ess_threshold * log_weight.size:
            return _one_child_each(log_weight, particles, rng)
    count = now.survivors
    offspring = RESAMPLERS[settings.resampling](log_weight, count - pinned, rng)
    offspring[0] += pinned
    return Kept(np.repeat(np.arange(offspring.size), offspring), np.zeros(count), resampled=True)


def _one_child_each(log_weight: Floats, particles: int, rng: np.random.Generator) -> Kept:
    """Without resampling, every particle continues as one of its own children, chosen by weight; it
    carries their mean, which keeps the estimate unbiased."""
    family = log_weight.reshape(particles, -1)
    top = family.max(axis=1, keepdims=True)
    shares = np.exp(family - top)
    edges = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    chosen = (edges <= rng.random((particles, 1))).sum(axis=1)
    kept = np.arange(particles) * family.shape[1] + chosen
    return Kept(kept, top[:, 0] + np.log(shares.mean(axis=1)), resampled=False)


def _survive(
    children: Children, prediction: CanvasPredictions, scores: Scores, lineage: Lineage, kept: Kept
) -> Particles:
    """The survivors, with the last score known of each lineage."""
    known = np.where(np.isnan(scores.total), children.parent_score, scores.total)
    return Particles(
        children.canvas.take(kept.index),
        prediction.take(kept.index),
        known[kept.index],
        kept.log_weight,
        lineage.take(kept.index),
    )
