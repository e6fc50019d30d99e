"""What a verifier is: one method that says how good a text looks, without knowing the answer.

Nothing here has a field for a gold answer, so ground truth cannot reach the search. `search/` imports
this file alone: everything else in the folder is one possible verifier.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from s3dlm.errors import VerifierError

PARTS = ("structure", "arithmetic", "reachability", "confidence", "non_degeneracy", "constraint")

Judge = Callable[[str, str, float | None], float]
"""A user's own verifier: (prompt, text, confidence) -> score."""

Spans = Sequence[tuple[int, int]]
"""Character ranges of a text, in order."""


@dataclass(frozen=True, slots=True)
class Score:
    """A verifier's judgement: the total that guides the search, its parts, and what is in doubt."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    spans: Spans = ()  # where the text looks wrong; repairs start at the first


@runtime_checkable
class Verifier(Protocol):
    """Judges a text written for a prompt; `confidence` is the model's own, where it has one.

    A verifier that has a number `satisfied_at` ends a search with a budget at the first text whose
    total reaches it and in which it doubts nothing.
    """

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """How good the text looks; higher is better."""
        ...


@runtime_checkable
class Rescoring(Verifier, Protocol):
    """A verifier for which another confidence changes the score by a known formula."""

    def rescore(self, known: Score, confidence: float | None) -> Score:
        """The score of the same text at another confidence, without reading it again."""
        ...


@runtime_checkable
class BatchVerifier(Verifier, Protocol):
    """A verifier that judges many texts at once faster than one by one.

    It is called once per step with the texts of all running searches. One whose scores depend on the
    other texts of a call says so by `compares_texts = True`, and is called for each search by itself.
    """

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        """One score per text, in order."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionVerifier:
    """A plain function as a verifier; an error about its value names the function."""

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


def score_all(
    verifier: Verifier,
    prompts: Sequence[str],
    texts: Sequence[str],
    confidences: Sequence[float | None],
) -> list[Score]:
    """One score per text: in one batch where the verifier offers it, else one by one."""
    if isinstance(verifier, BatchVerifier):
        return verifier.score_batch(prompts, texts, confidences)
    return [verifier.score(*row) for row in zip(prompts, texts, confidences, strict=True)]
