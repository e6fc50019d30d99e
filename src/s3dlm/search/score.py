"""Clean texts to scores, each distinct text read and verified once.

The verifier is foreign code fed with model-written text: what it raises or returns is checked here,
and an error names the step, the prompt and the verifier.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from s3dlm.errors import VerifierError
from s3dlm.search.particles import CleanText, Floats, Ints, Process
from s3dlm.verifier.base import Rescoring, Score, Spans, Verifier


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of some texts."""

    total: Floats  # NaN where nothing was scored
    parts: list[Mapping[str, float]]
    spans: list[Spans]  # what the verifier doubts in each text

    @classmethod
    def of(cls, scores: Sequence[Score]) -> Scores:
        total = np.array([one.total for one in scores])
        return cls(total, [one.parts for one in scores], [one.spans for one in scores])

    @classmethod
    def missing(cls, count: int) -> Scores:
        return cls(np.full(count, np.nan), [_NO_PARTS] * count, [()] * count)

    def take(self, index: Ints) -> Scores:
        chosen = index.tolist()
        return Scores(
            self.total[index],
            [self.parts[one] for one in chosen],
            [self.spans[one] for one in chosen],
        )


_NO_PARTS: Mapping[str, float] = {}


@dataclass(slots=True)
class Scorer:
    """One prompt's verifier with its memory, which also holds every text seen so far."""

    verifier: Verifier
    question: str
    label: str
    process: Process
    seconds: float = 0.0
    texts: dict[bytes, str] = field(default_factory=dict)
    scores: dict[tuple[str, float], Score] = field(default_factory=dict)
    read: dict[str, Score] = field(default_factory=dict)  # of each text, at some confidence
    rescoring: Rescoring | None = None  # the verifier, if it can be asked again cheaply

    def __post_init__(self) -> None:
        if isinstance(self.verifier, Rescoring):
            self.rescoring = self.verifier

    def text(self, tokens: Ints) -> str:
        key = tokens.tobytes()
        if key not in self.texts:
            self.texts[key] = self.process.read(tokens)
        return self.texts[key]

    def __call__(self, clean: CleanText, where: str) -> Scores:
        """Scores of clean texts; `where` names the moment in an error."""
        started = time.perf_counter()
        known: dict[tuple[bytes, float], Score] = {}  # children are mostly copies of each other
        scores = []
        for tokens, confidence in zip(clean.tokens, clean.confidence.tolist(), strict=True):
            key = (tokens.tobytes(), confidence)
            if key not in known:
                known[key] = self._one(self.text(tokens), confidence, where)
            scores.append(known[key])
        self.seconds += time.perf_counter() - started
        return Scores.of(scores)

    def best(self) -> dict[str, tuple[Score, float]]:
        """Every text scored so far with its highest score and the confidence it had then."""
        found: dict[str, tuple[Score, float]] = {}
        for (text, confidence), score in self.scores.items():
            if text not in found or score.total > found[text][0].total:
                found[text] = (score, confidence)
        return found

    def _one(self, text: str, confidence: float, where: str) -> Score:
        key = (text, confidence)
        if key not in self.scores:
            known = self.read.get(text)
            if known is not None and self.rescoring is not None:
                self.scores[key] = self.rescoring.rescore(known, confidence)
            else:
                self.scores[key] = self.read[text] = self._verify(text, confidence, where)
        return self.scores[key]

    def _verify(self, text: str, confidence: float, where: str) -> Score:
        culprit = getattr(self.verifier, "name", type(self.verifier).__name__)
        place = f"{where}, prompt {self.label}"
        try:
            score = self.verifier.score(self.question, text, confidence)
        except VerifierError as error:
            raise VerifierError(f"{error}; at {place}; the text was {text[:80]!r}") from error
        except Exception as error:
            raise VerifierError(
                f"verifier {culprit!r} raised {type(error).__name__}: {error} at {place}; "
                f"the text was {text[:80]!r}"
            ) from error
        if not (math.isfinite(score.total) and 0.0 <= score.total <= 1.0):
            raise VerifierError(
                f"verifier {culprit!r} returned {score.total!r} at {place}; a score must be a "
                f"number from 0 to 1; the text was {text[:80]!r}"
            )
        return score
