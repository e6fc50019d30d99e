"""The reference-free verifier: how good a text looks, without knowing the answer."""

from s3dlm.verifier.base import PARTS, Score, Verifier
from s3dlm.verifier.composite import Composite, compose, from_toml
from s3dlm.verifier.equations import wrong_equalities
from s3dlm.verifier.lookup import as_verifier, for_task
from s3dlm.verifier.profiles import PAPER as PROFILES

__all__ = [
    "PARTS",
    "PROFILES",
    "Composite",
    "Score",
    "Verifier",
    "as_verifier",
    "compose",
    "for_task",
    "from_toml",
    "wrong_equalities",
]
