"""S³, the paper's Algorithm 1: sequential Monte Carlo over partly denoised answers.

Relatives override the potential, the factor by which a step multiplies each child's weight (Eq. 8).
`S3` itself weighs by exp(λ·s), anew at every step. `Twisted` divides by the parent's own exp(λ·s), so
that the factors of a lineage telescope and the population targets p·exp(λ·f) (Eq. 3). Those of other
papers are in `extras/published/steering.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import model_validator

from s3dlm.errors import SettingsError
from s3dlm.search.expand import CHILD_SAMPLINGS
from s3dlm.search.method import Ending, Method
from s3dlm.search.options import OneOf, Share, Size, more, setting
from s3dlm.search.particles import (
    Ahead,
    Children,
    Floats,
    Lineage,
    Particles,
)
from s3dlm.search.resample import RESAMPLERS
from s3dlm.search.run import Run
from s3dlm.search.score import Scores

S3_PAPER, S3_ABLATION = "S³, Bilal et al. 2026", "S³, ablation"
Resampler = Annotated[str, OneOf("resampling", RESAMPLERS)]
ChildSampling = Annotated[str, OneOf("child_sampling", CHILD_SAMPLINGS)]
Cadence = Literal["step", "block"]


class S3(Method):
    """The paper's search (Algorithm 1)."""

    name = "s3"
    summary = "the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling"
    source = S3_PAPER
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

    selection: Ending = setting("verified", "how the answer is chosen among the survivors")


class TopN(S3):
    name = "top_n"
    summary = "search with look-ahead scores; the N best are kept at every step"
    source = S3_ABLATION
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
