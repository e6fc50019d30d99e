"""The reference-free verifier: how good a text looks, without knowing the answer.

The verifiers of this package stand in the registry like those of any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from s3dlm.verifier.base import (
    HOLE,
    PARTS,
    SELF,
    Score,
    Verifier,
)
from s3dlm.verifier.checker import checker
from s3dlm.verifier.composite import Composite, compose, from_row, from_toml
from s3dlm.verifier.equations import wrong_equalities
from s3dlm.verifier.names import (
    GENERAL,
    LOADERS,
    VERIFIERS,
    NamedVerifier,
    as_verifier,
    bundled_verifiers,
    check_name,
    for_task,
    installed,
)
from s3dlm.verifier.weights import PAPER, SATISFIED_AT

__all__ = [
    "GENERAL",
    "HOLE",
    "LOADERS",
    "PARTS",
    "SELF",
    "VERIFIERS",
    "Composite",
    "NamedVerifier",
    "Score",
    "Verifier",
    "as_verifier",
    "bundled_verifiers",
    "check_name",
    "compose",
    "for_task",
    "from_toml",
    "installed",
    "wrong_equalities",
]


def _bundled(name: str, build: Callable[[str], Composite], summary: str) -> NamedVerifier:
    """A composite that may be satisfied with what is known of the tasks for the row `name`."""

    def of_task(task: str) -> Verifier:
        return replace(build(task), satisfied_at=SATISFIED_AT.get((name, task)))

    return NamedVerifier(of_task, summary, from_files=True)


def _weights_in(file: str) -> NamedVerifier:
    """The verifier that a TOML file describes."""
    return NamedVerifier(lambda task: from_toml(file, task))


CHECKS = "also recomputes equations, reads partial texts and says what looks wrong"
SOLVES = "as checker, with one step of a solver on partial texts"
VERIFIERS.register(
    "paper", _bundled("paper", lambda task: from_row(PAPER[task]), "the paper's composite")
)
VERIFIERS.register("checker", _bundled("checker", checker, CHECKS))
VERIFIERS.register(  # it judges whole texts alike
    "checker_solver", _bundled("checker", lambda task: checker(task, solver=True), SOLVES)
)
VERIFIERS.files[".toml"] = _weights_in
