"""Algorithm 1, once for all methods: expand (→ screen) → predict → score → weigh → resample.

`search` is a generator that owns no model. It yields a `Predict` or a `Verify` whenever it needs a
prediction or scores, and is sent them; it yields a `Step` after every denoising step, which no observer
can change; it returns the `Outcome`. Whoever drives it (engine.py) may run many searches side by side in
one forward pass. Whoever wraps it (rounds.py) may end it: by True as the reply to a step, or by no reply
to a request for a prediction; the outcome is then what the search has.

The look-ahead pass on a child is the pass it is next expanded from, so a step costs at most N·b
forward passes; canvases that are equal token for token are forwarded once and verified once, in the
whole search of a prompt (`step.Memo`).

A process has a schedule, and then every search takes all its steps; or every canvas is filled at its
own pace, and the search ends with the step after which all are finished.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

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
    Predict,
    Survivors,
    distinct,
)
from s3dlm.search.resample import RESAMPLERS, is_even
from s3dlm.search.score import PORTION, Scores
from s3dlm.search.screen import screen
from s3dlm.search.step import Outcome, Search, Searching, Setup, Step
from s3dlm.search.weigh import weigh


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a method does at one step, once the children are known."""

    branches_now: bool  # and then it scores and resamples, if it ever does
    done: float  # how much of the search is, from 0 to 1
    last: bool
    scored: bool
    survivors: int

    @classmethod
    def of(cls, setup: Setup, step: int, children: Children, *, branches: bool) -> StepPlan:
        process, settings = setup.process, setup.settings
        done, total, _ = process.progress(children.canvas.tokens, step)
        last = done == total or step == process.steps - 1
        now = branches or last
        scored = {"never": False, "at the end": last, "every step": now}[settings.row.scored]
        return cls(now, 1.0 if last else done / total, last, scored, settings.size)


def resample(setup: Setup, plan: StepPlan, log_weight: Floats, particles: int) -> Survivors:
    """Who survives a step, of the children that these many particles have."""
    settings, rng = setup.settings, setup.rng
    if settings.resampling is None or not plan.branches_now:
        return Survivors(np.arange(log_weight.size), log_weight, resampled=False)
    if is_even(log_weight, settings.ess_threshold):
        return _one_child_each(log_weight, particles, rng)
    offspring = RESAMPLERS[settings.resampling](log_weight, plan.survivors, rng)
    index = np.repeat(np.arange(offspring.size), offspring)
    return Survivors(index, np.zeros(plan.survivors), resampled=True)


def search(
    setup: Setup,
    *,
    start: Canvas | None = None,
    expand: Callable[[Setup, Particles, int, int], Children] = expand,
    resample: Callable[[Setup, StepPlan, Floats, int], Survivors] = resample,
) -> Search:
    """Run one prompt's search, on the process's own start or on these canvases; see the module's
    docstring for what is yielded and sent. Conditional SMC expands and resamples in its own way."""
    process, settings, judged = setup.process, setup.settings, setup.scorer.nfe
    particles = yield from _begin(setup, start)
    nfe = particles.prediction.nfe + setup.scorer.nfe - judged
    nfe_logical = process.passes + setup.scorer.nfe - judged
    blocks = process.progress(particles.canvas.tokens, -1).blocks
    for t in range(process.steps):
        judged = setup.scorer.nfe
        # With cadence='block', a method branches where a block ends by the schedule; where there is
        # none nobody knows that in advance, so it branches when all particles have left a block.
        before, blocks = blocks, process.progress(particles.canvas.tokens, t).blocks
        branches = settings.cadence == "step" or blocks > before
        branching = settings.children if branches else 1
        if settings.screen > 1:
            children = yield from screen(setup, particles, branching, t, resamples=branches)
        else:
            children = expand(setup, particles, branching, t)
        plan = StepPlan.of(setup, t, children, branches=branches)
        prediction = yield from predict(setup, children.canvas, t + 1)
        if prediction is None:
            clean = next(process.look_aheads(particles.canvas, particles.prediction))
            scores = Scores.missing(len(particles))
            break
        clean, scores = yield from _look_ahead(setup, t, children, prediction, plan)
        log_weight, lineage = children.log_weight, children.lineage
        if plan.scored or settings.row.scored == "never":
            seen = settings.row.weight, settings.lam, children, scores.total, prediction.certainty()
            log_weight, lineage = weigh(*seen, done=plan.done, last=plan.last)
        survivors = resample(setup, plan, log_weight, len(particles))
        judged = setup.scorer.nfe - judged  # by the model itself, if it is the judge
        place, made = (t, process.steps), (children.canvas, children.parent, clean, scores)
        spent = prediction.nfe + judged, 0 if t else nfe
        stop = yield Step.of(place, *made, log_weight, survivors, *spent)
        nfe += prediction.nfe + judged
        nfe_logical += len(particles) * branching * process.passes + judged
        particles = children.survive(survivors, prediction, scores.total, lineage)
        clean, scores = clean.take(survivors.index), scores.take(survivors.index)
        if plan.last or stop:
            break
    return Outcome(particles.canvas, particles.log_weight, clean, scores, nfe, nfe_logical)


