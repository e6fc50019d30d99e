r"""One spelling for equal answers, so that 18, 18.0, $18 and "18 dollars" vote together.

Pure Python and fast: it runs on every survivor of every search. Deciding whether two *different*
formulas are equal is grading's work (`grading.py`), not the vote's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from s3dlm.answers import expressions
from s3dlm.answers.numbers import NUMBER, UNSIGNED, frac, to_fraction

_DROPPED = (
    "\\left", "\\right", "\\!", "\\,", "\\;", "\\:", "\\ ", "\\(", "\\)", "\\[", "\\]", "\\$", "$",
    "\\%", "%", "^{\\circ}", "^\\circ", "^{∘}", "°", "\\displaystyle", "\\degree", "£", "€",
)  # fmt: skip
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]{0,200})\}")
_SHORT_FRAC = re.compile(r"\\frac\s*([0-9a-zA-Z])\s*(?:([0-9a-zA-Z])|(?=\{))")
_SHORT_SQRT = re.compile(r"\\sqrt\s*([0-9a-zA-Z])")
_ASSIGNED = re.compile(r"[A-Za-z](?:_\{?\w\}?)?(?:\([a-z]\))?=(?=[^=])")
_STATED = rf"(-?{UNSIGNED}|-?{frac(f'-?{UNSIGNED}', UNSIGNED)})"
_UNITS = re.compile(_STATED + r"\s*[A-Za-z][A-Za-z .²³/^0-9-]{0,60}")
# In a formula "2x" is no number with a unit; a unit there stands apart and is a word.
_MATH_UNITS = re.compile(_STATED + r"\s+[A-Za-z]{2}[A-Za-z .²³/^0-9-]{0,60}")
_MIXED = re.compile(r"(-?)([0-9]{1,9})\s*" + frac("([0-9]{1,9})", "([0-9]{1,9})"))
_OR = re.compile(r"[0-9})]\s*or\s*[-+\\(0-9.]")


def is_choice_of_values(answer: str) -> bool:
    """Whether an answer names several values, as in "3 or 4": it then states none of them."""
    return _OR.search(_tidy(answer)) is not None


def number_in(answer: str) -> Fraction | None:
    """The number an answer states: the whole of it, or after its last `=`, or its first numeral."""
    text = _tidy(answer)
    if _OR.search(text):
        return None
    value = _value(text, _UNITS.fullmatch)
    if value is None and "=" in text:
        value = number_in(text.rpartition("=")[2])
    if value is None and (first := NUMBER.search(text)):
        value = to_fraction(first[0])
    return value


def number(answer: str) -> str:
    """By its value, or else as written."""
    value = number_in(answer)
    return _tidy(answer).lower() if value is None else str(value)


def math(answer: str) -> str:
    """By its value if it is a number, else without space and typography."""
    tidy = _tidy(answer)
    text = re.sub(r"\s+", "", tidy)
    text = _ASSIGNED.sub("", text, count=1) if _ASSIGNED.match(text) else text
    for spelling in (tidy, text):
        if (value := _value(spelling, _MATH_UNITS.fullmatch)) is not None:
            return str(value)
    return text.lower() if len(text) > 1 and text.isalpha() else text


def expression(answer: str) -> str:
    """Without idle brackets and order."""
    parsed = expressions.parse(answer)
    return parsed.canonical() if parsed else re.sub(r"\s+", "", answer)


def _tidy(answer: str) -> str:
    """Typography off: dollar signs, thin spaces, degree signs, `\\text{}` wrappers, a final dot."""
    text = answer.replace("\\\\", "\\").replace("{,}", ",").replace("−", "-").replace("–", "-")
    text = text.replace("dfrac", "frac").replace("tfrac", "frac").replace(",\\!", ",")
    for token in _DROPPED:
        if token in text:
            text = text.replace(token, "")
    text = _TEXT.sub(r" \1 ", text)
    text = _SHORT_FRAC.sub(lambda m: f"\\frac{{{m[1]}}}" + (f"{{{m[2]}}}" if m[2] else ""), text)
    return _SHORT_SQRT.sub(r"\\sqrt{\1}", text).strip(" \t\n*`").rstrip(". ")


def _value(text: str, with_units: Callable[[str], re.Match[str] | None]) -> Fraction | None:
    """The exact value of a numeral, fraction or mixed number, with or without a unit behind it."""
    text = text.strip()
    if _OR.search(text):
        return None
    if (value := to_fraction(text)) is not None:
        return value
    if mixed := _MIXED.fullmatch(text):
        sign, whole, above, below = mixed.groups()
        if not int(below):
            return None
        return int(f"{sign}1") * (int(whole) + Fraction(int(above), int(below)))
    units = with_units(text)
    return to_fraction(units[1]) if units else None
