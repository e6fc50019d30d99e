"""The reference-free verifier: how good a text looks, without knowing the answer.

Here a name becomes a verifier: a bundled one, a file of weights, a learned one, or one that another
package adds. What needs a sandbox, a network or a second model is imported when it is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from s3dlm.errors import SettingsError, VerifierError, unknown_name
from s3dlm.inputs import find_entry_points, load_built_in, load_entry_point
from s3dlm.verifier.base import (
    HOLE,
    PARTS,
    SELF,
    Score,
    ScoreFunction,
    Verifier,
    WrappedVerifier,
    adapt,
)
from s3dlm.verifier.composite import Composite, compose, from_row, from_toml
from s3dlm.verifier.equations import wrong_equalities
from s3dlm.verifier.weights import PAPER, SATISFIED_AT

__all__ = [
    "HOLE",
    "PARTS",
    "SELF",
    "VERIFIERS",
    "Composite",
    "Score",
    "Verifier",
    "WrappedVerifier",
    "as_verifier",
    "compose",
    "for_task",
    "from_toml",
    "wrong_equalities",
]

GROUP = "s3dlm.verifiers"  # the entry-point group through which other packages add verifiers
CODE = "code"  # the verifier of code tasks; it has no weights by name
GENERAL = "general"  # judges a text that belongs to no task
PLUS = "s3dlm.verifier.plus:plus"
SOLVER = "plus_solver"  # as plus, but what it says of partial texts takes a step of a solver

VERIFIERS: dict[str, Callable[[str], Composite]] = {
    "paper": lambda task: from_row(PAPER[task]),
    "plus": lambda task: load_built_in("plus", PLUS)(task),
    SOLVER: lambda task: load_built_in("plus", PLUS)(task, solver=True),
}
LEARNED = {  # what loads `KIND:MODEL`
    "reward": "s3dlm.verifier.learned:load",
    "prm": "s3dlm.verifier.learned:load",
    "likelihood": "s3dlm.verifier.learned:load",
    "orm": "s3dlm.integrations.reward:DiffusionReward",
    "judge": "s3dlm.verifier.judge:load",
}
OWN: dict[str, Verifier] = {}  # the user's, by the names that `own.py` gives them in this process
SPELLINGS = ("reward:MODEL", "prm:MODEL", "likelihood:MODEL", "orm:ADAPTER", "judge:URL#MODEL")


def for_task(task: str, verifier: str = "paper") -> Verifier:
    """The verifier of a task: "paper", "plus", a TOML file with weights, or any other name.

    `paper` keeps to the paper, where nobody scores a text that is partly masked: it reads none. Other names are those of learned verifiers (`learned.py`, `judge.py`) and of entry points.
    """
    if task not in (*PAPER, CODE):
        raise SettingsError(unknown_name("task", task, [*PAPER, CODE]))
    if verifier in OWN:
        return OWN[verifier]
    if verifier in VERIFIERS:
        return _code() if task == CODE else _bundled(task, verifier)
    if verifier == SELF:
        raise SettingsError(
            "verifier='self' is the model of a search that judges its own texts; without a search, or "
            "inside another verifier, choose one of: " + ", ".join([*VERIFIERS, *SPELLINGS])
        )
    if Path(verifier).suffix == ".toml":
        return from_toml(verifier, GENERAL if task == CODE else task)
    kind, _, model = verifier.partition(":")
    return _learned(verifier) if kind in LEARNED and model else _installed(verifier)


def as_verifier(verifier: Verifier | ScoreFunction | str, task: str | None = None) -> Verifier:
    """Whatever a user may hand over as a verifier: an object, a function, a name or a TOML file.

    The name of a task stands for that task's verifier of the paper.
    """
    if not isinstance(verifier, str):
        return adapt(verifier)
    names_task = verifier in (*PAPER, CODE) and verifier not in VERIFIERS
    return for_task(verifier) if names_task else for_task(task or GENERAL, verifier)


def check_name(task: str, verifier: str) -> None:
    """Refuse a verifier that does not exist, without loading one that is a model of its own."""
    if verifier != SELF and verifier.partition(":")[0] not in LEARNED:
        for_task(task, verifier)


@lru_cache(maxsize=64)
def _bundled(task: str, verifier: str) -> Verifier:
    built = VERIFIERS[verifier](task)
    whole = "plus" if verifier == SOLVER else verifier  # they judge whole texts alike
    return replace(built, satisfied_at=SATISFIED_AT.get((whole, task)))


@lru_cache(maxsize=1)
def _code() -> Verifier:
    """One for the process: it remembers what it ran."""
    built: Verifier = load_built_in(CODE, "s3dlm.verifier.code:CodeVerifier")()
    return built


@lru_cache(maxsize=8)
def _learned(name: str) -> Verifier:
    """The same name gives the same verifier: its model is loaded once per process."""
    kind = name.partition(":")[0]
    loaded: Verifier = load_built_in(kind, LEARNED[kind])(name)
    return loaded


def _installed(name: str) -> Verifier:
    """What another package's entry point names; a class is built."""
    entries = find_entry_points(GROUP)
    if ".py:" in name:
        raise SettingsError(
            f"verifier={name!r} is a file of Python, which only the command line may name "
            "(--verifier FILE.py:NAME); in Python pass the function itself"
        )
    if name not in entries:
        choices = [*VERIFIERS, SELF, *entries, "FILE.toml", "FILE.py:NAME", *SPELLINGS]
        raise SettingsError(unknown_name("verifier", name, choices))
    loaded: Any = load_entry_point(entries[name], object)
    if not isinstance(loaded, type):
        return as_verifier(loaded)
    try:
        return as_verifier(loaded())
    except Exception as error:
        raise VerifierError(
            f"verifier {name!r} ({entries[name].value}) of the entry points {GROUP!r} cannot be "
            f"built: {type(error).__name__}: {error}; the entry point must name a class that needs "
            "no arguments, an object, or a function"
        ) from error
