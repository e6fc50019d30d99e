"""A calculator for expressions that a model wrote: + − × ÷, brackets, nothing else.

The text is untrusted, so there is no `eval`: the characters are read into tokens, the tokens into
postfix order (no recursion, hence no depth to exhaust), and length and magnitude are bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import add, mul, sub, truediv

from s3dlm.answers.numbers import UNSIGNED, frac, to_float

MAX_LENGTH = 400
MAX_MAGNITUDE = 1e15

_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")"})
LATEX_SIGNS = {"\\times": "*", "\\cdot": "*", "\\div": "/"}
_LATEX = LATEX_SIGNS | dict.fromkeys(("\\left", "\\right", "\\(", "\\)", "$"), "")
_FRAC = re.compile(frac("([^{}]{1,80})", "([^{}]{1,80})"))
_TOKEN = re.compile(rf"\s*(?:({UNSIGNED})|([-+*/()]))")
_OPERATORS = {"+": add, "-": sub, "*": mul, "/": truediv}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3}

Term = float | str


@dataclass(frozen=True, slots=True)
class Expression:
    """An arithmetic expression in postfix order."""

    postfix: tuple[Term, ...]

    @property
    def operands(self) -> list[float]:
        """The numbers used, in the order written."""
        return [token for token in self.postfix if isinstance(token, float)]

    def value(self) -> float | None:
        """What it comes to; None for a division by zero or a value beyond all bounds."""
        stack: list[float] = []
        for token in self.postfix:
            if isinstance(token, float):
                stack.append(token)
            elif token == "neg":
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                if token == "/" and right == 0:
                    return None
                stack.append(_OPERATORS[token](left, right))
                if not abs(stack[-1]) <= MAX_MAGNITUDE:
                    return None
        return stack[0]

    def canonical(self) -> str:
        """One spelling for expressions that differ only in order, spaces or idle brackets."""
        stack: list[tuple[str, tuple[str, ...]]] = []
        for token in self.postfix:
            if isinstance(token, float):
                stack.append(("number", (f"{token:g}" if token % 1 else f"{token:.0f}",)))
            elif token == "neg":
                stack.append(("neg", (f"-{_bracket(stack.pop())}",)))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_join(token, left, right))
        return _spell(stack[0])


def ascii_signs(text: str) -> str:
    """The text with LaTeX and typographic operators as ASCII ones."""
    if "\\" in text or "$" in text:
        for latex, ascii_sign in _LATEX.items():
            text = text.replace(latex, ascii_sign)
        text = _FRAC.sub(r"((\1)/(\2))", text)
    return text if text.isascii() else text.translate(_SIGNS)


def parse(text: str) -> Expression | None:
    """Read a whole text as one expression; None when it is none, or is too long."""
    if len(text) > MAX_LENGTH:
        return None
    terms: list[Term] = []
    at, text = 0, ascii_signs(text).rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        value = to_float(match[1]) if match[1] else None
        if match[1] and (value is None or value > MAX_MAGNITUDE):
            return None
        terms.append(match[2] if value is None else value)
        at = match.end()
    return from_terms(terms) if terms else None


def from_terms(terms: list[Term]) -> Expression | None:
    """The expression of numbers and operator signs in the order written, by the shunting-yard algorithm;
    None when operators and operands do not alternate or brackets are uneven."""
    output: list[Term] = []
    waiting: list[str] = []
    want_operand = True
    for token in terms:
        if (isinstance(token, float) or token == "(") and not want_operand:
            return None
        if isinstance(token, float):
            output.append(token)
            want_operand = False
        elif token == "(":
            waiting.append(token)
        elif token == ")":
            if want_operand or "(" not in waiting:
                return None
            while (operator := waiting.pop()) != "(":
                output.append(operator)
        elif want_operand:
            if token != "-":
                return None
            waiting.append("neg")
        else:
            while waiting and _PRECEDENCE.get(waiting[-1], 0) >= _PRECEDENCE[token]:
                output.append(waiting.pop())
            waiting.append(token)
            want_operand = True
    if want_operand or "(" in waiting:
        return None
    return Expression((*output, *waiting[::-1]))


_Node = tuple[str, tuple[str, ...]]


def _join(operator: str, left: _Node, right: _Node) -> _Node:
    """a+b+c and a*b*c become one sorted list each, whatever brackets were drawn inside."""
    if operator not in "+*":
        return operator, (f"{_bracket(left)}{operator}{_bracket(right)}",)
    parts = [node[1] if node[0] == operator else (_bracket(node),) for node in (left, right)]
    return operator, tuple(sorted(parts[0] + parts[1]))


def _bracket(node: _Node) -> str:
    return node[1][0] if node[0] == "number" else f"({_spell(node)})"


def _spell(node: _Node) -> str:
    return node[0].join(node[1]) if node[0] in "+*" else node[1][0]
