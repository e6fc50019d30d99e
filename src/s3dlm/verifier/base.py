"""What a verifier is: one method that says how good a text looks, without knowing the answer.

There is no field for gold anywhere here, so ground truth cannot reach the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from s3dlm.errors import VerifierError

PARTS = ("structure", "arithmetic", "reachability", "confidence", "non_degeneracy", "constraint")

Judge = Callable[[str, str, float | None], float]
"""A user's own verifier: (prompt, text, confidence) -> score."""


@dataclass(frozen=True, slots=True)
class Score:
    """A verifier's judgement: the total that guides the search, and what it is made of."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    spans: tuple[tuple[int, int], ...] = ()  # character ranges of the text that are in doubt


@runtime_checkable
class Verifier(Protocol):
    """Judges a text written for a prompt; `confidence` is the model's own, where it has one."""

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """How good the text looks; higher is better."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionVerifier:
    """A plain function as a verifier; refuses what is no finite number, by the function's name."""

    judge: Judge
    name: str = "custom"

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The function's own value, as the total and as the only part."""
        value = checked(self.judge(prompt, text, confidence), self.name)
        return Score(value, {"custom": value})


def checked(value: object, name: str) -> float:
    """A judge's value as a float, or an error that names the judge."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise VerifierError(
            f"verifier {name!r} returned {value!r}; it must return one finite number"
        )
    return number
