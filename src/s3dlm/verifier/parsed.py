"""One text, read once for all parts of the verifier.

The parts share what is expensive to find: the answer and its place, the words, the equations, and how
the answer follows from the question's numbers. Each is found when first asked for, so that a score
stays a few tens of microseconds: it runs for every child of every step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import NamedTuple

from s3dlm.answers.delimiters import Found, find, strip_end_tokens
from s3dlm.answers.normalise import number_in
from s3dlm.answers.numbers import numbers_in, to_float
from s3dlm.verifier.equations import SPOKEN, SPOKEN_SIGNS, Equation, equations_in

MAX_EQUATIONS = 60  # the last ones of a text; more is no reasoning, and tracing stays linear
MAX_GARBLED = 200  # looked for in all of the text, so this stays linear too
RECENT = 4
_WORD_OPERAND = re.compile(
    r"[0-9)][^\S\n]?[-+*/×÷−][^\S\n]?([A-Za-z]{2,30})[^\S\n]?=[^\S\n]?\$?-?[0-9]"
    r"|\b([A-Za-z]{2,30})[^\S\n]?[-+*/×÷−][^\S\n]?\$?[0-9][0-9.,]*+[^\S\n]?=[^\S\n]?\$?-?[0-9]"
)
_GLUED = re.compile(r"[a-z][A-Z]")
# "= each5", "D0 + 27": a piece of a word in front of the last digits of a number.
_GLUED_NUMERAL = re.compile(
    r"[-+*/×÷−=][^\S\n]?([A-Za-z]{1,30}[0-9]{1,12})\b"
    r"|\b([A-Za-z]{1,30}[0-9]{1,12})[^\S\n]?[-+*/×÷−=]"
)
# "9 Step 6 = 15": a word in the place of a sign.
_WORD_SIGN = re.compile(
    r"[0-9][^\S\n]?(?!of\b)((?:[A-Za-z]{2,30} )?[A-Za-z]{2,30})[^\S\n]?[0-9]{1,12}[^\S\n]?=[^\S\n]?[0-9]"
)
GARBLED = (_WORD_OPERAND, _GLUED_NUMERAL, _WORD_SIGN)
_NUMERAL_OR_WORD = re.compile(rf"[0-9][0-9.,]*+|\b(?:{'|'.join(SPOKEN)})\b", re.IGNORECASE)
# Numbers that need no source: small counts, and those of clocks, calendars and per cents.
_COMMON = frozenset(
    (1.0, 2.0, 3.0, 4.0, 7.0, 10.0, 12.0, 24.0, 30.0, 52.0, 60.0, 100.0, 365.0, 1000.0)
)


class Origin(NamedTuple):
    """Which of the question's numbers a value comes from, and how many numbers from nowhere."""

    numbers: frozenset[int]
    invented: int


class Derivation(NamedTuple):
    """The answer's value and all that speaks for it."""

    answer: float | None
    equations: list[Equation]
    numbers: list[float]
    question: tuple[float, ...]
    source: Origin | None  # None when no equation, and no single step from one, gives the answer
    claims: int  # equations, and formulas in which a word stands for a number
    wrong: int  # equations that do not hold, and such formulas


class ParsedText:
    """A prompt and a text without its trailing end tokens; the rest is found when first asked for."""

    def __init__(self, prompt: str, text: str, confidence: float | None = None) -> None:
        self.prompt = prompt
        self.text = strip_end_tokens(text)
        self.confidence = confidence

    @cached_property
    def answer(self) -> Found | None:
        """The final answer by the cascade, and where it stands."""
        return find(self.text)

    @cached_property
    def lower(self) -> str:
        """The text in lower case."""
        return self.text.lower()

    @cached_property
    def words(self) -> list[str]:
        """The text cut at white space."""
        return self.text.split()

    @cached_property
    def derivation(self) -> Derivation:
        """The equations and numbers before the answer, and how the answer follows from them."""
        value = number_in(self.answer.content[:200]) if self.answer else None
        answer = float(value) if value is not None and abs(value) < 10**15 else None
        before = self.text[: self.answer.start] if self.answer else self.text
        numbers = numbers_in(before)
        if answer is not None and before.rstrip(" $\\(").endswith("="):
            before += f"{answer:.12g}"  # "600 / 2 = \\boxed{300}": the box is the right side
        steps = equations_in(before)[-MAX_EQUATIONS:]
        question = question_numbers(self.prompt)
        garbled = len(garbled_spans(self.prompt, before, GARBLED[:1], self.text))
        return Derivation(
            answer=answer,
            equations=steps,
            numbers=numbers,
            question=question,
            source=_trace(answer, steps, question),
            claims=len(steps) + garbled,
            wrong=sum(not step.holds for step in steps) + garbled,
        )


