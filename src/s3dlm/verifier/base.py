"""What a verifier is: a class whose `score` says how good a text looks, without knowing the answer.

Nothing here has a field for a gold answer, so ground truth cannot reach the search. `search/` imports
this file alone: everything else in the folder is one possible verifier.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from s3dlm.answers.delimiters import MAX_TEXT
from s3dlm.errors import SettingsError, VerifierError

SELF = "self"  # the model that searches, as judge of its own texts (models/self_judge.py)
PARTS = ("structure", "arithmetic", "reachability", "confidence", "non_degeneracy", "constraint")
CHECKABLE = "checkable"  # a part of weight 0: whether the text has a step to check

Texts: TypeAlias = Sequence[str]
Confidences: TypeAlias = Sequence[float | None]  # the model's own, one per text, where it has one
ScoreFunction = Callable[[str, str, float | None], float]
"""A plain function as a verifier: (question, text, confidence) -> score."""

Span = tuple[int, int] | tuple[int, int, float]
"""A character range of a text: its start, its end, and perhaps how doubtful it is, from 0 to 1. That is
the chance that something there is wrong; a range without it is certainly wrong."""

Spans = Sequence[Span]
"""Character ranges of a text, in order."""

HOLE = "░"
"""Stands in a partial text for each token that is not yet known; how much text it will be is open, too."""


def doubts(spans: Spans) -> Iterator[tuple[int, int, float]]:
    """Every range with how doubtful it is."""
    for span in spans:
        start, end, *rest = span
        weight = rest[0] if rest else 1.0
        if not 0.0 <= weight <= 1.0:
            raise VerifierError(
                f"the span {span!r} of a score has the weight {weight!r}; give a number from 0 to 1"
            )
        yield start, end, weight


wanted: ContextVar[Callable[[], bool]] = ContextVar("wanted", default=lambda: True)
"""Whether anybody still waits for the scores that this thread works on."""


def check_wanted() -> None:
    """Before each text: end a call that nobody waits for any more."""
    if not wanted.get()():
        raise VerifierError("nobody waits for these scores any more")


@dataclass(frozen=True, slots=True)
class Score:
    """A verifier's judgement: the total that guides the search, its parts, and what is suspicious."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    spans: Spans = ()  # where the text looks wrong, and how doubtful that is


class Verifier(ABC):
    """Judges texts written for a prompt. Only `score` must be written; the rest has defaults."""

    __slots__ = ()

    name: str = ""
    """Names the verifier in errors; the name of the class by default."""

    satisfied_at: float | None = None
    """A search with a budget ends at the first text whose total reaches this and that has no spans."""

    batched: bool = False
    """Whether `score_batch` is faster than `score`: it is then called once per step with the texts of
    all running searches, beside the forward passes of others."""

    compares_texts: bool = False
    """Whether a score depends on the other texts of a call: each search then has calls of its own."""

    rescores: bool = False
    """Whether `rescore` is written: a text is then read once, whatever its confidence."""

    reads_partial: bool = False
    """Whether `score_partial` is written: the setting `screen` needs it."""

    passes: int = 0
    """Forward passes of the searching model that a text takes. Above 0 that model is the judge: the
    search asks it what `ask` returns, among its own rows, and `read` makes the answer a score."""

    @abstractmethod
    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """How good the text looks, from 0 to 1; `confidence` is the model's own, where it has one."""

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        """One score per text, in order."""
        rows = zip(prompts, texts, confidences, strict=True)
        return [self.score(prompt, text, confidence) for prompt, text, confidence in rows]

    def rescore(self, score: Score, confidence: float | None) -> Score:
        """The score of the same text at another confidence, without reading the text again."""
        raise NotImplementedError(f"{type(self).__name__} says `rescores` but has no `rescore`")

    def score_partial(self, prompt: str, text: str) -> Score:
        """How good a partial text looks, from 0 to 1; 1 means that nothing is wrong yet. Every token that
        is not known is one `HOLE`, whatever text it may become; known text beside a hole may be half
        a word or half a number. It is read for every candidate of a step, so it must be cheap."""
        raise NotImplementedError(f"{type(self).__name__} reads no partial texts")

    def score_partial_batch(self, prompts: Texts, texts: Texts) -> list[Score]:
        """One score per partial text, in order; called where `batched` says so."""
        return [self.score_partial(*row) for row in zip(prompts, texts, strict=True)]

    def ask(self, prompt: str, text: str, place: str) -> Any:
        """The one row that the model is asked about a text; `place` names it in errors."""
        raise NotImplementedError(f"{type(self).__name__} says `passes` but has no `ask`")

    def read(self, prediction: Any) -> Score:
        """The score that follows from the model's prediction for that row."""
        raise NotImplementedError(f"{type(self).__name__} says `passes` but has no `read`")


