"""Examples that a question shows, and inputs made from them: what a program can be tried on.

Questions write examples in many ways: doctests, asserts, `f(1) == 2`, `f(1) ➞ 2`, `f(1) returns 2`.
Only those count whose result is a plain literal. Nothing here runs code.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from s3dlm.extras.code.programs import required, tree_of
from s3dlm.extras.code.sandbox.values import Json, encode

MOST_EXAMPLES, MOST_INPUTS = 16, 8
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


@lru_cache(maxsize=64)
def inputs(question: str) -> tuple[str, ...]:
    """Calls of the required function on new arguments: the examples' own, changed a little."""
    name = required(question).name
    lists: list[list[object]] = []
    for example in examples(question):
        with suppress(ValueError, TypeError):  # no literals
            lists.append([ast.literal_eval(argument) for argument in example.arguments or ()])
    lists = [values for values in lists if values] or [_from_annotations(question)]
    if not lists[0]:
        return ()
    seed = hashlib.sha256(question.encode(errors="surrogatepass")).digest()
    rng = random.Random(int.from_bytes(seed[:8], "big"))
    known = {example.expression for example in examples(question)}
    calls: dict[str, None] = {}
    for _ in range(8 * MOST_INPUTS):
        changed = [_changed(value, rng) for value in rng.choice(lists)]
        call = f"{name}({', '.join(map(repr, changed))})"
        if call not in known:
            calls[call] = None
    return tuple(calls)[:MOST_INPUTS]


_SAMPLES: dict[str, object] = {
    "int": 5, "float": 2.5, "str": "abcab", "bool": True, "list": [3, 1, 2], "List": [3, 1, 2],
    "List[int]": [3, 1, 2], "list[int]": [3, 1, 2], "List[float]": [1.5, 0.5], "list[float]": [1.5, 0.5],
    "List[str]": ["ab", "c", "ba"], "list[str]": ["ab", "c", "ba"],
}  # fmt: skip


def _from_annotations(question: str) -> list[object]:
    """Arguments for a function whose parameters all say a type we know."""
    stub = required(question).stub
    kinds = (
        [ast.unparse(a.annotation) if a.annotation else "" for a in stub.args.args] if stub else []
    )
    return [_SAMPLES[kind] for kind in kinds] if all(kind in _SAMPLES for kind in kinds) else []


def _changed(value: object, rng: random.Random) -> object:
    """A value of the same type and sign, near the given one."""
    if isinstance(value, bool):
        return rng.random() < 0.5
    if isinstance(value, int):
        return rng.randint(min(0, 2 * value - 3), max(0, 2 * value + 3))
    if isinstance(value, float):
        return round(value * rng.choice((0.0, 0.5, 1.0, 1.5, 2.0)), 3)
    if isinstance(value, str):
        letters = list(value)
        rng.shuffle(letters)
        return value if rng.random() < 0.3 else "".join(letters)[: rng.randint(0, len(letters))]
    if isinstance(value, (list, tuple)):
        items = [_changed(item, rng) if rng.random() < 0.5 else item for item in value]
        items = items[: rng.randint(0, len(items))] if rng.random() < 0.3 else items
        return type(value)(items)
    if isinstance(value, dict):
        return {key: _changed(item, rng) for key, item in value.items()}
    return value
