"""Sequential Monte Carlo of other papers: relatives of `S3` with other potentials.

Feynman–Kac steering weighs by the gain, the maximum or the sum of the scores; the last two pay back in
the last step what they overpaid. `PathLikelihood` and `SelfRewarding` need no verifier: their potential
is the model's own probability of what a step revealed. `ParticleGibbs` repeats conditional sweeps.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from s3dlm.search.method import (
    Branching,
    Cadence,
    Ending,
    EssThreshold,
    Population,
    Resampler,
    Verified,
)
from s3dlm.search.particles import Canvas, Children, Floats, Ints, Looked, Survivors
from s3dlm.search.resample import normalised, survivors_of
from s3dlm.search.rounds import attempt
from s3dlm.search.run import Run
from s3dlm.search.smc import S3, Twisted
from s3dlm.search.step import FINISHED, Outcome, Step

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding


class Steering(S3):
    """K = N·b particles that do not branch."""

    source = "FK steering, Singhal et al. 2025"

    resampling: Resampler = "multinomial"
    ess_threshold: EssThreshold = 0.5
    selection: Ending = "verified"

    @property
    def size(self) -> int:
        return self.particles * self.branching

    @property
    def children(self) -> int:
        return 1

    def sized(self, size: int) -> Self:
        return self.model_copy(update={"particles": size, "branching": 1})


class FkDifference(Steering):
    name = "fk_difference"
    summary = "Feynman–Kac steering of K particles by the gain in score"

    potential = Twisted.potential


class FkMax(Steering):
    name = "fk_max"
    summary = "Feynman–Kac steering of K particles by the highest score so far"

    def past(self, history: Floats) -> Floats:
        """(children, scores) what counts of the scores up to each of them."""
        return np.asarray(np.maximum.accumulate(history, axis=1))

    def potential(self, children: Children, looked: Looked) -> Floats:
        """λ times that; in the last step λ times the final score, less all that was applied."""
        potentials = self.lam * self.past(np.column_stack([children.history, looked.score]))
        if children.last:
            applied = sum(potentials[:, 1:-1].T, np.zeros(len(children)))
            return self.lam * looked.score - applied
        return potentials[:, -1]


class FkSum(FkMax):
    name = "fk_sum"
    summary = "Feynman–Kac steering of K particles by the sum of scores"

    def past(self, history: Floats) -> Floats:
        return np.cumsum(history, axis=1)


class SelfRewarding(Steering):
    name = "self_rewarding"
    summary = (
        "K particles weighted by the log p of what they revealed, resampled at block ends when the "
        "ESS is below half; the answer with the largest total log p"
    )
    source = "as in self-rewarding SMC, Luo et al. 2026"
    verified: ClassVar[Verified] = "never"

    branching: Branching = 1
    lam: ClassVar[float] = 1.0  # type: ignore[misc]
    look_aheads: ClassVar[int] = 1  # type: ignore[misc]
    cadence: Cadence = "block"
    selection: Ending = "likeliest"

    def potential(self, children: Children, looked: Looked) -> Floats:
        return children.step_logp


class PathLikelihood(S3):
    name = "path_likelihood"
    summary = (
        "s3 with the path's log-likelihood as value and no verifier: it samples p·exp(λ·log p)"
    )
    source = "path log-likelihood, Liu et al. 2026"
    verified: ClassVar[Verified] = "never"

    look_aheads: ClassVar[int] = 1  # type: ignore[misc]

    def potential(self, children: Children, looked: Looked) -> Floats:
        return self.lam * children.step_logp


class LookUM(S3):
    name = "lookum"
    summary = (
        "at every step b sets of positions out of the five surest; one is drawn by how sure the model "
        "then is of the rest"
    )
    source = "after LookUM, Lee et al. 2025"
    verified: ClassVar[Verified] = "never"
    fixed: ClassVar[dict[str, Any]] = {
        "reveal": "schedule", "reveal_threshold": 0.98, "policy": "pool",
    }  # fmt: skip

    particles: Population = 1
    resampling: Resampler = "multinomial"
    look_aheads: ClassVar[int] = 1  # type: ignore[misc]

    def potential(self, children: Children, looked: Looked) -> Floats:
        """λ times minus the mean entropy of what the open block hides, 0 where nothing is hidden."""
        value, row = looked.prediction.value, looked.prediction.row
        if value is None:
            return np.zeros(row.size)
        assert value.entropy is not None, "its policy asks for entropies"
        mean = np.nanmean(value.entropy, axis=1)
        return self.lam * np.where(row < 0, 0.0, -mean[row])


class ParticleGibbs(S3):
    """Conditional SMC: after each sweep one trajectory, drawn by weight, is pinned in the next, where the
    first particle follows it to its end and always survives."""

    name = "particle_gibbs"
    summary = "b conditional sweeps of N particles around a kept trajectory"
    source = "particle Gibbs, Dang et al. 2025"
    meets_again = True
    cost = "b·(1 + T·N)"

    resampling: Resampler = "multinomial"
    selection: Ending = "verified"

    @property
    def children(self) -> int:
        return 1

    def passes(self, steps: int, decoding: Decoding) -> int:
        return self.branching * (1 + steps * self.size)

    def texts(self, steps: int) -> int:
        return self.branching * super().texts(steps)

    async def once(
        self, run: Run, *, limit: int | None = None, round: int | None = None,
        places: Ints | None = None,
    ) -> Outcome:  # fmt: skip
        path, pinned = list[Step](), list[Canvas]()
        nfe = logical = 0
        for _ in range(self.branching):
            left = None if limit is None else limit - nfe
            sweep = partial(self._sweep, path, pinned)
            rows = self.size
            outcome = await attempt(run, sweep, rows=rows, limit=left, round=round, places=places)
            nfe, logical, places = nfe + outcome.nfe, logical + outcome.nfe_logical, None
            spent = limit is not None and limit - nfe < run.process.passes
            if outcome.stopped != FINISHED or spent:
                break
            survivor = int(run.rng.choice(len(outcome), p=normalised(outcome.log_weight)))
            pinned = _trajectory(path, survivor)
            path.clear()
        return replace(outcome, nfe=nfe, nfe_logical=logical)

    async def _sweep(self, path: list[Step], pinned: list[Canvas], run: Run) -> None:
        particles = await run.begin(self.size, verified=True)
        while particles.open:
            first = pinned[min(run.steps, len(pinned) - 1)] if pinned else None
            children = run.expand(
                particles, 1, self.child_sampling, cadence=self.cadence, first=first
            )
            ahead = await run.predict(children)
            looked = await run.verify(ahead, wanted=children.branched)
            weight = self.weigh(children, looked)
            free = self.size - (first is not None)
            survivors = survivors_of(
                children, weight, free, self.resampling, self.ess_threshold, run.rng
            )
            if first is not None and survivors.resampled:
                index = np.append(0, survivors.index)
                survivors = Survivors(index, np.zeros(index.size), resampled=True)
            particles = run.keep(children, looked, weight, survivors)
            path.append(run.told.steps[-1])

    potential = Twisted.potential


def _trajectory(steps: list[Step], survivor: int) -> list[Canvas]:
    """The canvases that led to a survivor of the last step."""
    path: list[Canvas] = []
    for step in reversed(steps):
        child = int(step.survivor[survivor])
        path.insert(0, Canvas(step.tokens[[child]], step.logp[[child]]))
        survivor = int(step.parent[child])
    return path
