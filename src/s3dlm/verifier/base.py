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
from typing import Any, Protocol, TypeAlias
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


class ModelJudge(Protocol):
    """How the searching model itself is asked about a text, among the search's own rows: one forward
    pass per text, which counts."""

    def ask(self, prompt: str, text: str, place: str) -> Any:
        """The row that the model is asked about a text; `place` names it in errors."""

    def read(self, prediction: Any) -> Score:
        """The score that follows from the model's prediction for that row."""


class Verifier(ABC):
    """Judges texts written for a prompt. Only `score` must be written.

    `score_batch` is written where it is faster than `score`: it is then called once per step with the
    texts of all running searches, beside the forward passes of others.

    Attributes:
        name: Names the verifier in errors; the name of the class by default.
        satisfied_at: A search with a budget ends at the first text whose total reaches this and that has
            no spans; None: it never ends early.
        compares_texts: Whether a score depends on the other texts of a call. Each search then has calls of
            its own, and a text is read once, whatever its confidence is later.
        score_partial: (prompt, partial text) → how good it looks, 1 while nothing is wrong yet; a method or
            a function, None where partial texts are not read. Every token that is not known is one `HOLE`,
            whatever text it may become; known text beside a hole may be half a word or half a number. It
            is called for every candidate of a step, so it must be cheap.
        model_judge: How the searching model is asked, if it is the judge.
    """

    __slots__ = ()

    name: str = ""
    satisfied_at: float | None = None
    compares_texts: bool = False
    score_partial: Callable[[str, str], Score] | None = None
    model_judge: ModelJudge | None = None

    @abstractmethod
    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """How good the text looks, from 0 to 1.

        Args:
            prompt: The question.
            text: What was written for it.
            confidence: The model's own, where it has one.
        """

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        """One score per text, in order."""
        rows = zip(prompts, texts, confidences, strict=True)
        return [self.score(prompt, text, confidence) for prompt, text, confidence in rows]


def takes_many(verifier: Verifier) -> bool:
    """Whether a verifier has a `score_batch` of its own, which is worth one call for the texts of all."""
    return getattr(verifier.score_batch, "__func__", None) is not Verifier.score_batch


def score_texts(
    verifier: Verifier, rows: Sequence[tuple[str, str, float | None]], *, partial: bool = False
) -> Sequence[Score]:
    """A verifier's scores of rows (prompt, text, confidence), which may be partial: the one way to any
    verifier.

    It is given the last `MAX_TEXT` characters of each prompt and text, so that no text can hold it up;
    spans count from the start of the whole text.
    """
    cut = [(prompt[-MAX_TEXT:], text[-MAX_TEXT:], confidence) for prompt, text, confidence in rows]
    if partial and (read := verifier.score_partial) is not None:
        return [read(prompt, text) for prompt, text, _ in cut]
    scores: Any = (
        [verifier.score(*cut[0])]
        if len(cut) == 1
        else verifier.score_batch(*zip(*cut, strict=True))
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


class FunctionVerifier(Verifier):
    """A function as a verifier: its value is the total and the only part. It may have the attribute
    `satisfied_at`."""

    def __init__(self, judge: ScoreFunction) -> None:
        self.judge = judge
        self.name = getattr(judge, "__name__", type(judge).__name__)
        self.satisfied_at = getattr(judge, "satisfied_at", None)

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        value = checked(self.judge(prompt, text, confidence), self.name)
        return Score(value, {"custom": value})

    def __reduce__(self) -> tuple[Any, ...]:
        return adapt, (self.judge,)


# The same function is adapted once as long as somebody uses it: searches that share it share its calls.
_ADAPTED: WeakValueDictionary[int, FunctionVerifier] = WeakValueDictionary()


def adapt(judge: object) -> Verifier:
    """A verifier as it is; a function as a verifier."""
    if isinstance(judge, Verifier):
        return judge
    if isinstance(judge, type) or not callable(judge):
        raise SettingsError(
            f"verifier={judge!r} is not a verifier; give a function (question, text, confidence) -> "
            "float, an object of a class derived from s3dlm.Verifier, or a name"
        )
    adapted = _ADAPTED.get(id(judge))
    if adapted is None:
        adapted = _ADAPTED[id(judge)] = FunctionVerifier(judge)
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
