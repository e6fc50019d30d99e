"""What the server asks of settings and methods, gathered here so that no other file lists them.

Request fields, the OpenAPI document and the page's form are all made from the schema of the settings.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from s3dlm import settings as core
from s3dlm.errors import shown
from s3dlm.models.base import Model
from s3dlm.search.methods import all_methods
from s3dlm.search.select import SELECTIONS
from s3dlm.settings import Settings
from s3dlm.verifier import VERIFIERS

__all__ = ["shown"]

LONGEST_NAME = 80  # characters of a name in a request
HOTTEST = 2.0  # OpenAI's largest temperature
LARGEST_SEED = 2**63 - 1025  # the choices of one request count up from it


@cache
def by_name() -> dict[str, dict[str, Any]]:
    """The JSON schema of every setting as a request may give it."""
    narrower: dict[str, dict[str, Any]] = {
        "method": {"enum": list(all_methods())},
        "temperature": {"maximum": HOTTEST},
        "seed": {"maximum": LARGEST_SEED},
        "verifier": {"enum": list(VERIFIERS)},  # files are not for clients
    }
    return {name: {**one, **narrower.get(name, {})} for name, one in core.schema().items()}


def check(name: str, value: object) -> object:
    """A value from a request, or an error that says what is allowed."""
    return core.check(name, value)


def as_json(name: str) -> dict[str, Any]:
    """A setting for the page's form."""
    return {"name": name, **by_name()[name]}


# --- methods


def method_name(settings: Settings) -> str:
    return settings.method


def summaries() -> dict[str, str]:
    """Every method with one line about it."""
    return {name: row.summary for name, row in all_methods().items()}


def population(settings: Settings) -> dict[str, int]:
    """Particles and branching, each only if the method uses it."""
    return {n: getattr(settings, n) for n in ("particles", "branching") if n in settings.active}


def compares_children(method: object) -> bool:
    """Whether a method has nothing to search at temperature 0."""
    return Settings(str(method)).size > 1


def batch_size(settings: Settings) -> int:
    """The most canvases a search forwards at once."""
    return settings.size * settings.children


def most_nfe(settings: Settings, model: Model) -> int:
    """The most forward passes (of one canvas each) that a search can need."""
    return settings.most_nfe_in_blocks(model.denoiser.causal_block)


def keeps_revealed_tokens(settings: Settings) -> bool:
    """Whether the answer descends from the survivors of every step and no token changes."""
    selection = SELECTIONS[settings.selection]
    from_elsewhere = selection.from_all_seen or selection.from_steps
    changes = settings.has_rounds or settings.edit_threshold is not None
    return settings.sweeps == 1 and not changes and not from_elsewhere
