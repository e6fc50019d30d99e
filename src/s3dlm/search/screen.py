"""Screening: many children of one prediction are read as far as they are known, and few are forwarded.

A forward pass predicts all masked positions, so it offers any number of children for the price of one.
`screen=K` draws K candidates per particle, scores their partial texts, weighs them with exp(λ·score) and
resamples them to as many as a step forwards without it. Only the survivors are paid for: N passes per
step judge N·K children, where the look-ahead of S³ pays a pass for every child that it judges.

Two draws make one resampling: first how many children each particle has, by the mean weight of its
candidates, then which of them, by their own weight. A method that never resamples leaves every particle
its own. Rows that target p·exp(λ·f) divide by the score of the parent and pay back the last one, so that
screening changes how well they sample and not what (`Lineage.partial`, weigh.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from s3dlm.search.expand import expand
from s3dlm.search.particles import Children, Floats, Ints, Particles, distinct
from s3dlm.search.resample import RESAMPLERS, is_even
from s3dlm.search.step import Searching, Setup


def screen(
    setup: Setup, particles: Particles, branching: int, step: int, *, resamples: bool
) -> Searching[Children]:
    """As many children as `expand` would make of these particles, chosen by their partial texts;
    `resamples` says whether a particle may have more of them than another at this step."""
    settings, each = setup.settings, max(setup.settings.screen, branching)
    candidates = expand(setup, particles, each, step, sampling="independent")
    where = f"screening before step {step + 2} of {setup.process.steps}"
    score = yield from setup.scorer.score_partial(candidates.canvas.tokens, where)
    gain = settings.lam * (score - candidates.lineage.partial)
    weight = particles.log_weight + _log_mean(gain.reshape(-1, each))
    share, carried = _shares(setup, weight, branching, resamples=resamples)
    if settings.resampling is None and not settings.row.has_target:
        carried = particles.log_weight  # nobody asks for it
    # Equal parents choose together where their children must differ.
    apart, row = settings.child_sampling != "independent", particles.prediction.row
    kin = np.where(row >= 0, row, row.size + np.arange(row.size)) if apart else np.arange(row.size)
    picked, parent = [], []
    for group in np.unique(kin):
        (members,) = np.nonzero(kin == group)
        if not share[members].any():
            continue
        pool = (members[:, None] * each + np.arange(each)).reshape(-1)
        tokens = candidates.canvas.tokens[pool] if apart else None
        picked.append(pool[_pick(setup, gain[pool], int(share[members].sum()), tokens)])
        parent.append(np.repeat(members, share[members]))
    parents = np.concatenate(parent)
    order = np.argsort(parents, kind="stable")
    parents, index = parents[order], np.concatenate(picked)[order]
    lineage = particles.lineage.take(parents)
    if settings.row.has_target:
        lineage = replace(lineage, partial=score[index])
    return Children(
        candidates.canvas.take(index), parents, particles.score[parents], carried[parents], lineage,
        candidates.step_logp[index],
    )  # fmt: skip


def _shares(
    setup: Setup, weight: Floats, branching: int, *, resamples: bool
) -> tuple[Ints, Floats]:
    """How many children each particle has, and the log-weight that each of them carries on."""
    settings = setup.settings
    equal = np.full(weight.size, branching)
    if settings.resampling is None or not resamples or not np.ptp(weight):
        return equal, weight
    if is_even(weight, settings.ess_threshold):
        return equal, weight
    offspring = RESAMPLERS[settings.resampling](weight, weight.size * branching, setup.rng)
    return offspring, np.full(weight.size, _log_mean(weight[None])[0])


def _pick(setup: Setup, gain: Floats, count: int, tokens: Ints | None) -> Ints:
    """Which candidates of equal parents live on, this many in all. If they must differ, given by their
    tokens, they are drawn without replacement first, so that the likeliest is not taken twice."""
    resampler = RESAMPLERS[setup.settings.resampling or "ssp"]
    chosen = np.arange(gain.size)
    if tokens is not None:
        first, kind = distinct(tokens)
        noise = setup.rng.gumbel(size=first.size)
        keys = np.log(np.bincount(kind)) + gain[first] + noise  # ∝ how often drawn · exp(gain)
        chosen = np.sort(first[np.argsort(-keys)[:count]])
    if not np.ptp(gain[chosen]):  # nothing is told apart: as they were drawn
        return chosen[np.arange(count) % chosen.size]
    return np.repeat(chosen, resampler(gain[chosen], count, setup.rng))


def _log_mean(logs: Floats) -> Floats:
    """log of the mean of exp, row by row."""
    top = logs.max(axis=1, keepdims=True)
    means: Floats = top[:, 0] + np.log(np.exp(logs - top).mean(axis=1))
    return means
