"""Examples that a question shows: what a program can be tried on.

Questions write examples in many ways: doctests, asserts, `f(1) == 2`, `f(1) ➞ 2`, `f(1) returns 2`.
Only those count whose result is a plain literal. Nothing here runs code.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from s3dlm.extras.code.programs import required, tree_of
from s3dlm.extras.code.sandbox.values import Json, encode

MOST_EXAMPLES = 16
_DOCTEST = re.compile(r"^[ \t]*+>>> ([^\n]+)\n((?:[ \t]*+(?!>>>)\S[^\n]*+\n?)*+)", re.MULTILINE)
_BECOMES = re.compile(
    r"\s*(?:#\s*)?(?:===?>?|=>|-+>|=|➞|→|returns?|should return|# ?=>)\s*(\S[^\n]*)", re.IGNORECASE
)
_MODULE_WORDS = {"true": "True", "false": "False", "none": "None", "null": "None"}


@dataclass(frozen=True, slots=True)
class Example:
    """An expression that calls the required function, and the value it should have."""

    expression: str
    expected: Json
    arguments: tuple[ast.expr, ...] | None = field(default=None, compare=False)  # of the call


@lru_cache(maxsize=64)
def examples(question: str) -> tuple[Example, ...]:
    """The examples of a question, each once, in its order."""
    name = required(question).name
    if not name:
        return ()
    found: dict[str, Example] = {}
    for stated in (*_asserts(question), *_doctests(question), *_stated(question, name)):
        if example := _example(*stated, name):
            found.setdefault(example.expression, example)
    return tuple(found.values())[:MOST_EXAMPLES]


def _asserts(question: str) -> Iterator[tuple[str, str]]:
    for line in question.splitlines():
        tree = tree_of(line.strip()) if line.strip().startswith("assert ") else None
        match tree.body if tree else None:
            case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
                yield ast.unparse(left), ast.unparse(right)
            case [ast.Assert(test=test)]:
                yield ast.unparse(test), "True"


def _doctests(question: str) -> Iterator[tuple[str, str]]:
    for match in _DOCTEST.finditer(question):
        lines = [line.strip() for line in match[2].splitlines()]
        end = next((i for i, line in enumerate(lines) if line[:3] in ('"""', "'''")), len(lines))
        yield match[1], " ".join(lines[:end])
        yield match[1], "".join(lines[:1])  # the rest may be prose


def _stated(question: str, name: str) -> Iterator[tuple[str, str]]:
    """`name(…)` in running text, followed by a sign or word that announces its value."""
    found = re.finditer(rf"(?<![\w.]){re.escape(name)}\(", question)
    for match in islice(found, 10 * MOST_EXAMPLES):
        end = _closing(question, match.end())
        becomes = _BECOMES.match(question, end) if end is not None else None
        if becomes and not question.endswith("def ", 0, match.start()):
            yield question[match.start() : end], becomes[1]


def _closing(text: str, start: int) -> int | None:
    """Just behind the bracket that closes the one before `start`."""
    depth, quote = 1, ""
    for index in range(start, min(start + 2000, len(text))):
        char = text[index]
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return index + 1
    return None


def _example(expression: str, expected: str, name: str) -> Example | None:
    value, tree = _literal(expected), tree_of(expression.strip())
    if value is None or not tree or [type(node) for node in tree.body] != [ast.Expr]:
        return None
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if name not in used or any(other != name and not hasattr(builtins, other) for other in used):
        return None  # it needs something that only the question's author has
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    arguments = (tuple(call.args) for call in calls if getattr(call.func, "id", "") == name)
    return Example(ast.unparse(tree), value[0], next(arguments, None))


def _literal(text: str) -> tuple[Json] | None:
    """The value of a literal, in a tuple so that None is a value.

    A last dot, comma or semicolon, a last comment, or a last bracket may be a remark and is cut.
    """
    text = text.strip()[:2000]
    line = text.rfind("\n") + 1
    starts = [text.find("#", line), text.find("(", line) if text.endswith(")") else -1]
    starts.append(len(text) - 1 if text.endswith((".", ";", ",")) else -1)
    remark = min((start for start in starts if start >= 0), default=len(text))
    for candidate in (text, text[:remark].rstrip()):
        try:
            return (encode(ast.literal_eval(_MODULE_WORDS.get(candidate, candidate))),)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None