def garbled_spans(
    prompt: str, text: str, patterns: Sequence[re.Pattern[str]] = GARBLED, context: str = ""
) -> list[tuple[int, int]]:
    """Where a word that nothing else in sight explains stands for a number or a sign, or is glued to
    a number. `context` is the whole text, if `text` is only its beginning."""
    lower, lower_prompt = (context or text).lower(), prompt.lower()

    def unexplained(word: str) -> bool:
        """Neither a sign nor named anywhere else."""
        if word.lower().split()[0] in SPOKEN_SIGNS:
            return False
        word, glued = word.lower(), _GLUED.search(word) is not None
        return glued or (lower.find(word) == lower.rfind(word) and word not in lower_prompt)

    return [
        match.span(match.lastindex or 0)
        for pattern in patterns
        for match in islice(pattern.finditer(text), MAX_GARBLED)
        if unexplained(match[match.lastindex or 0])
    ]


@lru_cache(maxsize=1024)
def question_numbers(prompt: str) -> tuple[float, ...]:
    """The distinct numbers of a question, in digits or in words."""
    values = []
    for numeral in _NUMERAL_OR_WORD.findall(prompt[:8000]):
        value = SPOKEN.get(numeral.lower())
        value = to_float(numeral.rstrip(".,")) if value is None else value
        if value is not None:
            values.append(value)
    return tuple(dict.fromkeys(values))[:40]


def same(left: float, right: float) -> bool:
    """Equal up to rounding."""
    return abs(left - right) <= 1e-6 * max(1.0, abs(left))


def one_step(
    answer: float, steps: list[Equation], question: tuple[float, ...]
) -> tuple[float, ...]:
    """The two recent results, or result and question number, that give the answer in one operation.

    A model often leaves the last step out and boxes its outcome.
    """
    results = list(dict.fromkeys(step.right.value for step in steps[-RECENT:]))
    others = list(dict.fromkeys((*results, *question[:8])))
    for left in results:
        for right in others:
            if _gives(left, right, answer):
                return left, right
    return ()


def _gives(left: float, right: float, answer: float) -> bool:
    if same(left + right, answer) or same(left - right, answer):
        return True
    if left <= 1 or right <= 1:
        return False
    return same(left * right, answer) or same(left / right, answer) or same(right / left, answer)


def _trace(
    answer: float | None, steps: list[Equation], question: tuple[float, ...]
) -> Origin | None:
    """Where the answer comes from; None when no equation, and no single step from one, gives it."""
    if answer is None:
        return None
    known: dict[float, Origin] = {}
    for step in steps:
        source = _join(_source(operand, known, question) for operand in step.left.operands)
        known[_key(step.right.value)] = source._replace(invented=source.invented + (not step.holds))
    if (found := known.get(_key(answer))) is not None:
        return found
    last = one_step(answer, steps, question)
    return _join(_source(value, known, question) for value in last) if last else None


def _source(value: float, known: dict[float, Origin], question: tuple[float, ...]) -> Origin:
    """A result's own source, a question's number (also as a per cent or its complement), or nothing."""
    if (found := known.get(_key(value))) is not None:
        return found
    index = _forms(question).get(_key(value))
    if index is not None:
        return Origin(frozenset((index,)), 0)
    return Origin(frozenset(), int(value not in _COMMON))


@lru_cache(maxsize=256)
def _forms(question: tuple[float, ...]) -> dict[float, int]:
    """Each number of a question as it may turn up: itself, as a share, as what a share leaves."""
    forms: dict[float, int] = {}
    for index, number in enumerate(question):
        share = number / 100
        for form in (number, share, 100 - number, 1 - share, 1 + share):
            forms.setdefault(_key(form), index)
    return forms


def _join(sources: Iterable[Origin]) -> Origin:
    numbers: frozenset[int] = frozenset()
    invented = 0
    for source in sources:
        numbers |= source.numbers
        invented += source.invented
    return Origin(numbers, invented)


def _key(value: float) -> float:
    return round(value, 6)
