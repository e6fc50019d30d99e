"""The methods, side by side: a method is a row of data that the one loop reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from s3dlm.errors import SettingsError
from s3dlm.settings import Settings

Population = Literal["one", "all", "particles"]
Scored = Literal["never", "at the end", "every step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How one method fills the blanks of the loop."""

    summary: str
    source: str = ""  # the paper it comes from
    population: Population = "particles"  # 1, N·b or N particles
    branches: bool = False  # b children a step, or one
    scored: Scored = "every step"
    weight: str = "none"  # a name in weigh.py
    tilt: str = "fixed"  # a name in weigh.py
    resampling: str | None = None  # a name in resample.py, or None: keep everyone
    ess_threshold: float | None = None  # resample only below this share of ESS
    cadence: str = "step"  # branch, score and resample at every step, k-th step or block's end
    siblings: str = "independent"  # a name in expand.py
    heat: float = 1.0  # temperature's factor while the children repeat each other
    patience: int = 0  # steps of sure agreement after which the search stops; 0: never
    selection: str = "majority"  # a name in select.py
    profile: str = "paper"  # of the verifier
    blocks: bool = False  # particles spread over block lengths (HEX)
    sweeps: bool = False  # b conditional sweeps over N particles (particle Gibbs)
    repairs: int = 0  # rounds in which contradicted texts are hidden again and retried
    pruned: bool = False  # the population halves from N·b in the first half of the run (Prism)

    def knobs(self) -> list[str]:
        """The settings that change it, besides those of every decoding."""
        looks, many = self.scored == "every step", self.population != "one"
        whole = not (self.sweeps or self.blocks)  # one population from start to end
        asked = {
            "particles": many,
            "branching": self.population == "all" or self.branches or self.sweeps,
            "lam": self.weight in {"tilt", "twist", "fk_max", "fk_sum"},
            "tilt": looks and self.weight == "tilt",
            "profile": self.scored != "never",
            "resampling": self.resampling is not None,
            "ess_threshold": self.resampling is not None and self.siblings != "filled",
            "cadence": self.resampling is not None,
            "siblings": many,
            "heat": many,
            "patience": looks and whole,
            "repairs": whole,
            "selection": many,
        }
        return [name for name, wanted in asked.items() if wanted]

    def most_rows(self) -> str:
        """What it forwards at most in T steps; equal and finished rows are saved from it."""
        rows = "1 + T" if self.population == "one" else "1 + T·N·b"
        if self.sweeps:
            rows = "b·(1 + T·N)"
        if self.blocks:
            rows = "5 + T·N·b"
        if self.repairs:
            rows = f"{self.repairs + 1}·({rows})"
        return f"under {rows}" if self.pruned else rows


