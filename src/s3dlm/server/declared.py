"""What the server asks of settings and methods, gathered here so that no other file lists them.

Request fields, the OpenAPI document and the page's form are all made from the declarations of the
settings.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from s3dlm import settings as core
from s3dlm.declare import Declaration
from s3dlm.errors import shown
from s3dlm.models.base import Model
from s3dlm.search.methods import all_methods, find_method
from s3dlm.search.select import SELECTIONS
from s3dlm.settings import Settings
from s3dlm.verifier import VERIFIERS

__all__ = ["Declaration", "shown"]

LONGEST_NAME = 80  # characters of a name in a request
HOTTEST = 2.0  # OpenAI's largest temperature
LARGEST_SEED = 2**63 - 1025  # the choices of one request count up from it


@cache
def by_name() -> dict[str, Declaration]:
    """Every setting as a request may give it: the method first, then what the core declares."""
    narrower: dict[str, dict[str, Any]] = {
        "temperature": {"high": HOTTEST},
        "seed": {"high": LARGEST_SEED},
        "verifier": {"choices": tuple(VERIFIERS)},  # files are not for clients
    }
    method = Declaration(
        "method", str, "s3", "Search method.", tuple(all_methods()), None, None, False, "method"
    )
    declared = {
        name: dataclasses.replace(one, **narrower.get(name, {}))
        for name, one in core.declarations().items()
    }
    return {"method": method, **declared}


def declarations() -> tuple[Declaration, ...]:
    return tuple(by_name().values())


def check(name: str, value: object) -> object:
    """A value from a request, or an error that says what is allowed."""
    return by_name()[name].check(value)


def as_json(one: Declaration) -> dict[str, Any]:
    """A declaration for the page's form."""
    return {**dataclasses.asdict(one), "type": one.type.__name__}


# --- methods


def method_name(settings: Settings) -> str:
    return settings.method.name


def summaries() -> dict[str, str]:
    """Every method with one line about it."""
    return {name: row.summary for name, row in all_methods().items()}


def population(settings: Settings) -> dict[str, int]:
    """Particles and branching, each only if the method uses it."""
    used = settings.method.settings()
    return {name: used[name] for name in ("particles", "branching") if name in used}


def compares_children(method: object) -> bool:
    """Whether a method has nothing to search at temperature 0."""
    return find_method(str(method)).size > 1


def batch_size(settings: Settings) -> int:
    """The most canvases a search forwards at once."""
    return settings.method.size * settings.method.children


def most_nfe(settings: Settings, model: Model) -> int:
    """The most forward passes (of one canvas each) that a search can need."""
    return settings.most_nfe_in_blocks(model.denoiser.causal_block)


def keeps_revealed_tokens(settings: Settings) -> bool:
    """Whether the answer descends from the survivors of every step and no token changes."""
    method = settings.method
    selection = SELECTIONS[method.selection]
    from_elsewhere = selection.from_all_seen or selection.from_steps
    changes = method.has_rounds or settings.edit_threshold is not None
    return method.sweeps == 1 and not changes and not from_elsewhere