def score_texts(
    verifier: Verifier, rows: Sequence[tuple[str, str, float | None]], *, partial: bool = False
) -> Sequence[Score]:
    """A verifier's scores of rows (prompt, text, confidence), which may be partial: the one way to any
    verifier.

    It is given the last `MAX_TEXT` characters of each prompt and text, so that no text can hold it up;
    spans count from the start of the whole text.
    """
    cut = [(prompt[-MAX_TEXT:], text[-MAX_TEXT:], confidence) for prompt, text, confidence in rows]
    columns = list(zip(*cut, strict=True))
    scores: Any = (
        [verifier.score_partial(*cut[0][:2]) if partial else verifier.score(*cut[0])]
        if len(cut) == 1
        else verifier.score_partial_batch(*columns[:2])
        if partial
        else verifier.score_batch(*columns)
    )
    starts = [max(len(text) - MAX_TEXT, 0) for _, text, _ in rows]
    if not any(starts) or not isinstance(scores, Sequence) or len(scores) != len(rows):
        return scores  # type: ignore[no-any-return]  # checked by who asked: it may be anything
    return [_moved(score, start) for score, start in zip(scores, starts, strict=True)]


def _moved(score: Score, start: int) -> Score:
    if not start or not isinstance(score, Score):
        return score
    spans: Any = tuple((a + start, b + start, *weight) for a, b, *weight in score.spans)
    return replace(score, spans=spans)


def _of_inner(name: str) -> Any:
    return property(attrgetter(f"inner.{name}"))


class WrappedVerifier(Verifier):
    """Passes everything on to another verifier: the base of those that change one thing about it."""

    __slots__ = ("inner",)

    def __init__(self, inner: Verifier) -> None:
        self.inner = inner

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name or type(self.inner).__name__

    satisfied_at = _of_inner("satisfied_at")
    batched = _of_inner("batched")
    compares_texts = _of_inner("compares_texts")
    rescores = _of_inner("rescores")
    reads_partial = _of_inner("reads_partial")
    passes = _of_inner("passes")

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """As `score_batch`, so that a subclass changes only that."""
        return self.score_batch([prompt], [text], [confidence])[0]

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        return self.inner.score_batch(prompts, texts, confidences)

    def rescore(self, score: Score, confidence: float | None) -> Score:
        return self.inner.rescore(score, confidence)

    def score_partial(self, prompt: str, text: str) -> Score:
        """As `score_partial_batch`, so that a subclass changes only that."""
        return self.score_partial_batch([prompt], [text])[0]

    def score_partial_batch(self, prompts: Texts, texts: Texts) -> list[Score]:
        return self.inner.score_partial_batch(prompts, texts)

    def ask(self, prompt: str, text: str, place: str) -> Any:
        return self.inner.ask(prompt, text, place)

    def read(self, prediction: Any) -> Score:
        return self.inner.read(prediction)


class AdaptedVerifier(Verifier):
    """A function, or an object of a foreign class that has `score` and perhaps more, as a verifier."""

    def __init__(self, judge: Any) -> None:
        self.judge = judge
        self.name = getattr(judge, "name", "") or getattr(judge, "__name__", type(judge).__name__)
        self.satisfied_at = getattr(judge, "satisfied_at", None)
        self.compares_texts = getattr(judge, "compares_texts", False)
        self.batched = callable(getattr(judge, "score_batch", None))
        self.rescores = callable(getattr(judge, "rescore", None))
        self.reads_partial = callable(getattr(judge, "score_partial", None))

    # The object's methods are looked up at each call: they may change with its state, they need no
    # default for the confidence, and only the object itself is pickled.

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The object's own score; a function's value is the total and the only part."""
        if callable(getattr(self.judge, "score", None)):
            score: Score = self.judge.score(prompt, text, confidence)
            return score
        value = checked(self.judge(prompt, text, confidence), self.name)
        return Score(value, {"custom": value})

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        judge: Any = self.judge if self.batched else super()
        scores: list[Score] = judge.score_batch(prompts, texts, confidences)
        return scores

    def rescore(self, score: Score, confidence: float | None) -> Score:
        rescored: Score = self.judge.rescore(score, confidence)
        return rescored

    def score_partial(self, prompt: str, text: str) -> Score:
        score: Score = self.judge.score_partial(prompt, text)
        return score

    def score_partial_batch(self, prompts: Texts, texts: Texts) -> list[Score]:
        able = callable(getattr(self.judge, "score_partial_batch", None))
        judge: Any = self.judge if able else super()
        scores: list[Score] = judge.score_partial_batch(prompts, texts)
        return scores


# The same object is adapted once as long as somebody uses it: searches that share it share its calls.
_ADAPTED: WeakValueDictionary[int, AdaptedVerifier] = WeakValueDictionary()


def adapt(judge: object) -> Verifier:
    """A verifier as it is; a function or an object with `score` as a verifier."""
    if isinstance(judge, Verifier):
        return judge
    if isinstance(judge, type) or not (callable(judge) or callable(getattr(judge, "score", None))):
        raise SettingsError(
            f"verifier={judge!r} is not a verifier; give a function (question, text, confidence) -> "
            "float, an object whose method `score` returns a Score, a name, or a TOML file"
        )
    adapted = _ADAPTED.get(id(judge))
    if adapted is None:
        adapted = _ADAPTED[id(judge)] = AdaptedVerifier(judge)
    return adapted


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
