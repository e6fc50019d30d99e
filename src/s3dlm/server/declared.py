"""What the server asks of settings and methods, gathered here so that no other file lists them.

Request fields, the OpenAPI document and the page's form are all made from `declarations()`.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

from s3dlm import settings as core
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.schedule import block_lengths
from s3dlm.search.methods import METHODS, Plan
from s3dlm.settings import SAMPLING_METHODS, Settings
from s3dlm.verifier.lookup import PROFILES

LONGEST_NAME = 80  # characters of a name in a request
LARGEST_NUMBER = 1e300  # beyond it a float is close to overflowing

_DECODING = ("temperature", "gen_length", "steps", "block_length", "policy", "seed")
_CHOICES = {
    "method": tuple(METHODS), "policy": core.POLICIES, "resampling": core.RESAMPLERS,
    "selection": core.SELECTIONS, "tilt": core.TILTS, "siblings": core.SIBLINGS,
    "profile": tuple(PROFILES), "cadence": ("step", "block"),
}  # fmt: skip
_LOW = {"lam": 0, "temperature": 0, "seed": 0, "ess_threshold": 0, "ess_target": 0, "heat": 1,
        "repairs": 0, "patience": 0}  # fmt: skip
_HIGH = {"temperature": 2, "ess_threshold": 1, "ess_target": 1, "heat": 10, "seed": 2**63 - 1025}
_HELP = {
    "method": "Search method.",
    "particles": "N: partly denoised answers kept after every step.",
    "branching": "b: children per particle at every step.",
    "lam": "λ: weight of the score, exp(λ·score).",
    "temperature": "Sampling temperature; 0 is greedy.",
    "gen_length": "Tokens of the answer.",
    "steps": "Denoising steps.",
    "block_length": "Tokens per block; blocks are filled from left to right.",
    "policy": "Which masked positions are revealed first.",
    "resampling": "Resampling scheme.",
    "ess_threshold": "Resample only when ESS / N falls below this value.",
    "selection": "How the answer is chosen among the survivors.",
    "cadence": "Search at every step, or at the end of every block.",
    "repairs": "Rounds in which text that the verifier doubts is masked and generated again.",
    "siblings": "Whether the children of a particle must differ.",
    "profile": "Verifier.",
    "seed": "Seed of the random numbers.",
}


@dataclass(frozen=True, slots=True)
class Declaration:
    """One setting: its name, type, default, help and bounds."""

    name: str
    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    optional: bool = False
    group: str = "method"  # or "decoding"


@cache
def declarations() -> tuple[Declaration, ...]:
    """Every setting, in the order of `Settings`."""
    hints = typing.get_type_hints(Settings)
    return tuple(_declaration(field, hints[field.name]) for field in dataclasses.fields(Settings))


def _declaration(field: dataclasses.Field[Any], hint: Any) -> Declaration:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next(one for one in kinds if one is not type(None))
    name = field.name
    return Declaration(
        name=name,
        type=kind,
        default=field.default,
        help=_HELP.get(name, ""),
        choices=_CHOICES.get(name, ()),
        low=_LOW.get(name, 1) if kind in (int, float) else None,
        high=_HIGH.get(name),
        optional=type(None) in kinds,
        group="decoding" if name in _DECODING else "method",
    )


@cache
def by_name() -> dict[str, Declaration]:
    return {one.name: one for one in declarations()}


def check(name: str, value: object) -> object:
    """A value from a request, or an error that says what is allowed; never quotes more than a line."""
    one = by_name()[name]
    if one.type is str:
        if not isinstance(value, str) or len(value) > LONGEST_NAME:
            raise SettingsError(f"{name}={shown(value)} is not allowed; give a short name")
        if one.choices and value not in one.choices:
            raise SettingsError(unknown_name(name, value, one.choices))
    elif one.type is bool:
        if not isinstance(value, bool):
            raise SettingsError(f"{name}={shown(value)} is not allowed; give true or false")
    elif not _is_number(value, one):
        kind = "a whole number" if one.type is int else "a number"
        raise SettingsError(f"{name}={shown(value)} is not allowed; give {kind} {_range(one)}")
    return value


def _is_number(value: object, one: Declaration) -> bool:
    kinds = int if one.type is int else int | float
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    if not abs(value) <= LARGEST_NUMBER or (isinstance(value, float) and not math.isfinite(value)):
        return False
    return (one.low is None or value >= one.low) and (one.high is None or value <= one.high)


def _range(one: Declaration) -> str:
    low = "" if one.low is None else f"from {one.low} "
    return f"{low}up" if one.high is None else f"{low}to {one.high}"


def shown(value: object) -> str:
    """A value of a request as an error may quote it."""
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        return "a very large number"
    text = repr(value[:LONGEST_NAME] if isinstance(value, str | list) else value)
    return text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"


def as_json(one: Declaration) -> dict[str, Any]:
    """A declaration for the page's form."""
    return {**dataclasses.asdict(one), "type": one.type.__name__}


# --- methods


def method_name(settings: Settings) -> str:
    return settings.method


def summaries() -> dict[str, str]:
    """Every method with one line about it."""
    return {name: row.summary for name, row in METHODS.items()}


def settings_of(method: str) -> list[str]:
    """The method settings that change what a method does."""
    return METHODS[method].knobs()


def compares_children(method: object) -> bool:
    """Whether a method has nothing to search at temperature 0."""
    return method in SAMPLING_METHODS


def batch_size(settings: Settings) -> int:
    """The most canvases a search forwards at once; raises if the settings do not fit together."""
    plan = Plan.of(settings)
    return plan.particles * plan.branching


def most_nfe(settings: Settings) -> int:
    """The most forward passes (of one canvas each) that a search can need."""
    plan = Plan.of(settings)
    starts = len(block_lengths(settings.gen_length, settings.steps)) if plan.blocks else 1
    per_search = min(starts, plan.particles) + settings.steps * plan.particles * plan.branching
    return (plan.repairs + 1) * plan.sweeps * per_search


def keeps_revealed_tokens(settings: Settings) -> bool:
    """Whether the answer descends from the survivors of every step and no token changes."""
    plan = Plan.of(settings)
    return plan.sweeps == 1 and not plan.repairs and not plan.selection.startswith("pool")
