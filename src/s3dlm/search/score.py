"""Clean texts to scores, each distinct text read and verified once.

The verifier is foreign code fed with model-written text: what it raises or returns is checked here,
and an error names the step, the prompt and the verifier.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from s3dlm.errors import VerifierError, short_repr
from s3dlm.search.particles import CleanText, Floats, Ints, Process
from s3dlm.verifier.base import Score, Spans, Verifier


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
Key = tuple[str, float]  # a text and the model's confidence in it

REMEDY = "`score` must return a s3dlm.verifier.Score, `score_batch` a list of them, one per text"


@dataclass(slots=True)
class Scorer:
    """One prompt's verifier with its memory, which also holds every text seen so far."""

    verifier: Verifier
    question: str
    label: str
    process: Process
    seconds: float = 0.0
    texts: dict[bytes, str] = field(default_factory=dict)
    scores: dict[Key, Score] = field(default_factory=dict)
    looks: dict[str, CleanText] = field(default_factory=dict)  # each text as it was seen last
    read: dict[str, Score] = field(default_factory=dict)  # of each text, at some confidence
    enough: float | None = None  # the score that ends the search; None: it never ends early

    def text(self, tokens: Ints) -> str:
        key = tokens.tobytes()
        if key not in self.texts:
            self.texts[key] = self.process.read(tokens)
        return self.texts[key]

    def satisfied(self, scores: Scores) -> NDArray[np.bool_]:
        """Which of these texts end the search: the score is enough, and nothing is in doubt."""
        if self.enough is None:
            return np.zeros(scores.total.size, dtype=np.bool_)
        enough: NDArray[np.bool_] = scores.total >= self.enough
        for row in np.flatnonzero(enough).tolist():
            enough[row] = not len(scores.spans[row])
        return enough

    def __call__(self, clean: CleanText, where: str) -> Scores:
        """Scores of clean texts; `where` names the moment in an error."""
        started = time.perf_counter()
        keys = self._keys(clean)
        self.looks |= {key[0]: clean.take(np.array([row])) for row, key in enumerate(keys)}
        self._learn(dict.fromkeys(keys), where)
        self.seconds += time.perf_counter() - started
        return Scores.of([self.scores[key] for key in keys])

    def ask(self, clean: CleanText, where: str) -> Generator[Unscored, None, Scores]:
        """As calling it, but a verifier that takes many texts at once is left to whoever drives the
        search, who may add the texts of others."""
        if self.verifier.batched:
            fresh = self._fresh([*dict.fromkeys(self._keys(clean))])
            if fresh:
                yield Unscored(self, fresh, where)
        return self(clean, where)

    def _keys(self, clean: CleanText) -> list[Key]:
        texts = map(self.text, clean.tokens)
        return list(zip(texts, clean.confidence.tolist(), strict=True))

    def score_text(self, text: str, confidence: float) -> float:
        """The score of one text, outside a step."""
        started = time.perf_counter()
        self._learn([(text, confidence)], "the end")
        self.seconds += time.perf_counter() - started
        return self.scores[text, confidence].total

    def _learn(self, keys: Iterable[Key], where: str) -> None:
        """Scores of all that is new among these, each text read once if that is enough."""
        new = [key for key in keys if key not in self.scores]
        fresh = self._fresh(new)
        self.learn(dict(zip(fresh, self._verify_all(fresh, where), strict=True)))
        for key in new:
            if key not in self.scores:
                self.scores[key] = self.verifier.rescore(self.read[key[0]], key[1])

    def _fresh(self, keys: Sequence[Key]) -> list[Key]:
        """Those that the verifier must see: of a text at several confidences one, if that is enough."""
        new = [key for key in keys if key not in self.scores]
        if not self.verifier.rescores:
            return new
        unread = {key[0]: key for key in reversed(new) if key[0] not in self.read}
        return list(unread.values())[::-1]

    def learn(self, scores: Mapping[Key, Score]) -> None:
        """Remember the verifier's scores."""
        for key, score in scores.items():
            self.scores[key] = self.read[key[0]] = score

    def best(self) -> dict[str, tuple[Score, float]]:
        """Every text scored so far with its highest score and the confidence it had then."""
        found: dict[str, tuple[Score, float]] = {}
        for (text, confidence), score in self.scores.items():
            if text not in found or score.total > found[text][0].total:
                found[text] = (score, confidence)
        return found

    def _verify_all(self, keys: Sequence[Key], where: str) -> list[Score]:
        """One call for all texts where the verifier offers that, else one for each."""
        rows = [(self.question, *key) for key in keys]
        if self.verifier.batched and len(keys) > 1:
            return self.verified(rows, where)
        return [self.verified([row], where)[0] for row in rows]

    def verified(self, rows: Sequence[tuple[str, str, float]], where: str) -> list[Score]:
        """The verifier's scores of rows (question, text, confidence), checked."""
        culprit = self.verifier.name or type(self.verifier).__name__
        place = f"{where}, prompt {self.label}; the text was {rows[0][1][:80]!r}"
        try:
            scores = self._call(rows)
        except VerifierError as error:
            raise VerifierError(f"{error}; at {place}") from error
        except Exception as error:
            raise VerifierError(
                f"verifier {culprit!r} raised {type(error).__name__}: {error} at {place}"
            ) from error
        _check(scores, len(rows), f"verifier {culprit!r} returned", f"at {place}")
        return scores

    def _call(self, rows: Sequence[tuple[str, str, float]]) -> list[Score]:
        if len(rows) == 1:
            return [self.verifier.score(*rows[0])]
        return self.verifier.score_batch(*zip(*rows, strict=True))


def _check(scores: object, count: int, returned: str, place: str) -> None:
    """Refuse what is not one score per text: unnoticed, it would fail later and end all searches."""
    if not isinstance(scores, Sequence):
        raise VerifierError(f"{returned} {short_repr(scores)} {place}; {REMEDY}")
    if len(scores) != count:
        raise VerifierError(f"{returned} {len(scores)} scores for {count} texts {place}; {REMEDY}")
    for score in scores:
        if not isinstance(score, Score):
            raise VerifierError(f"{returned} {short_repr(score)} {place}; {REMEDY}")
        if not _is_share(score.total):
            raise VerifierError(
                f"{returned} {short_repr(score.total)} {place}; a score must be a number from 0 to 1"
            )


def _is_share(total: object) -> bool:
    try:
        return bool(0.0 <= total <= 1.0)  # type: ignore[operator]
    except (TypeError, ValueError):
        return False


@dataclass(frozen=True, slots=True)
class Unscored:
    """Texts that a search needs scores of before it can go on; see verify.py."""

    scorer: Scorer
    keys: Sequence[Key]  # texts and confidences
    where: str  # names the moment in an error
