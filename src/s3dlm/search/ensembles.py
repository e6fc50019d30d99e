"""Ensembles of searches, for `Method.ensemble`: HEX's block lengths and particle Gibbs' sweeps.

Each runs the loop several times and speaks its language, as everything in rounds.py does.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from s3dlm.search.expand import expand
from s3dlm.search.loop import StepPlan, resample, search
from s3dlm.search.particles import Canvas, Children, Floats, Particles, Survivors
from s3dlm.search.resample import normalise
from s3dlm.search.rounds import bounded, one_search, relay, unrelated
from s3dlm.search.step import FINISHED, Outcome, Search, Setup, Step


def block_lengths(setup: Setup, limit: int | None = None) -> Search:
    """HEX: the particles are shared out over block lengths, which are searched one after the other."""
    process, settings = setup.process, setup.settings
    processes = process.with_block_lengths()
    shares = [len(range(first, settings.size, len(processes))) for first in range(len(processes))]
    affordable = None if limit is None else max(1, limit // process.passes)
    shares = [share for share in shares if share][:affordable]
    each = None if limit is None else limit // len(shares)
    outcomes: list[Outcome] = []
    for member, share in zip(processes, shares, strict=False):
        sized = settings.adapted(population="particles", particles=share)
        running = one_search(replace(setup, process=member, settings=sized), each)
        outcomes.append((yield from relay(running, unrelated) if outcomes else running))
    return Outcome.join(outcomes)


def sweeps(setup: Setup, limit: int | None = None) -> Search:
    """Particle Gibbs: after each sweep one trajectory, drawn by weight, is pinned in the next, where
    the first particle follows it to its end and always survives (conditional SMC)."""
    pinned: list[Canvas] = []  # one per step
    history: list[Step] = []

    def retrace(setup: Setup, particles: Particles, branching: int, step: int) -> Children:
        children = expand(setup, particles, branching, step)
        if pinned:
            canvas = pinned[min(step, len(pinned) - 1)]
            children.canvas.tokens[0], children.canvas.logp[0] = canvas.tokens[0], canvas.logp[0]
            children.step_logp[0] = canvas.logp[0].sum() - particles.canvas.logp[0].sum()
        return children

    def resample_others(setup: Setup, plan: StepPlan, weight: Floats, n: int) -> Survivors:
        free = replace(plan, survivors=plan.survivors - bool(pinned))
        survivors = resample(setup, free, weight, n)
        if not (pinned and survivors.resampled):
            return survivors
        index = np.append(0, survivors.index)
        return Survivors(index, np.zeros(index.size), resampled=True)

    def note(step: Step, first: bool) -> Step:
        history.append(step)
        return step

    nfe = nfe_logical = 0
    for _ in range(setup.settings.sweeps):
        history.clear()
        sweep = search(setup, expand=retrace, resample=resample_others)
        left = None if limit is None else limit - nfe
        outcome = yield from relay(bounded(sweep, setup, left), note)
        nfe, nfe_logical = nfe + outcome.nfe, nfe_logical + outcome.nfe_logical
        spent = limit is not None and limit - nfe < setup.process.passes
        if outcome.stopped != FINISHED or spent:
            break
        survivor = int(setup.rng.choice(len(outcome), p=normalise(outcome.log_weight)))
        pinned.clear()
        for step in reversed(history):
            child = int(step.survivor[survivor])
            pinned.insert(0, Canvas(step.tokens[[child]], step.logp[[child]]))
            survivor = int(step.parent[child])
    return replace(outcome, nfe=nfe, nfe_logical=nfe_logical)
