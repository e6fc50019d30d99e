"""S³, the paper's Algorithm 1, and its relatives: sequential Monte Carlo over partly denoised answers.

They differ in the potential, the factor by which a step multiplies each child's weight (Eq. 8), and in
how they resample. `S3` itself weighs by exp(λ·s), anew at every step. `Twisted` divides by the parent's
own exp(λ·s), so that the factors of a lineage telescope and the population targets p·exp(λ·f) (Eq. 3); it
is also the difference potential of Feynman–Kac steering, whose max and sum potentials pay back in the last
step what they overpaid. `PathLikelihood` and `SelfRewarding` need no verifier: their potential is the
model's own probability of what a step revealed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import model_validator

from s3dlm.errors import SettingsError
from s3dlm.search.expand import CHILD_SAMPLINGS, OVERSAMPLING
from s3dlm.search.method import Ending, Method, Verified
from s3dlm.search.options import OneOf, Share, Size, more, setting
from s3dlm.search.particles import (
    Ahead,
    Canvas,
    Children,
    Floats,
    Ints,
    Lineage,
    Particles,
    Survivors,
)
from s3dlm.search.resample import RESAMPLERS, normalise
from s3dlm.search.run import Run
from s3dlm.search.score import Scores
from s3dlm.search.step import FINISHED, Outcome, Step

if TYPE_CHECKING:
    from s3dlm.diffusion.decoding import Decoding

PAPER, ABLATION = "S³, Bilal et al. 2026", "S³, ablation"
STEERING = "FK steering, Singhal et al. 2025"
Resampler = Annotated[str, OneOf("resampling", RESAMPLERS)]
ChildSampling = Annotated[str, OneOf("child_sampling", CHILD_SAMPLINGS)]
Cadence = Literal["step", "block"]


class S3(Method):
    """The paper's search (Algorithm 1)."""

    name = "s3"
    summary = "the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling"
    source = PAPER
    weighs = tilts = True

    particles: Size = setting(4, "partly denoised answers kept after every step (N)")
    branching: int = setting(2, "children per particle and step (b)", ge=1, le=1024)
    lam: float = setting(1.0, "how strongly scores tilt the weights: λ in exp(λ·score)", ge=0)
    resampling: Resampler = setting("ssp", "how survivors are drawn from the weights")
    look_aheads: int = setting(
        1, "texts read per child, from one forward pass; the best counts", ge=1, le=1000
    )
    child_sampling: ChildSampling = more(
        "independent", "whether the children of a step must differ"
    )
    ess_threshold: Share | None = more(
        None, "resample only when the effective sample size falls below this share"
    )
    cadence: Cadence = more("step", "branch, score and resample at every step or at block ends")

    async def search(self, run: Run) -> Particles:
        """Algorithm 1, line by line; the vote of line 16 is `selection` (select.py)."""
        scored = self.verified == "every step"
        particles = await run.begin(self.size, verified=scored)  # line 1: all masked
        while particles.open:  # line 2: t = T, …, 1
            children = run.expand(  # lines 3–6: x_{t−1} ~ p(· | x_t), b of each particle
                particles, self.children, self.child_sampling, cadence=self.cadence
            )
            ahead = await run.predict(children)  # line 7, Eq. 6: x̂_0, and the next step's proposal
            looked = await run.verify(ahead, wanted=scored and children.branched)  # line 8, Eq. 7
            weight, lineage = self.weigh(children, ahead, looked[1])  # line 11, Eq. 8: log w̃
            particles = run.resample(  # lines 12–14: normalise, ξ = N·w, SSP
                children, ahead, looked, weight, self.size, self.resampling,
                ess_threshold=self.ess_threshold, lineage=lineage,
            )  # fmt: skip
        return particles

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        """The log-potential of each child: λ·s. Relatives override it.

        Args:
            children: Of this step.
            ahead: What the model predicts for them.
            score: Of their look-aheads; NaN where the method never scores.
            lineage: What is known of each child's past, this score included.
        """
        return self.lam * score

    def weigh(self, children: Children, ahead: Ahead, scores: Scores) -> tuple[Floats, Lineage]:
        """Each child's log-weight after this step, and its lineage; unchanged between two scores."""
        if not children.branched and self.verified == "every step":
            return children.log_weight, children.lineage
        lineage = children.lineage.after(scores.total)
        potential = self.potential(children, ahead, scores.total, lineage)
        return children.log_weight + potential, lineage.apply(potential)

    @model_validator(mode="after")
    def _children_fit(self) -> Self:
        if self.child_sampling == "filled" and self.ess_threshold is not None:
            raise SettingsError(
                f"child_sampling='filled' and ess_threshold={self.ess_threshold} exclude each other: below "
                "the threshold every particle continues as one of its own children, and 'filled' may "
                "leave it none; choose child_sampling='distinct' or no threshold"
            )
        if self.child_sampling == "filled" and not self.fills:
            raise SettingsError(
                f"child_sampling='filled' changes nothing in method={self.name!r}: only a method that "
                "branches can fill a step; leave it out"
            )
        return self

    @property
    def fills(self) -> bool:
        """Whether its particles branch."""
        return True

    @property
    def children(self) -> int:
        return self.branching

    @property
    def draws(self) -> int:
        spare = 1 if self.child_sampling == "independent" else OVERSAMPLING
        return self.size * self.children * spare


