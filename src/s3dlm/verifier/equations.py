r"""Equations of any shape in a reasoning trace: compound, chained, with units, per cents and "of".

`20 - 4 - 4 = 12 students`, `25% of (20 - 4) = 4`, `100 minutes + 20 minutes = 120 minutes`,
`\frac{84}{3} = 28`, `5 + 3 = 8 = 16 / 2`. The text is cut into tokens once; from each `=` the
operands are gathered to the left and to the right until something stands in the way. A side with a
variable, a power or a root has no value here, and nothing is said of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from s3dlm.answers.expressions import LATEX_SIGNS, Term, from_terms
from s3dlm.answers.numbers import UNSIGNED, frac, to_float

MAX_TERMS = 40  # of one side: no honest line of reasoning is longer
MAX_WORDS = 4  # a unit such as "square feet of carpet"

_SPOKEN = {"half": 0.5, "twice": 2.0, "double": 2.0, "triple": 3.0, "third": 1 / 3, "quarter": 0.25}
SPOKEN_SIGNS = {"plus": "+", "minus": "-", "times": "*", "multiplied": "*", "divided": "/"}
_COUNTS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip
SPOKEN = {**_SPOKEN, **{word: float(value) for value, word in enumerate(_COUNTS)}}
_UNIT = r"\s?(?:\\text\s?\{[^{}\n]{0,40}\})?\s?"
_TOKEN = re.compile(
    rf"""
    (?P<bullet>\n[^\S\n]{{0,8}}[-*•][^\S\n])
    |(?P<number>{UNSIGNED}(?:\s?\\?%)?+)
    |(?P<fraction>{frac(UNSIGNED + _UNIT, UNSIGNED + _UNIT)})
    |(?P<skip>[^\S\n]++|\$|\\[()\[\]$,;!\s]|\\(?:left|right|quad)\b|\*\*|[`£€"'’])
    |(?P<unit>\\(?:text|mathrm)\s?\{{[^{{}}\n]{{0,40}}\}})
    |(?P<operator>[+*/×÷·−–-](?![A-Za-z])|\\(?:times|cdot|div)\b|[xX](?=\s?[0-9$(]))
    |(?P<equals>=)
    |(?P<open>[(\[])
    |(?P<close>[)\]])
    |(?P<word>[A-Za-z]++|/|-)
    |(?P<stop>\\[A-Za-z]++|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BOUNDARY = re.compile(r"(?<!\\)[.,:;!?](?=\s)|\n")
_SIGN = LATEX_SIGNS | {"×": "*", "·": "*", "x": "*", "X": "*", "÷": "/", "−": "-", "–": "-"}
_FUNCTIONS = frozenset(("sqrt", "log", "ln", "sin", "cos", "tan", "binom", "mod"))
_BINDING = _FUNCTIONS | set("^_!{}")
_LEAD_IN = {"so", "that", "since", "because", "and", "then", "thus", "hence", "have", "get"}
_HARMLESS = frozenset(("\\approx", "\\implies", "\\to", "\\rightarrow", "\\therefore", "\\ldots"))


class Token(NamedTuple):
    """A piece of the text: its kind, its sign or word, its value and its place."""

    kind: str
    text: str
    value: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equation that has a value; `computed` when it is more than a number."""

    computed: bool
    value: float
    operands: tuple[float, ...]
    percent: bool
    divided: bool
    decimals: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides around one `=`; at least one of them is more than a number."""

    left: Side
    right: Side

    @property
    def span(self) -> tuple[int, int]:
        return self.left.start, self.right.end

    @property
    def holds(self) -> bool:
        """Whether the sides are equal, up to the rounding that the right side shows."""
        left, right = self.left, self.right
        values = [(left.value, right.value, right.decimals)]
        if right.computed:  # a running total: 3 + 4 = 7 * 2 = 14
            values.append((left.value, right.operands[0], right.decimals))
        if left.percent or right.percent:  # the sign may stand for "hundredths" or be a mere unit
            values.append((left.value, right.value * 100, 0))
            values.append((left.value * 100, right.value, right.decimals))
        return any(_close(*pair) for pair in values)


def wrong_equalities(text: str) -> list[tuple[int, int]]:
    """The spans of a text in which an equality stands that does not hold."""
    return [equation.span for equation in equations_in(text) if not equation.holds]


def equations_in(text: str) -> list[Equation]:
    """Every equation of a text; only clauses with an `=` are read, since no side leaves its clause."""
    found, start = list[Equation](), 0
    for boundary in (*_BOUNDARY.finditer(text, start), None):
        end = boundary.start() + 1 if boundary else len(text)
        if text.find("=", start, end) >= 0:
            found += _equations(tokens_of(text, start, end))
        start = end - 1 if boundary and boundary[0] == "\n" else end
    return found


def tokens_of(text: str, start: int, end: int) -> list[Token]:
    """The tokens of a stretch of text, without white space and typography."""
    matches = _TOKEN.finditer(text, start, end)
    return [_token(match) for match in matches if match.lastgroup != "skip"]


def _token(match: re.Match[str]) -> Token:
    kind, text = match.lastgroup or "stop", match[0].lower()
    value: float | None = 0.0
    if kind == "number":
        value = to_float(text.rstrip("\\% "))
    elif kind == "fraction":
        above, below = (to_float(part[1:]) for part in re.findall(rf"\{{\s*{UNSIGNED}", text))
        kind, value = "number", above / below if above is not None and below else None
    elif kind == "operator":
        text = _SIGN.get(text, text)
    elif kind == "unit":
        kind, text = "word", text[text.index("{") + 1 : -1].strip()
    elif text in _SPOKEN:
        kind, value = "number", _SPOKEN[text]
    elif text in SPOKEN_SIGNS:
        kind, text = "operator", SPOKEN_SIGNS[text]
    elif kind == "bullet" or text in _FUNCTIONS:
        kind = "stop"
    elif kind == "word" and text.isalpha() and len(text) == 1:
        kind = "stop"  # a variable
    return Token(kind if value is not None else "stop", text, value or 0.0, *match.span())


def _equations(tokens: list[Token]) -> list[Equation]:
    """Every equation whose sides both have a value, in order."""
    found = []
    for at, token in enumerate(tokens):
        left = _walk(tokens, at, -1) if token.kind == "equals" else None
        right = _walk(tokens, at, 1) if left else None
        if left and right and _is_claim(tokens, at, left, right):
            found.append(Equation(left, right))
    return found


def _is_claim(tokens: list[Token], equals: int, left: Side, right: Side) -> bool:
    """Whether two sides say something that can be wrong.

    "10 jars = 10 * $50" and "20% of 80 = 0.2 * 80" define; "63 = 7 * 9" and "= 8 = 16 / 2" claim. A
    quotient given as a whole number may be rounded either way.
    """
    if left.computed:
        rounded = left.divided and right.decimals == 0 and not right.computed
        return not (rounded and 0.01 < abs(left.value - right.value) < 1)
    if not right.computed or left.percent or tokens[equals - 1].kind != "number":
        return False
    before = tokens[equals - 2] if equals >= 2 else None
    return before is None or before.kind in ("equals", "stop") or before.text in _LEAD_IN


def _walk(tokens: list[Token], equals: int, step: int) -> Side | None:
    """Walk left (−1) or right (1) from an `=`, taking operands and operators in turn.

    Leftwards, brackets close before they open, units come before their number, and a dangling operator
    is no side. Rightwards, what follows the last whole operand is not part of the side.
    """
    left = step < 0
    opening, closing = ("close", "open") if left else ("open", "close")
    end = max(equals - MAX_TERMS * 2, -1) if left else min(equals + 1 + MAX_TERMS, len(tokens))
    taken: list[Token] = []
    whole = depth = words = 0
    want = True  # an operand must come next
    for at in range(equals + step, end, step):
        token, kind = tokens[at], tokens[at].kind
        multiplies = left and kind == "word" and token.text == "of"
        if kind == "number" and want:
            want, words = False, 0
        elif kind == "operator" and not want:
            want = True
        elif kind == "operator" and not left and token.text == "-" and not taken:
            pass  # a negative result
        elif kind == opening and want:
            depth += 1
        elif kind == closing and depth and not want:
            depth -= 1
        elif multiplies and not want and _is_share(tokens, at - 1):
            want = True
            token = token._replace(kind="operator", text="*")
        elif kind == "word" and want == left and words < MAX_WORDS and not multiplies:
            words += 1
            continue
        else:
            if taken:
                gap = taken[-1].start - token.end if left else token.start - taken[-1].end
                if (want and kind == "stop") or _binds(token, gap):
                    return None  # a piece of something symbolic
            break
        taken.append(token)
        if not want and not depth:
            whole = len(taken)
    if not whole or (left and whole < len(taken)):
        return None
    return _side(taken[::-1] if left else taken[:whole])


def _binds(beside: Token, gap: int) -> bool:
    """Whether what stands beside a side changes its value: a power, a root, anything that touches."""
    if beside.kind != "stop":
        return gap == 0 and beside.kind in ("number", "close", "open", "word")
    if beside.text in _HARMLESS:
        return False
    return beside.text in _BINDING or beside.text[0] == "\\" or (beside.text.isalpha() and gap == 0)


def _is_share(tokens: list[Token], at: int) -> bool:
    """Whether "of" after this token multiplies: 20% of, 3/4 of, half of."""
    if at < 0 or tokens[at].kind != "number":
        return False
    divided = at > 0 and tokens[at - 1].text == "/"
    return tokens[at].text.endswith("%") or tokens[at].value < 1 or divided


def _side(taken: list[Token]) -> Side | None:
    # In a product or quotient, 20% is 0.2; in a sum of per cents the sign is a mere unit.
    shares = len(taken) > 1 and any(token.text in ("*", "/") for token in taken)
    terms: list[Term] = []
    for token in taken:
        if token.kind == "number":
            terms.append(token.value / 100 if shares and token.text[-1] == "%" else token.value)
        else:
            terms.append({"open": "(", "close": ")"}.get(token.kind, token.text))
    expression = from_terms(terms)
    value = expression.value() if expression else None
    if expression is None or value is None:
        return None
    has_frac = any("frac" in token.text for token in taken)
    return Side(
        computed=has_frac or len(expression.postfix) > 2,
        value=value,
        operands=tuple(token.value for token in taken if token.kind == "number"),
        divided=has_frac or any(token.text == "/" for token in taken),
        percent=any(token.text.endswith("%") for token in taken),
        decimals=len(taken[-1].text.rstrip("\\% ").partition(".")[2]),
        start=taken[0].start,
        end=taken[-1].end,
    )


def _close(left: float, right: float, decimals: int) -> bool:
    """Equal up to 1e-4 of the value, or up to half a unit of the last decimal that is shown."""
    rounding = 0.51 * 10.0**-decimals if decimals else 1e-4
    return abs(left - right) <= max(abs(right) * 1e-6, rounding if decimals < 12 else 1e-9)
