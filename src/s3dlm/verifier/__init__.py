"""The reference-free verifier: how good a text looks, without knowing the answer."""

from s3dlm.verifier.base import PARTS, Score, Verifier, WrappedVerifier
from s3dlm.verifier.composite import Composite, compose, from_toml
from s3dlm.verifier.equations import wrong_equalities
from s3dlm.verifier.lookup import VERIFIERS, as_verifier, for_task

__all__ = [
    "PARTS",
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
