"""The reference-free verifier: how good a text looks, without knowing the answer.

The verifiers of this package stand in the registry like those of any other.
"""

from __future__ import annotations

from collections.abc import Callable

from s3dlm.verifier.base import HOLE as HOLE
from s3dlm.verifier.base import PARTS as PARTS
from s3dlm.verifier.base import SELF as SELF
from s3dlm.verifier.base import Score as Score
from s3dlm.verifier.base import Verifier as Verifier
from s3dlm.verifier.checker import checker
from s3dlm.verifier.composite import Composite as Composite
from s3dlm.verifier.composite import compose as compose
from s3dlm.verifier.composite import from_row
from s3dlm.verifier.names import GENERAL as GENERAL
from s3dlm.verifier.names import LOADERS as LOADERS
from s3dlm.verifier.names import VERIFIERS as VERIFIERS
from s3dlm.verifier.names import NamedVerifier as NamedVerifier
from s3dlm.verifier.names import as_verifier as as_verifier
from s3dlm.verifier.names import bundled_verifiers as bundled_verifiers
from s3dlm.verifier.names import check_verifier as check_verifier
from s3dlm.verifier.names import for_task as for_task
from s3dlm.verifier.names import installed as installed
from s3dlm.verifier.weights import PAPER

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
