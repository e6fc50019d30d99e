"""A run as frozen plain data: validated when built, hashed the same on every machine.

The names allowed for each choice are listed here; the tables that give them meaning live beside the
code they drive (search/methods.py, schedule.py, search/resample.py, search/select.py), and a test
keeps list and table equal.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

from s3dlm.errors import SettingsError, unknown_name

METHODS = (
    "baseline", "best_of_k", "tilting", "look_ahead", "s3", "twisted", "verified_best_of_k",
    "fk_difference", "fk_max", "fk_sum", "self_rewarding", "particle_gibbs", "hex", "prism", "best",
)  # fmt: skip
POLICIES = ("low_confidence", "random", "margin", "entropy", "left_to_right")
RESAMPLERS = ("ssp", "systematic", "stratified", "residual", "multinomial", "top")
SELECTIONS = (
    "majority", "heaviest", "weighted", "first",
    "verified", "verified_vote", "pool_best", "pool_vote",
)  # fmt: skip
TILTS = ("fixed", "annealed", "standardised", "adaptive")
SIBLINGS = ("independent", "distinct", "filled")

# Methods whose children are compared with each other: at temperature 0 they are all the same child.
SAMPLING_METHODS = frozenset(METHODS) - {"baseline"}


class TemperatureWarning(UserWarning):
    """A search was asked to compare children that are all equal."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that decides a run's result, apart from the model, the prompt and the verifier."""

    method: str = "s3"
    particles: int = 4  # N: partly denoised answers kept after every step
    branching: int = 2  # b: children a particle has at every step
    lam: float = 1.0  # λ: how hard scores tilt the weights, exp(λ·score)
    temperature: float = 0.7  # of sampling; 0 is greedy
    gen_length: int = 128  # tokens of the answer's canvas
    steps: int = 64  # denoising steps, shared out over the blocks
    block_length: int = 64  # blocks are filled from left to right
    policy: str = "low_confidence"  # which masked positions are revealed first
    resampling: str | None = None  # None: the method's own
    ess_threshold: float | None = (
        None  # resample only when ESS falls below this share; None: always
    )
    selection: str | None = None  # None: the method's own
    tilt: str | None = None  # how λ is chosen over the steps; None: the method's own
    ess_target: float = 0.5  # share of ESS that an adaptive tilt leaves
    cadence: str | None = None  # search at every "step", at "block" ends, or every "k"-th step
    repairs: int | None = None  # rounds of hiding and retrying what arithmetic contradicts
    siblings: str | None = None  # whether children must differ, and may take each other's places
    heat: float | None = (
        None  # temperature is multiplied by it while the children repeat each other
    )
    patience: int | None = (
        None  # stop once survivors agree and are sure for so many steps; 0: never
    )
    profile: str | None = (
        None  # the verifier's weights: a name or a TOML file; None: the method's own
    )
    seed: int = 0

    def __post_init__(self) -> None:
        _check_name("method", self.method, METHODS)
        _check_name("policy", self.policy, POLICIES)
        _check_name("resampling", self.resampling, RESAMPLERS, optional=True)
        _check_name("selection", self.selection, SELECTIONS, optional=True)
        _check_name("tilt", self.tilt, TILTS, optional=True)
        _check_name("siblings", self.siblings, SIBLINGS, optional=True)
        _check_cadence(self.cadence)
        _check_number("ess_target", self.ess_target, 0.0, 1.0, "0.5 is customary")
        for name in ("particles", "branching", "gen_length", "steps", "block_length"):
            _check_count(name, getattr(self, name))
        _check_number("lam", self.lam, 0.0, math.inf, "1.0 is the paper's value")
        _check_number("temperature", self.temperature, 0.0, 100.0, "0.7 is the default")
        if self.ess_threshold is not None:
            _check_number("ess_threshold", self.ess_threshold, 0.0, 1.0, "0.5 is customary")
        for name in ("repairs", "patience"):
            if getattr(self, name) not in (None, 0):
                _check_count(name, getattr(self, name))
        if self.heat is not None:
            _check_number("heat", self.heat, 1.0, 10.0, "1 changes nothing, 2 doubles")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise SettingsError(f"seed={self.seed!r} is not allowed; give a whole number from 0 up")
        if self.profile is not None and not (isinstance(self.profile, str) and self.profile):
            raise SettingsError(
                f"profile={self.profile!r} is not allowed; name a profile, for example 'paper'"
            )
        self._check_schedule()
        if self.temperature == 0 and self.method in SAMPLING_METHODS:
            warnings.warn(
                f"temperature=0 with method={self.method!r}: all children of a particle are equal, "
                "so the search changes nothing; set a temperature above 0 or method='baseline'",
                TemperatureWarning,
                stacklevel=3,
            )

    def _check_schedule(self) -> None:
        blocks = -(-self.gen_length // self.block_length)
        if not blocks <= self.steps <= self.gen_length:
            raise SettingsError(
                f"steps={self.steps} cannot fill gen_length={self.gen_length} in {blocks} blocks of "
                f"{self.block_length}: every block needs a step and every step reveals a token; "
                f"choose steps from {blocks} to {self.gen_length}, or another block_length"
            )

    def to_json(self) -> dict[str, Any]:
        """The settings as a plain dictionary, every field named."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Settings from a plain dictionary; a key that is no setting is an error."""
        fields = {field.name for field in dataclasses.fields(cls)}
        for key in data:
            if key not in fields:
                raise SettingsError(unknown_name("setting", key, fields))
        return cls(**data)

    def replace(self, **changes: Any) -> Settings:
        """A copy with some settings changed."""
        return Settings.from_json({**self.to_json(), **changes})

    def hash(self) -> str:
        """Twelve hex digits that are equal for equal settings, on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check_name(
    what: str, got: object, allowed: tuple[str, ...], *, optional: bool = False
) -> None:
    if optional and got is None:
        return
    if got not in allowed:
        raise SettingsError(unknown_name(what, got, allowed))


def _check_cadence(got: object) -> None:
    if got is None or got in ("step", "block"):
        return
    if not (isinstance(got, str) and got.isdecimal() and int(got) >= 1):
        raise SettingsError(
            f"cadence={got!r} is not allowed; give 'step', 'block' or a whole number such as '4'"
        )


def _check_count(what: str, got: object) -> None:
    if isinstance(got, bool) or not isinstance(got, int) or got < 1:
        raise SettingsError(f"{what}={got!r} is not allowed; give a whole number from 1 up")


def _check_number(what: str, got: object, low: float, high: float, remedy: str) -> None:
    fits = isinstance(got, int | float) and not isinstance(got, bool) and low <= got <= high
    if not fits or not math.isfinite(got):  # type: ignore[arg-type]
        bound = f"from {low:g} to {high:g}" if math.isfinite(high) else f"from {low:g} up"
        raise SettingsError(f"{what}={got!r} is not allowed; give a number {bound} ({remedy})")