class S3Paper(S3):
    name = "s3_paper"
    summary = "s3 with the paper's λ = 1, whatever the model recommends"
    like = "s3"

    lam: ClassVar[float] = 1.0  # type: ignore[misc]


class S3Verified(S3):
    name = "s3_verified"
    summary = "s3 that ends with the text of the best score instead of a vote"
    source = "ours"

    selection: Ending = setting("verified", "how the answer is chosen among the survivors")


class TopN(S3):
    name = "top_n"
    summary = "search with look-ahead scores; the N best are kept at every step"
    source = ABLATION
    weighs = tilts = False

    lam: ClassVar[float] = 1.0  # type: ignore[misc]
    resampling: Resampler = setting("top", "how survivors are drawn from the weights")


class Twisted(S3):
    name = "twisted"
    summary = "s3 whose weights divide by the parent's, so that it samples p·exp(λ·score)"
    source = "ours"

    selection: Ending = setting("weighted", "how the answer is chosen among the survivors")

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return self.lam * (score - children.parent_score)


class Steering(S3):
    """K = N·b particles that do not branch."""

    source = STEERING

    resampling: Resampler = setting("multinomial", "how survivors are drawn from the weights")
    ess_threshold: Share | None = more(
        0.5, "resample only when the effective sample size falls below this share"
    )
    selection: Ending = setting("verified", "how the answer is chosen among the survivors")

    @property
    def size(self) -> int:
        return self.particles * self.branching

    @property
    def children(self) -> int:
        return 1

    @property
    def fills(self) -> bool:
        return False

    def sized(self, size: int) -> Self:
        return self.model_copy(update={"particles": size, "branching": 1})


class FkDifference(Steering):
    name = "fk_difference"
    summary = "Feynman–Kac steering of K particles by the gain in score"

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return self.lam * (score - children.parent_score)


class FkMax(Steering):
    name = "fk_max"
    summary = "Feynman–Kac steering of K particles by the highest score so far"

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return _settle(self.lam, children, score, lineage, lineage.max_score)


class FkSum(Steering):
    name = "fk_sum"
    summary = "Feynman–Kac steering of K particles by the sum of scores"

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return _settle(self.lam, children, score, lineage, lineage.sum_score)


def _settle(
    lam: float, children: Children, score: Floats, lineage: Lineage, summary: Floats
) -> Floats:
    """λ times a summary of the scores; in the last step the final score, less all that was applied."""
    return lam * score - lineage.applied if children.last else lam * summary


