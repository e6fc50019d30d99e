"""Numbers as models write them: `1,200`, `$18`, `-3.5`, `\\frac12`, `1/2`, `18 dollars`.

Every pattern is linear and uses ASCII digits only, and a number longer than `MAX_DIGITS` is not
read: model-written text is untrusted, and converting a million digits is quadratic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

MAX_DIGITS = 40
TAIL = 2000  # characters at the end of a text in which its last number is looked for

# A thousands comma counts only before exactly three digits, so that "(3,4)" stays two numbers.
UNSIGNED = r"(?:[0-9]++(?:,[0-9]{3}(?![0-9]))*+(?:\.[0-9]++)?+|\.[0-9]++)"
NUMBER = re.compile(rf"-?{UNSIGNED}")

_IN_TEXT = re.compile(r"([-−] ?\\?\$?)?([0-9][0-9.,]*+)")
_MINUS = re.compile(r"(\S?)( {0,3})[-−]( ?)\\?\$?\Z")

_RATIO = re.compile(rf"(-?{UNSIGNED})\s*/\s*(-?{UNSIGNED})")


def frac(above: str, below: str) -> str:
    r"""The pattern of `\frac{above}{below}`, for all who read it."""
    return rf"\\[dtc]?frac\s*+\{{\s*+{above}\s*+\}}\s*+\{{\s*+{below}\s*+\}}"


_FRAC = re.compile(r"(-?)" + frac(f"(-?{UNSIGNED})", f"(-?{UNSIGNED})"))


def to_float(numeral: str) -> float | None:
    """The value of one numeral such as `-1,200.5`; None when it is none or too long."""
    if len(numeral) > MAX_DIGITS:
        return None
    try:
        return float(numeral.replace(",", ""))
    except ValueError:
        return None


def to_fraction(numeral: str) -> Fraction | None:
    """The exact value of a numeral, of `a/b` or of `\\frac{a}{b}` standing alone."""
    if len(numeral) > 2 * MAX_DIGITS:
        return None
    numeral = numeral.strip()
    if NUMBER.fullmatch(numeral):
        return Fraction(numeral.replace(",", "")) if len(numeral) <= MAX_DIGITS else None
    if ratio := _RATIO.fullmatch(numeral):
        return _quotient("", ratio[1], ratio[2])
    if fraction := _FRAC.fullmatch(numeral):
        return _quotient(*fraction.groups())
    return None


def _quotient(sign: str, above: str, below: str) -> Fraction | None:
    top, bottom = to_fraction(above), to_fraction(below)
    if top is None or not bottom:
        return None
    return -top / bottom if sign else top / bottom


def numbers_in(text: str) -> list[float]:
    """Every number of a running text, with its sign; a minus between two operands is not a sign."""
    return [-value if negative else value for _, value, negative in _numerals(text)]


def last_number_in(text: str) -> str | None:
    """The last number of a running text, with its sign, as written."""
    *_, (numeral, _, negative) = ("", 0.0, False), *_numerals(text[-TAIL:])
    return f"-{numeral}" if negative else numeral or None


def _numerals(text: str) -> Iterator[tuple[str, float, bool]]:
    """Every numeral of a text, its value, and whether a minus stands before it."""
    for match in _IN_TEXT.finditer(text):
        numeral = match[2].rstrip(".,")
        if (value := to_float(numeral)) is not None:
            yield numeral, value, bool(match[1]) and negative_at(text, match.start(2))


def negative_at(text: str, start: int) -> bool:
    """Whether the numeral that starts here has a minus sign: `= -5`, `(-$5)`, `is -5`, not `10 - 5`."""
    match = _MINUS.search(text, max(0, start - 12), start)
    if match is None:
        return False
    previous, gap, spaced = match[1], match[2], match[3]
    if spaced:  # "= - 5", but neither "x - 5" nor the bullet "- 5 apples"
        return previous != "" and previous in "=(,{[<>"
    if previous.isalpha():
        return gap != ""  # "is -5", not "x-5"
    return not (previous.isdigit() or (previous != "" and previous in ")]}%"))
