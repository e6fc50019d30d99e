"""One text, read once for all parts of the verifier.

The parts share what is expensive to find: the answer and its place, the equations, and how
the answer follows from the question's numbers. Each is found when first asked for, so that a score
stays a few tens of microseconds: it runs for every child of every step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import NamedTuple

from s3dlm.answers.delimiters import Found, find, find_number, strip_end_tokens, up_to_stop
from s3dlm.answers.numbers import numbers_in, to_float
from s3dlm.answers.spelling import number_in
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
# "<<3*4=12>>" repeats a step for a calculator, as in the solutions of GSM8K.
_MARK = re.compile(r"<<([^<>\n]{1,100})>>")
_GIVES = re.compile(r"boxed\{|####|[Aa]nswer\s{0,3}(?:is\b|:)")
GARBLED = (_WORD_OPERAND, _GLUED_NUMERAL, _WORD_SIGN)
_NUMERAL_OR_WORD = re.compile(rf"[0-9][0-9.,]*+|\b(?:{'|'.join(SPOKEN)})\b", re.IGNORECASE)
# Numbers that need no source: small counts, and those of clocks, calendars and per cents.
COMMON = frozenset(
    (1.0, 2.0, 3.0, 4.0, 7.0, 10.0, 12.0, 24.0, 30.0, 52.0, 60.0, 100.0, 365.0, 1000.0)
)


class Derivation(NamedTuple):
    """The answer's value and all that speaks for it."""

    answer: float | None
    equations: list[Equation]
    numbers: list[float]
    question: tuple[float, ...]
    # The places of the question's numbers that the answer comes from; None when no equation, and no
    # single step from one, gives the answer.
    source: frozenset[int] | None
    claims: int  # equations, and formulas in which a word stands for a number
    wrong: int  # equations that do not hold, and such formulas

    def answer_in(self, numbers: Iterable[float]) -> bool:
        """Whether the answer is one of these numbers."""
        answer = self.answer
        return answer is not None and any(same(number, answer) for number in numbers)

    @property
    def computed(self) -> bool:
        """Whether some equation gives the answer."""
        return self.answer_in(step.right.value for step in self.equations)

    @property
    def traced(self) -> float:
        """The share of the question's numbers that the answer can be traced back to."""
        return len(self.source or ()) / len(self.question) if self.question else 0.0

    @property
    def results_used(self) -> float:
        """The share of results that a later equation uses, or that are the answer; 0.5 without any."""
        wanted, used = [self.answer] if self.answer is not None else [], 0
        for step in reversed(self.equations):
            used += any(same(step.right.value, value) for value in wanted)
            wanted += step.left.operands
        return used / len(self.equations) if self.equations else 0.5


class ParsedText:
    """A prompt and a text; all that is read from them is found when first asked for."""

    def __init__(self, prompt: str, written: str, confidence: float | None = None) -> None:
        self.prompt, self.written, self.confidence = prompt, written, confidence

    @cached_property
    def text(self) -> str:
        """The text without its trailing end tokens."""
        return strip_end_tokens(self.written)

    @cached_property
    def answer(self) -> Found | None:
        """The final answer by the cascade, and where it stands."""
        return find(up_to_stop(self.text))

    @cached_property
    def lower(self) -> str:
        return self.text.lower()

    @cached_property
    def answers(self) -> frozenset[float]:
        """The numbers that the text gives as its answer, by any delimiter."""
        given = set()
        for match in islice(_GIVES.finditer(self.text), MAX_EQUATIONS):
            line = self.text[match.end() : match.end() + 40].partition("\n")[0]
            if numbers := numbers_in(line):
                given.add(numbers[-1 if "=" in line else 0])
        return frozenset(given)

    @cached_property
    def derivation(self) -> Derivation:
        """The equations and numbers before the answer, and how the answer follows from them."""
        before = self.text[: self.answer.start] if self.answer else self.text
        return self._derived(before, numbers_in(before))

    def _derived(self, before: str, numbers: list[float], wrong: int = 0) -> Derivation:
        value = number_in(self.answer.content[:200]) if self.answer else None
        answer = float(value) if value is not None and abs(value) < 10**15 else None
        if answer is not None and before.rstrip(" $\\(").endswith("="):
            before += f"{answer:.12g}"  # "600 / 2 = \\boxed{300}": the box is the right side
        steps = equations_in(before)[-MAX_EQUATIONS:]
        question = question_numbers(self.prompt)
        garbled = len(garbled_spans(self.prompt, before, GARBLED[:1], self.text))
        source = None if answer is None else _trace(answer, steps, question)
        claims = len(steps) + garbled + wrong
        wrong += sum(not step.holds for step in steps) + garbled
        return Derivation(answer, steps, numbers, question, source, claims, wrong)


