"""How a name becomes a verifier.

`VERIFIERS` holds one value per name, ours and those that packages add under the entry-point group
`s3dlm.verifiers`; `LOADERS` (`s3dlm.verifier_loaders`) those that are named with what they load, as in
`reward:MODEL`. This package's own are registered in `__init__.py`: a search
knows them by name alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from s3dlm.errors import SettingsError, VerifierError, unknown_name
from s3dlm.inputs import Registry
from s3dlm.verifier.base import SELF, ScoreFunction, Verifier, adapt
from s3dlm.verifier.weights import PAPER

GENERAL = "general"  # judges a text that belongs to no task


@dataclass(frozen=True, slots=True)
class NamedVerifier:
    """A verifier by name.

    Args:
        build: The verifier for a task, by the name of its row of weights.
        summary: What it does, in one line.
        from_files: Whether a model's file may name it: it opens no connection, runs no code and loads
            no weights.
    """

    build: Callable[[str], Verifier]
    summary: str = ""
    from_files: bool = False


VERIFIERS: Registry[Any] = Registry("verifier", "s3dlm.verifiers", object)
LOADERS: Registry[Callable[[str], Verifier]] = Registry(
    "verifier", "s3dlm.verifier_loaders", object
)
OWN: dict[str, Verifier] = {}  # the user's, by the names that `own.py` gives them in this process


def for_task(task: str, verifier: str = "paper") -> Verifier:
    """The verifier of a task.

    Args:
        task: The row of weights that the task names, or a verifier of its own, which then stands for the
            bundled ones.
        verifier: "paper", "checker", or any other name.
    """
    if task not in PAPER and task not in VERIFIERS:
        raise SettingsError(unknown_name("task", task, [*PAPER, *VERIFIERS]))
    if verifier in OWN:
        return OWN[verifier]
    if verifier == SELF:
        raise SettingsError(
            "verifier='self' is the model of a search that judges its own texts; without a search, or "
            "inside another verifier, choose one of: " + ", ".join(VERIFIERS)
        )
    kind, _, model = verifier.partition(":")
    if kind in LOADERS and model:
        return _loaded(verifier)
    return _named(task, verifier)


def as_verifier(verifier: Verifier | ScoreFunction | str, task: str | None = None) -> Verifier:
    """Whatever a user may hand over as a verifier: an object, a function or a name."""
    return for_task(task or GENERAL, verifier) if isinstance(verifier, str) else adapt(verifier)


def check_verifier(task: str, verifier: str) -> None:
    """Refuse a verifier that does not exist, without loading one that is a model of its own."""
    if verifier != SELF and verifier.partition(":")[0] not in LOADERS:
        for_task(task, verifier)


def bundled_verifiers() -> list[str]:
    """Verifiers that files and clients may name, since they only read the text."""
    found = {name: VERIFIERS.find(name) for name in VERIFIERS}
    return [n for n, one in found.items() if isinstance(one, NamedVerifier) and one.from_files]


def installed() -> list[str]:
    """Verifiers of other packages."""
    return [name for name in VERIFIERS if not isinstance(VERIFIERS.find(name), NamedVerifier)]


@lru_cache(maxsize=64)
def _named(task: str, name: str) -> Verifier:
    """One for the process: it may remember what it has judged."""
    if ".py:" in name:
        raise SettingsError(
            f"verifier={name!r} is a file of Python, which only the command line may name "
            "(--verifier FILE.py:NAME); in Python pass the function itself"
        )
    if name not in VERIFIERS:
        choices = [*VERIFIERS, SELF, "FILE.py:NAME", *(f"{kind}:…" for kind in LOADERS)]
        raise SettingsError(unknown_name("verifier", name, choices))
    found = VERIFIERS.find(name)
    if isinstance(found, NamedVerifier) and found.from_files and task not in PAPER:
        return _named(GENERAL, task)  # a task with a verifier of its own
    try:
        if isinstance(found, NamedVerifier):
            return found.build(task)
        return adapt(found() if isinstance(found, type) else found)
    except Exception as error:
        raise VerifierError(
            f"verifier {name!r} of the entry points 's3dlm.verifiers' cannot be built: "
            f"{type(error).__name__}: {error}; the entry point must name a class that needs no "
            "arguments, an object, or a function"
        ) from error


@lru_cache(maxsize=8)
def _loaded(name: str) -> Verifier:
    """The same name gives the same verifier: its model is loaded once per process."""
    return LOADERS.find(name.partition(":")[0])(name)