METHODS: dict[str, Method] = {
    "baseline": Method(
        summary="one trajectory, as the model's authors decode",
        population="one",
        scored="never",
        selection="first",
    ),
    "best_of_k": Method(
        summary="K = N·b independent trajectories, majority vote",
        population="all",
        scored="never",
    ),
    "tilting": Method(
        summary="K = N·b independent trajectories, the one with the heaviest exp(λ·score)",
        source="S³, ablation",
        population="all",
        scored="at the end",
        weight="tilt",
        selection="heaviest",
    ),
    "look_ahead": Method(
        summary="search with look-ahead scores, the top N kept at every step",
        source="S³, ablation",
        branches=True,
        weight="rank",
        resampling="top",
    ),
    "s3": Method(
        summary="the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling",
        source="S³, Bilal et al. 2026",
        branches=True,
        weight="tilt",
        resampling="ssp",
    ),
    "twisted": Method(
        summary="s3 with weights that divide by the parent's, so that it samples p·exp(λ·score)",
        source="ours",
        branches=True,
        weight="twist",
        resampling="ssp",
        selection="weighted",
    ),
    "verified_best_of_k": Method(
        summary="K = N·b independent trajectories, the one with the best score",
        population="all",
        scored="at the end",
        selection="verified",
    ),
    "fk_difference": Method(
        summary="Feynman–Kac steering of K particles by the gain in score",
        source="FK steering, Singhal et al. 2025",
        population="all",
        weight="twist",
        resampling="multinomial",
        ess_threshold=0.5,
        selection="verified",
    ),
    "fk_max": Method(
        summary="Feynman–Kac steering of K particles by the highest score so far",
        source="FK steering, Singhal et al. 2025",
        population="all",
        weight="fk_max",
        resampling="multinomial",
        ess_threshold=0.5,
        selection="verified",
    ),
    "fk_sum": Method(
        summary="Feynman–Kac steering of K particles by the sum of scores",
        source="FK steering, Singhal et al. 2025",
        population="all",
        weight="fk_sum",
        resampling="multinomial",
        ess_threshold=0.5,
        selection="verified",
    ),
    "self_rewarding": Method(
        summary="K particles weighted by the model's own confidence, resampled at block ends",
        source="self-rewarding SMC, 2026",
        population="all",
        scored="never",
        weight="confidence",
        resampling="systematic",
        ess_threshold=0.5,
        cadence="block",
    ),
    "particle_gibbs": Method(
        summary="b conditional sweeps of N particles around a kept trajectory",
        source="particle Gibbs, Dang et al. 2025",
        weight="twist",
        resampling="multinomial",
        selection="verified",
        sweeps=True,
    ),
    "hex": Method(
        summary="K trajectories spread over block lengths, majority vote",
        source="HEX, Lee et al. 2025",
        population="all",
        scored="never",
        blocks=True,
    ),
    "prism": Method(
        summary="K trajectories, halved by score in the first half of the run",
        source="Prism-style pruning, Bai et al. 2026",
        population="all",
        weight="rank",
        resampling="top",
        pruned=True,
    ),
    "best": Method(
        summary="s3 whose steps are filled with different children, the plus verifier, the best text seen",
        source="ours",
        branches=True,
        weight="tilt",
        resampling="ssp",
        siblings="filled",
        selection="pool_best",
        profile="plus",
        repairs=1,
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A method with its blanks filled by the settings: all that the loop needs to know."""

    particles: int
    branching: int
    scored: Scored
    weight: str
    lam: float
    tilt: str
    ess_target: float
    resampling: str | None
    ess_threshold: float | None
    cadence: str
    siblings: str
    heat: float
    patience: int
    selection: str
    profile: str
    blocks: bool
    sweeps: int
    repairs: int
    pruned: bool

    def __post_init__(self) -> None:
        if self.siblings == "filled" and self.ess_threshold is not None:
            raise SettingsError(
                "siblings='filled' lets children take the places of their cousins, so an "
                f"ess_threshold ({self.ess_threshold:g}), under which every particle goes on as one "
                "of its own children, cannot be kept; choose siblings='distinct' or no threshold"
            )
        if self.patience and (self.scored != "every step" or self.blocks or self.sweeps > 1):
            raise SettingsError(
                f"patience={self.patience} needs a method that looks ahead at every step, in one "
                "population; choose patience=0, or a method such as 's3' or 'best'"
            )

    @classmethod
    def of(cls, settings: Settings) -> Plan:
        method = METHODS[settings.method]
        budget = settings.particles * settings.branching
        threshold = settings.ess_threshold
        return cls(
            particles={"one": 1, "all": budget, "particles": settings.particles}[method.population],
            branching=settings.branching if method.branches else 1,
            scored=method.scored,
            weight=method.weight,
            lam=settings.lam,
            tilt=settings.tilt or method.tilt,
            ess_target=settings.ess_target,
            resampling=(settings.resampling or method.resampling) if method.resampling else None,
            ess_threshold=method.ess_threshold if threshold is None else threshold,
            cadence=settings.cadence or method.cadence,
            siblings=settings.siblings or method.siblings,
            heat=method.heat if settings.heat is None else settings.heat,
            patience=method.patience if settings.patience is None else settings.patience,
            selection=settings.selection or method.selection,
            profile=settings.profile or method.profile,
            blocks=method.blocks,
            sweeps=settings.branching if method.sweeps else 1,
            repairs=method.repairs if settings.repairs is None else settings.repairs,
            pruned=method.pruned,
        )

    def survivors(self, index: int, steps: int) -> int:
        """How many particles are kept after a step."""
        if not self.pruned:
            return self.particles
        most = max(0, self.particles.bit_length() - 2)  # at least two are left to vote
        return self.particles >> min(most, most * 2 * (index + 1) // steps)