class FreeText(ParsedText):
    """A text in any format: read up to where a reader stops, with an answer wherever it stands."""

    @cached_property
    def text(self) -> str:
        return up_to_stop(strip_end_tokens(self.written))

    @cached_property
    def answer(self) -> Found | None:
        """As votes and grading read it."""
        return find_number(self.text)

    @cached_property
    def derivation(self) -> Derivation:
        """As of any text; calculator marks are checked and left out, and where nothing marks the answer
        all of the text leads to it."""
        found = self.answer
        before = self.text[: found.start] if found and found.delimiter else self.text
        marked = _MARK.findall(before)[-MAX_EQUATIONS:]
        wrong = sum(not all(step.holds for step in equations_in(mark)) for mark in marked)
        before = _MARK.sub("", before)
        numbers = numbers_in(before)
        numbers = numbers if found and found.delimiter else numbers[:-1]
        return self._derived(before, numbers, wrong)


def garbled_spans(
    prompt: str, text: str, patterns: Sequence[re.Pattern[str]] = GARBLED, context: str = ""
) -> list[tuple[int, int]]:
    """Where a word that nothing else in sight explains stands for a number or a sign, or is glued to
    a number. `context` is the whole text, if `text` is only its beginning."""
    lower, lower_prompt = (context or text).lower(), prompt.lower()

    def unexplained(word: str) -> bool:
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
    numerals = _NUMERAL_OR_WORD.findall(prompt[:8000])
    values = (SPOKEN.get(each.lower(), to_float(each.rstrip(".,"))) for each in numerals)
    return tuple(dict.fromkeys(value for value in values if value is not None))[:40]


def same(left: float, right: float) -> bool:
    """Equal up to rounding."""
    return abs(left - right) <= 1e-6 * max(1.0, abs(left))


def _gives(left: float, right: float, answer: float) -> bool:
    """Whether one operation on two numbers gives the answer."""
    if same(left + right, answer) or same(left - right, answer):
        return True
    quotients = (left * right, left / right, right / left) if left > 1 and right > 1 else ()
    return any(same(value, answer) for value in quotients)


def _trace(
    answer: float, steps: list[Equation], question: tuple[float, ...]
) -> frozenset[int] | None:
    """Where the answer comes from; None when no equation, and no single step from one, gives it."""
    known: dict[float, frozenset[int]] = {}

    def origin_of(values: Iterable[float]) -> frozenset[int]:
        """Results have a source of their own; a number of the question may be a share there."""
        numbers = frozenset[int]()
        for value in values:
            key = round(value, 6)
            if key in known:
                numbers |= known[key]
            elif (index := _forms(question).get(key)) is not None:
                numbers |= {index}
        return numbers

    for step in steps:
        known[round(step.right.value, 6)] = origin_of(step.left.operands)
    if (origin := known.get(round(answer, 6))) is not None:
        return origin
    # A model often leaves the last step out and boxes its outcome.
    results = list(dict.fromkeys(step.right.value for step in steps[-RECENT:]))
    others = dict.fromkeys((*results, *question[:8]))
    pairs = ((left, right) for left in results for right in others)
    return next((origin_of(pair) for pair in pairs if _gives(*pair, answer)), None)


@lru_cache(maxsize=256)
def _forms(question: tuple[float, ...]) -> dict[float, int]:
    """Each number of a question as it may turn up: itself, as a share, as what a share leaves."""
    forms: dict[float, int] = {}
    for index, number in enumerate(question):
        share = number / 100
        for form in (number, share, 100 - number, 1 - share, 1 + share):
            forms.setdefault(round(form, 6), index)
    return forms
