"""Clean texts to scores, each distinct text read and verified once.

A search does not call its verifier: it awaits a `Verify` and goes on when its texts are scored, so that
whoever drives several searches may have the texts of all verified in one call. The verifier is foreign
code fed with model-written text: what it raises or returns is checked here, and an error names the
step, the prompt and the verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import NDArray

from s3dlm.errors import VerifierError, short_repr
from s3dlm.search.particles import (
    PORTION,
    Bools,
    CleanText,
    Columns,
    Floats,
    Ints,
    Process,
    Request,
    distinct,
)
from s3dlm.verifier.base import Score, Spans, Verifier, check_wanted, score_texts, takes_many

if TYPE_CHECKING:  # what passes through a search unread
    from s3dlm.models.packing import Prediction, Rows

SCORES_REMEDY = (
    "`score` and `score_partial` must return a s3dlm.verifier.Score, `score_batch` a list of them, one "
    "per text"
)
MOST_PARTIAL = 10_000  # partial texts whose scores are remembered
ROUNDING = 1e-6  # of a score beyond 0 or 1
MOST_TEXTS, MOST_TOKENS = 1 << 13, 1 << 21  # that a search remembers at a time
TextKey = tuple[str, float]  # a text and the model's confidence in it


@dataclass(frozen=True, slots=True)
class Scores(Columns):
    """Scores of some texts."""

    total: Floats  # NaN where nothing was scored
    parts: NDArray[np.object_]  # of each score
    spans: NDArray[np.object_]  # where each text looks wrong to the verifier (`Spans`)

    @classmethod
    def of(cls, scores: Sequence[Score]) -> Scores:
        return cls(
            np.array([score.total for score in scores]),
            np.fromiter((score.parts for score in scores), np.object_, len(scores)),
            np.fromiter((score.spans for score in scores), np.object_, len(scores)),
        )

    @classmethod
    def missing(cls, count: int) -> Scores:
        return cls.of([Score(np.nan)] * count)


@dataclass(frozen=True, slots=True)
class Verify(Request[list[Score]]):
    """A search's request for scores of texts; the reply is one `Score` per text."""

    verifier: Verifier
    question: str
    texts: Sequence[TextKey]  # distinct
    place: str  # names the step and the prompt in an error
    asked: Sequence[Rows] = ()  # one per text, if the searching model is the judge
    partial: bool = False  # whether they are partial texts

    @property
    def forwards(self) -> Sequence[Rows]:
        return self.asked

    def reply(self, predictions: Sequence[Prediction]) -> list[Score]:
        assert self.verifier.model_judge is not None
        return [self.verifier.model_judge.read(prediction) for prediction in predictions]

    @property
    def shares_calls(self) -> bool:
        """Whether the texts of other searches may be verified in the same call."""
        return takes_many(self.verifier) and not self.verifier.compares_texts


def is_for_verifier(request: object) -> TypeGuard[Verify]:
    """Whether it is for a verifier of its own, and not for the model as judge."""
    return isinstance(request, Verify) and not request.asked


Scored = list[Score] | VerifierError  # the reply to a `Verify`, or why there is none


