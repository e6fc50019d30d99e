"""The methods, side by side: a method is a row of data that the one loop reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from s3dlm.settings import Settings


@dataclass(frozen=True, slots=True)
class Method:
    """How one method fills the blanks of the loop."""

    summary: str
    population: Literal["one", "all", "particles"]  # 1, N·b or N particles
    branches: bool  # b children a step, or one
    scored: Literal["never", "at the end", "every step"]
    weight: Literal["none", "tilt", "rank", "twist"]  # see weigh.py
    resampling: str | None  # a name in resample.py, or None: keep everyone
    selection: str  # a name in select.py


METHODS: dict[str, Method] = {
    "baseline": Method(
        "one trajectory, as the model's authors decode",
        "one", False, "never", "none", None, "first",
    ),
    "best_of_k": Method(
        "K = N·b independent trajectories, majority vote",
        "all", False, "never", "none", None, "majority",
    ),
    "tilting": Method(
        "K = N·b independent trajectories, the one with the heaviest exp(λ·score)",
        "all", False, "at the end", "tilt", None, "heaviest",
    ),
    "look_ahead": Method(
        "search with look-ahead scores, the top N kept at every step",
        "particles", True, "every step", "rank", "top", "majority",
    ),
    "s3": Method(
        "the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling",
        "particles", True, "every step", "tilt", "ssp", "majority",
    ),
    "twisted": Method(
        "s3 with weights that divide by the parent's, so that it samples p·exp(λ·score)",
        "particles", True, "every step", "twist", "ssp", "weighted",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """A method with its blanks filled by the settings: all that the loop needs to know."""

    particles: int
    branching: int
    scored: Literal["never", "at the end", "every step"]
    weight: Literal["none", "tilt", "rank", "twist"]
    lam: float
    resampling: str | None
    ess_threshold: float | None
    selection: str

    @classmethod
    def of(cls, settings: Settings) -> Plan:
        method = METHODS[settings.method]
        budget = settings.particles * settings.branching
        return cls(
            particles={"one": 1, "all": budget, "particles": settings.particles}[method.population],
            branching=settings.branching if method.branches else 1,
            scored=method.scored,
            weight=method.weight,
            lam=settings.lam,
            resampling=(settings.resampling or method.resampling) if method.resampling else None,
            ess_threshold=settings.ess_threshold,
            selection=settings.selection or method.selection,
        )
