"""The reference-free verifier: how good a text looks, without knowing the answer.

The verifiers of this package stand in the registry like those of any other.
"""

from __future__ import annotations

from collections.abc import Callable

from s3dlm.verifier.base import (
    HOLE,
    PARTS,
    SELF,
    Score,
    Verifier,
)
from s3dlm.verifier.checker import checker
from s3dlm.verifier.composite import Composite, compose, from_row
from s3dlm.verifier.equations import wrong_equalities
from s3dlm.verifier.names import (
    GENERAL,
    LOADERS,
    VERIFIERS,
    NamedVerifier,
    as_verifier,
    bundled_verifiers,
    check_verifier,
    for_task,
    installed,
)
from s3dlm.verifier.weights import PAPER

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
    "check_verifier",
    "compose",
    "for_task",
    "installed",
    "wrong_equalities",
]

_BUNDLED: dict[str, tuple[Callable[[str], Verifier], str]] = {
    "paper": (lambda task: from_row(PAPER[task]), "the paper's composite"),
    "checker": (
        checker,
        "also recomputes equations, reads partial texts and says what looks wrong",
    ),
    "checker_solver": (  # it judges whole texts alike
        lambda task: checker(task, solver=True),
        "as checker, with one step of a solver on partial grids",
    ),
}
for _name, (_build, _summary) in _BUNDLED.items():
    VERIFIERS.register(_name, NamedVerifier(_build, _summary, from_files=True))