class SelfRewarding(Steering):
    name = "self_rewarding"
    summary = (
        "K particles weighted by the log p of what they revealed, resampled at block ends when the "
        "ESS is below half; the answer with the largest total log p"
    )
    source = "as in self-rewarding SMC, Luo et al. 2026"
    verified: ClassVar[Verified] = "never"
    tilts = False

    branching: int = setting(1, "children per particle and step (b)", ge=1, le=1024)
    lam: ClassVar[float] = 1.0  # type: ignore[misc]
    look_aheads: ClassVar[int] = 1  # type: ignore[misc]
    cadence: Cadence = more("block", "branch, score and resample at every step or at block ends")
    selection: Ending = setting("likeliest", "how the answer is chosen among the survivors")

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return children.step_logp


class PathLikelihood(S3):
    name = "path_likelihood"
    summary = (
        "s3 with the path's log-likelihood as value and no verifier: it samples p·exp(λ·log p)"
    )
    source = "path log-likelihood, Liu et al. 2026"
    verified: ClassVar[Verified] = "never"
    tilts = False

    look_aheads: ClassVar[int] = 1  # type: ignore[misc]

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return self.lam * children.step_logp


class LookUM(S3):
    name = "lookum"
    summary = (
        "at every step b sets of positions out of the five surest; one is drawn by how sure the model "
        "then is of the rest"
    )
    source = "after LookUM, Lee et al. 2025"
    verified: ClassVar[Verified] = "never"
    tilts = False
    fixed: ClassVar[dict[str, Any]] = {
        "reveal": "schedule", "reveal_threshold": 0.98, "edit_threshold": None, "policy": "pool",
    }  # fmt: skip

    particles: Size = setting(1, "partly denoised answers kept after every step (N)")
    resampling: Resampler = setting("multinomial", "how survivors are drawn from the weights")
    look_aheads: ClassVar[int] = 1  # type: ignore[misc]

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        certainty = ahead.prediction.certainty()
        assert certainty is not None, "its policy asks for entropies"
        return self.lam * certainty


class ParticleGibbs(S3):
    """Conditional SMC: after each sweep one trajectory, drawn by weight, is pinned in the next, where the
    first particle follows it to its end and always survives."""

    name = "particle_gibbs"
    summary = "b conditional sweeps of N particles around a kept trajectory"
    source = "particle Gibbs, Dang et al. 2025"
    meets_again = True
    cost = "b·(1 + T·N)"

    resampling: Resampler = setting("multinomial", "how survivors are drawn from the weights")
    selection: Ending = setting("verified", "how the answer is chosen among the survivors")

    @property
    def children(self) -> int:
        return 1

    @property
    def fills(self) -> bool:
        return False

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
            outcome = await run.attempt(sweep, rows=rows, limit=left, round=round, places=places)
            nfe, logical, places = nfe + outcome.nfe, logical + outcome.nfe_logical, None
            spent = limit is not None and limit - nfe < run.process.passes
            if outcome.stopped != FINISHED or spent:
                break
            survivor = int(run.rng.choice(len(outcome), p=normalise(outcome.log_weight)))
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
            weight, lineage = self.weigh(children, ahead, looked[1])
            free = self.size - (first is not None)
            survivors = run.draw(children, weight, free, self.resampling, self.ess_threshold)
            if first is not None and survivors.resampled:
                index = np.append(0, survivors.index)
                survivors = Survivors(index, np.zeros(index.size), resampled=True)
            particles = run.survive(children, ahead, looked, weight, survivors, lineage)
            assert run.last is not None
            path.append(run.last)

    def potential(
        self, children: Children, ahead: Ahead, score: Floats, lineage: Lineage
    ) -> Floats:
        return self.lam * (score - children.parent_score)


def _trajectory(steps: list[Step], survivor: int) -> list[Canvas]:
    """The canvases that led to a survivor of the last step."""
    path: list[Canvas] = []
    for step in reversed(steps):
        child = int(step.survivor[survivor])
        path.insert(0, Canvas(step.tokens[[child]], step.logp[[child]]))
        survivor = int(step.parent[child])
    return path