def _begin(setup: Setup, start: Canvas | None) -> Searching[Particles]:
    """Particles that know the score of their first look-ahead; equal ones share a forward pass."""
    process, settings = setup.process, setup.settings
    canvas = process.start().take(np.zeros(settings.size, np.int64)) if start is None else start
    prediction = yield from predict(setup, canvas, 0)
    assert prediction is not None, "the first prediction of a search cannot be refused"
    score = np.full(len(canvas.tokens), np.nan)
    if settings.row.scored == "every step":
        clean = next(process.look_aheads(canvas, prediction))
        score = (yield from setup.scorer.score(clean, "the first look-ahead")).total
    return Particles(canvas, prediction, score, np.zeros(score.size), Lineage.begin(score))


def predict(setup: Setup, canvas: Canvas, step: int) -> Searching[CanvasPredictions | None]:
    """One prediction per distinct canvas that is not finished, forwarded unless the memo knows it; None
    if it is refused."""
    process, rng = setup.process, setup.rng
    first, kind = distinct(canvas.tokens)
    open_ = process.is_open(canvas.tokens[first])
    if not open_.any():
        return CanvasPredictions(None, np.full(kind.size, -1), 0)
    row_of_kind = np.where(open_, np.cumsum(open_) - 1, -1)
    state = rng.bit_generator.state
    tokens = canvas.tokens[first[open_]]
    rows = process.ask(tokens, step, rng)
    if setup.memo.capacity:
        rows = replace(rows, kept=setup.memo.recall(tokens), keep=True)
    request = Predict(rows)
    value = yield request
    if value is None:
        rng.bit_generator.state = state  # what is refused draws no random numbers
        return None
    assert not isinstance(value, list | bool)
    setup.memo.keep(tokens, value.kept)
    return CanvasPredictions(value, row_of_kind[kind], request.forwarded * process.passes)


def _look_ahead(
    setup: Setup, step: int, children: Children, prediction: CanvasPredictions, plan: StepPlan
) -> Searching[tuple[CleanText, Scores]]:
    """What each child would say if it were complete, and how good that is. Of several look-aheads
    the best counts: they come from one forward pass, and a verifier is cheap beside it. They are made
    and verified in portions, between which others have their turns."""
    looks = setup.process.look_aheads(children.canvas, prediction)
    if not plan.scored:
        return next(looks), Scores.missing(len(children))
    made, judged = list[CleanText](), list[Scores]()
    at_once = None if setup.scorer.verifier.batched else max(1, PORTION // len(children))
    while portion := list(islice(looks, at_once)):
        made.append(CleanText.join(portion))
        where = f"step {step + 1} of {setup.process.steps}"
        judged.append((yield from setup.scorer.score(made[-1], where)))
    texts, scores = CleanText.join(made), Scores.join(judged)
    if scores.total.size == len(children):  # one each
        return texts, scores
    rank = scores.total + setup.scorer.satisfied(scores.total, scores.spans)
    best = rank.reshape(-1, len(children)).argmax(axis=0)  # the likeliest if it is as good
    index = best * len(children) + np.arange(len(children))
    return texts.take(index), scores.take(index)


def _one_child_each(log_weight: Floats, particles: int, rng: np.random.Generator) -> Survivors:
    """Without resampling, every particle continues as one of its own children, chosen by weight; it
    carries their mean, which keeps the estimate unbiased."""
    family = log_weight.reshape(particles, -1)
    top = family.max(axis=1, keepdims=True)
    shares = np.exp(family - top)
    edges = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    chosen = (edges <= rng.random((particles, 1))).sum(axis=1)
    index = np.arange(particles) * family.shape[1] + chosen
    return Survivors(index, top[:, 0] + np.log(shares.mean(axis=1)), resampled=False)
