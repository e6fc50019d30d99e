r"""Equalities `a op b = c` in a reasoning trace, in ASCII and LaTeX, found in one linear pass.

Only the simple form counts, as the paper says: of `20 - 4 - 4 = 12` nothing is checked, rather than
its tail `4 - 4 = 12`, which would call a right line wrong. The search starts at each `=`, which are
few, and reads the operands before it backwards, in the reversed text: never across another `=`.
"""

from __future__ import annotations

import re

from s3dlm.answers.numbers import UNSIGNED, to_float

# Read backwards from an `=`: the right operand, the operator, the left operand.
_BACKWARDS = re.compile(
    r"=\s*+(%?[0-9][0-9.,]*+-?)\s*([-+*/×÷−·xX])\s*+(%?[0-9][0-9.,]*+-?)(\s{0,3}+.)?+", re.DOTALL
)
_RESULT = re.compile(rf"\s*+(-?{UNSIGNED}%?)(\s{{0,3}}+.)?+", re.DOTALL)
_STATED = re.compile(rf"=\s*+(-?{UNSIGNED})")
_FRAC = re.compile(rf"\\[dtc]?frac\s?\{{\s?(-?{UNSIGNED})\s?\}}\s?\{{\s?({UNSIGNED})\s?\}}")
_LATEX = (("\\times", "*"), ("\\cdot", "*"), ("\\div", "/"), ("\\%", "%"), ("\\$", ""), ("\\,", ""))
# What must not stand beside an equality: it would be a piece of something larger.
_JOINED_BEFORE = frozenset("+-*/×÷−·^_)}]")
_JOINED_AFTER = frozenset("+-*/×÷−·^_!({")


def plain_arithmetic(text: str) -> str:
    """The text with LaTeX operators as ASCII ones and without currency signs."""
    if "\\" in text:
        for latex, sign in _LATEX:
            if latex in text:
                text = text.replace(latex, sign)
        if "frac" in text:
            text = _FRAC.sub(r"\1/\2", text)
    if "$" in text:
        text = text.replace("$", "")
    return text if text.isascii() else text.replace("£", "").replace("€", "")


def count_equalities(plain: str) -> tuple[int, int]:
    """How many simple equalities a plain text holds, and how many of them are true."""
    total = verified = 0
    for match in _BACKWARDS.finditer(plain[::-1]):
        result = _RESULT.match(plain, len(plain) - match.start())
        if result is None or not _stands_alone(match, result):
            continue
        holds = _holds(match[3][::-1], match[2], match[1][::-1], result[1])
        if holds is not None:
            total += 1
            verified += holds
    return total, verified


def stated_values(plain: str) -> list[float]:
    """The numbers that stand right after an `=`, in order."""
    values = (to_float(numeral) for numeral in _STATED.findall(plain))
    return [value for value in values if value is not None]


def _stands_alone(operation: re.Match[str], result: re.Match[str]) -> bool:
    """Whether a op b = c is the whole of it: not the tail of a longer sum, not part of a formula."""
    before, after = operation[4], result[2]
    if before and (before[-1] in _JOINED_BEFORE or _is_formula(before)):
        return False
    if before and operation[3][-1] == "-" and before[-1].isalnum():
        return False  # "10 -5 + 3": the sign is an operator
    return not after or not (after[-1] in _JOINED_AFTER or _is_formula(after))


def _is_formula(neighbour: str) -> bool:
    """A letter that touches the number: "2x", "x2"; a unit after a space is none."""
    return len(neighbour) == 1 and neighbour.isalpha()


def _holds(left: str, operator: str, right: str, result: str) -> bool | None:
    """Whether a op b = c; a percentage may be meant as a share or as a bare number."""
    if _true(_plain(left), operator, _plain(right), _plain(result)):
        return True
    if "%" in left or "%" in right or "%" in result:
        return _true(_share(left), operator, _share(right), _share(result))
    return None if None in (_plain(left), _plain(right), _plain(result)) else False


def _plain(numeral: str) -> float | None:
    return to_float(numeral.strip("%.,"))


def _share(numeral: str) -> float | None:
    value = _plain(numeral)
    return value / 100 if value is not None and numeral[-1] == "%" else value


def _true(a: float | None, operator: str, b: float | None, c: float | None) -> bool:
    if a is None or b is None or c is None:
        return False
    if operator in "/÷":
        if b == 0:
            return False
        value = a / b
    elif operator == "+":
        value = a + b
    else:
        value = a - b if operator in "-−" else a * b
    return abs(value - c) <= max(abs(c) * 1e-6, 1e-4)
