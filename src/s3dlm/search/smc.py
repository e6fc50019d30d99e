"""S³, the paper's Algorithm 1: sequential Monte Carlo over partly denoised answers.

Relatives override the potential, the factor by which a step multiplies each child's weight (Eq. 8).
`S3` itself weighs by exp(λ·s), anew at every step. `Twisted` divides by the parent's own exp(λ·s), so
that the factors of a lineage telescope and the population targets p·exp(λ·f) (Eq. 3). Those of other
papers are in `extras/published/steering.py`.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import model_validator

from s3dlm.errors import SettingsError
from s3dlm.search.method import (
    Branching,
    Cadence,
    ChildSampling,
    Ending,
    EssThreshold,
    Lambda,
    LookAheads,
    Method,
    Population,
    Resampler,
)
from s3dlm.search.particles import Children, Floats, Looked, Particles
from s3dlm.search.run import Run

S3_PAPER, S3_ABLATION = "S³, Bilal et al. 2026", "S³, ablation"


class S3(Method):
    """The paper's search (Algorithm 1)."""

    name = "s3"
    summary = "the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling"
    source = S3_PAPER
    weighs = True

    particles: Population = 4
    branching: Branching = 2
    lam: Lambda = 1.0
    resampling: Resampler = "ssp"
    look_aheads: LookAheads = 1
    child_sampling: ChildSampling = "independent"
    ess_threshold: EssThreshold = None
    cadence: Cadence = "step"

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
            weight = self.weigh(children, looked)  # line 11, Eq. 8: log w̃
            particles = run.resample(  # lines 12–14: normalise, ξ = N·w, SSP
                children, looked, weight, self.size, self.resampling, self.ess_threshold
            )
        return particles

    def potential(self, children: Children, looked: Looked) -> Floats:
        """The log-potential of each child: λ·s. Relatives override it.

        Args:
            children: Of this step, with the scores of their lineages before it.
            looked: Their look-aheads, with scores and predictions.
        """
        return self.lam * looked.score

    def weigh(self, children: Children, looked: Looked) -> Floats:
        """Each child's log-weight after this step; unchanged between two scores."""
        if not children.branched and self.verified == "every step":
            return children.log_weight
        return children.log_weight + self.potential(children, looked)

    @model_validator(mode="after")
    def _children_fit(self) -> Self:
        if self.child_sampling == "filled" and self.ess_threshold is not None:
            raise SettingsError(
                f"child_sampling='filled' and ess_threshold={self.ess_threshold} exclude each other: below "
                "the threshold every particle continues as one of its own children, and 'filled' may "
                "leave it none; choose child_sampling='distinct' or no threshold"
            )
        if self.child_sampling == "filled" and self.children == 1:
            raise SettingsError(
                f"child_sampling='filled' changes nothing in method={self.name!r} with one child per particle: "
                "only a method that branches can fill a step; leave it out"
            )
        return self

    @property
    def children(self) -> int:
        return self.branching


class S3Paper(S3):
    name = "s3_paper"
    summary = "s3 with the paper's λ = 1, whatever the model recommends"
    like = "s3"

    lam: ClassVar[float] = 1.0  # type: ignore[misc]


class S3Verified(S3):
    name = "s3_verified"
    summary = "s3 that ends with the text of the best score instead of a vote"
    source = "ours"

    selection: Ending = "verified"


class TopN(S3):
    name = "top_n"
    summary = "search with look-ahead scores; the N best are kept at every step"
    source = S3_ABLATION
    weighs = False

    lam: ClassVar[float] = 1.0  # type: ignore[misc]
    resampling: Resampler = "top"


class Twisted(S3):
    name = "twisted"
    summary = "s3 whose weights divide by the parent's, so that it samples p·exp(λ·score)"
    source = "ours"

    selection: Ending = "weighted"

    def potential(self, children: Children, looked: Looked) -> Floats:
        return self.lam * (looked.score - children.history[:, -1])