@dataclass(slots=True)
class Scorer:
    """One prompt's verifier with its memory of texts: the better ones, if there are many."""

    verifier: Verifier
    question: str
    label: str
    process: Process
    satisfied_at: float | None = None  # the score that ends the search; None: it never ends early
    texts: dict[bytes, str] = field(default_factory=dict)
    scores: dict[TextKey, Score] = field(default_factory=dict)
    looks: dict[str, tuple[Ints, Floats]] = field(default_factory=dict)
    """The tokens of each text and their log-probabilities, as it was seen last."""
    first: dict[str, float] = field(default_factory=dict)  # confidences of texts that are read once
    nfe: int = 0  # forward passes that the model took as judge
    partial: dict[str, float] = field(default_factory=dict)  # totals of partial texts

    @property
    def takes_many(self) -> bool:
        """Whether the verifier is called for the texts of many searches together."""
        return takes_many(self.verifier)

    def text(self, tokens: Ints) -> str:
        key = tokens.tobytes()
        if key not in self.texts:
            self.texts[key] = self.process.reader.read(tokens)
        return self.texts[key]

    def satisfied(self, total: Floats, spans: Iterable[Spans]) -> Bools:
        """Which texts end the search: the score is enough, and no part looks wrong."""
        if (least := self.satisfied_at) is None:
            return np.zeros(total.size, np.bool_)
        enough = [score >= least and not len(s) for score, s in zip(total, spans, strict=True)]
        return np.array(enough, dtype=np.bool_)

    async def score(self, clean: CleanText, where: str) -> Scores:
        """Scores of clean texts; `where` names the step in an error. Between two portions, whoever
        drives the search may do something else or end it."""
        rows, portions = len(clean.tokens), []
        size = rows if self.takes_many else PORTION
        for start in range(0, rows, size):
            portion = clean.take(slice(start, start + size))
            portions.append(await self._portion(portion, where))
        return Scores.join(portions)

    async def _portion(self, clean: CleanText, where: str) -> Scores:
        self._forget(clean.tokens.shape[1])
        texts = map(self.text, clean.tokens)
        keys = list(zip(texts, clean.confidence.tolist(), strict=True))
        judge = self.verifier.model_judge
        if judge is not None or self.verifier.compares_texts:
            keys = [(text, self.first.setdefault(text, sure)) for text, sure in keys]
        last = {text: row for row, (text, _) in enumerate(keys)}
        self.looks |= {t: (clean.tokens[r].copy(), clean.logp[r].copy()) for t, r in last.items()}
        new = [key for key in dict.fromkeys(keys) if key not in self.scores]
        if new:
            self.scores |= zip(new, await self.request(new, where), strict=True)
            self.nfe += len(new) * (judge is not None)
        return Scores.of([self.scores[key] for key in keys])

    async def score_partial(self, tokens: Ints, where: str) -> Floats:
        """Totals of canvases as far as they are known, in portions; equal ones are read once."""
        if len(self.partial) > MOST_PARTIAL:
            self.partial.clear()
        first, kind = distinct(row.tobytes() for row in tokens)
        totals, size = list[float](), first.size if self.takes_many else PORTION
        for start in range(0, first.size, size):
            rows = first[start : start + size]
            texts = [self.process.reader.read_partial(tokens[row]) for row in rows]
            new = [(text, 0.0) for text in dict.fromkeys(texts) if text not in self.partial]
            if new:
                scores = await self.request(new, where, partial=True)
                self.partial |= {k[0]: score.total for k, score in zip(new, scores, strict=True)}
            totals += [self.partial[text] for text in texts]
        return np.array(totals)[kind]

    def _forget(self, length: int) -> None:
        """Of more texts than a search remembers, keep the better ones: a half of what it may."""
        most = min(MOST_TEXTS, MOST_TOKENS // length)
        if len(self.scores) > most:
            better = sorted(self.scores, key=lambda key: (self.scores[key].total, key[1]))
            kept = dict.fromkeys(better[-(most // 2) :])
            names = {text for text, _ in kept}
            self.scores = {key: score for key, score in self.scores.items() if key in kept}
            self.looks = {text: look for text, look in self.looks.items() if text in names}
            self.first = {text: sure for text, sure in self.first.items() if text in names}
        if len(self.texts) > most:
            self.texts.clear()

    def request(self, keys: Sequence[TextKey], where: str, *, partial: bool = False) -> Verify:
        verifier, question, place = self.verifier, self.question, f"{where}, prompt {self.label}"
        judge = verifier.model_judge
        asked = [] if judge is None else [judge.ask(question, text, place) for text, _ in keys]
        return Verify(verifier, question, keys, place, asked, partial)

    def best(self) -> dict[str, tuple[Score, float]]:
        """Every text scored so far with its highest score and the confidence it had then."""
        best: dict[str, tuple[Score, float]] = {}
        for (text, confidence), score in self.scores.items():
            if text not in best or score.total > best[text][0].total:
                best[text] = (score, confidence)
        return best


def verify(requests: Sequence[Verify]) -> list[Scored]:
    """What each request asks for, or its error: one call per verifier for the texts of all. A call
    that fails is repeated for each request by itself, so that an error ends only its own search."""
    replies: dict[int, Scored] = {}
    groups: dict[object, list[int]] = {}
    for index, request in enumerate(requests):
        shared = (id(request.verifier), request.partial)
        key = shared if request.shares_calls else ("alone", index)
        groups.setdefault(key, []).append(index)
    for group in groups.values():
        try:
            replies |= zip(group, _verify_together([requests[i] for i in group]), strict=True)
        except VerifierError as error:
            if len(group) == 1:
                replies[group[0]] = error
            else:
                replies |= {index: verify([requests[index]])[0] for index in group}
    return [replies[index] for index in range(len(requests))]


def _verify_together(requests: Sequence[Verify]) -> Iterator[list[Score]]:
    """One call for every distinct question, text and confidence."""
    rows = [[(request.question, *key) for key in request.texts] for request in requests]
    texts = list(dict.fromkeys(row for own in rows for row in own))
    verifier = requests[0].verifier
    # A verifier that takes texts one by one fails at one text, which the error names.
    calls = [texts] if takes_many(verifier) else [[row] for row in texts]
    scores = [score for call in calls for score in _checked_call(requests[0], call)]
    known = dict(zip(texts, scores, strict=True))
    return ([known[row] for row in own] for own in rows)


def _checked_call(request: Verify, rows: Sequence[tuple[str, str, float]]) -> Sequence[Score]:
    """The verifier's scores of rows (question, text, confidence), or an error that names the place."""
    verifier, place = request.verifier, f"at {request.place}; the text was {rows[0][1][:80]!r}"
    culprit = f"verifier {(verifier.name or type(verifier).__name__)!r}"
    check_wanted()
    try:
        scores: object = score_texts(verifier, rows, partial=request.partial)
    except VerifierError as error:
        raise VerifierError(f"{error}; {place}") from error
    except Exception as error:
        raise VerifierError(f"{culprit} raised {type(error).__name__}: {error} {place}") from error
    # Unnoticed, anything but one score per text would fail later and end all searches.
    if (wrong := _what_is_wrong(scores, len(rows))) is not None:
        got, remedy = wrong
        raise VerifierError(f"{culprit} returned {got} {place}; {remedy}")
    return [_within(score) for score in scores]  # type: ignore[attr-defined]  # as has been checked


def _what_is_wrong(scores: object, count: int) -> tuple[str, str] | None:
    """What a verifier returned instead of scores, and what to return."""
    if not isinstance(scores, Sequence):
        return short_repr(scores), SCORES_REMEDY
    if len(scores) != count:
        return f"{len(scores)} scores for {count} texts", SCORES_REMEDY
    for score in scores:
        if not isinstance(score, Score):
            return short_repr(score), SCORES_REMEDY
        if not _is_share(score.total):
            return short_repr(score.total), "a score must be a number from 0 to 1"
    return None


def _within(score: Score) -> Score:
    known = 0.0 <= score.total <= 1.0
    return score if known else replace(score, total=float(round(score.total)))


def _is_share(total: object) -> bool:
    """A sum of weights may miss 0 or 1 by a rounding error, which must not end a search."""
    try:
        return bool(-ROUNDING <= total <= 1 + ROUNDING)  # type: ignore[operator]
    except (TypeError, ValueError):
        return False
