"""From a name to a verifier: bundled, a weights file, a learned one, or another package's entry point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from s3dlm.errors import SettingsError, VerifierError, unknown_name
from s3dlm.inputs import find_entry_points, load_entry_point
from s3dlm.verifier.base import ScoreFunction, Verifier, adapt
from s3dlm.verifier.code import CodeVerifier
from s3dlm.verifier.composite import Composite, from_row, from_toml
from s3dlm.verifier.learned import SPELLINGS, is_learned, learned
from s3dlm.verifier.plus import plus
from s3dlm.verifier.weights import PAPER, SATISFIED_AT

GROUP = "s3dlm.verifiers"  # the entry-point group through which other packages add verifiers
CODE = "code"  # the verifier of code tasks; it has no weights by name
GENERAL = "general"  # judges a text that belongs to no task


def _paper(task: str) -> Composite:
    return from_row(PAPER[task])


VERIFIERS: dict[str, Callable[[str], Composite]] = {"paper": _paper, "plus": plus}


def for_task(task: str, verifier: str = "paper") -> Verifier:
    """The verifier of a task: "paper", "plus", a TOML file with weights, or any other name.

    Other names are those of entry points and of learned verifiers (`learned.py`).
    """
    if task == CODE and verifier in VERIFIERS:
        return _code()
    if task not in (*PAPER, CODE):
        raise SettingsError(unknown_name("task", task, [*PAPER, CODE]))
    if verifier in VERIFIERS:
        return _built(task, verifier)
    return _by_name(verifier, GENERAL if task == CODE else task)


@lru_cache(maxsize=1)
def _code() -> Verifier:
    """One for the process: it remembers what it ran."""
    return CodeVerifier()


@lru_cache(maxsize=64)
def _built(task: str, verifier: str) -> Verifier:
    built = VERIFIERS[verifier](task)
    return replace(built, satisfied_at=SATISFIED_AT.get((verifier, task)))


def as_verifier(verifier: Verifier | ScoreFunction | str, task: str | None = None) -> Verifier:
    """Whatever a user may hand over as a verifier: an object, a function, a name or a TOML file.

    The name of a task stands for that task's verifier of the paper.
    """
    if isinstance(verifier, str):
        named = verifier in (*PAPER, CODE) and verifier not in VERIFIERS
        return for_task(verifier) if named else for_task(task or GENERAL, verifier)
    return adapt(verifier)


def _by_name(name: str, task: str) -> Verifier:
    if Path(name).suffix == ".toml":
        return from_toml(name, task)
    if is_learned(name):
        return learned(name)
    installed = find_entry_points(GROUP)
    if name in installed:
        return as_verifier(_loaded(installed[name]))
    known = [*VERIFIERS, *installed, "FILE.toml", *SPELLINGS]
    raise SettingsError(unknown_name("verifier", name, known))


def _loaded(entry: EntryPoint) -> Any:
    """What another package's entry point names; a class is built."""
    loaded: Any = load_entry_point(entry, object)
    if not isinstance(loaded, type):
        return loaded
    try:
        return loaded()
    except Exception as error:
        raise VerifierError(
            f"verifier {entry.name!r} ({entry.value}) of the entry points {GROUP!r} cannot be built: "
            f"{type(error).__name__}: {error}; the entry point must name a "
            "class that needs no arguments, an object, or a function"
        ) from error
