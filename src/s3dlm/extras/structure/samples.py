"""Short texts of the expressions in a grammar, which show the way to the end of a text.

What ends a text that fits `.*\\boxed\\{[0-9]+\\}` cannot be seen from what may follow, since anything may. Python's
own parser reads the expressions; the matcher has the last word on each text, so it does no harm where the two
dialects differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any

from s3dlm.diffusion.grammar import Grammar

PARSER: Any = re._parser  # type: ignore[attr-defined]
FIRST = "a0 -_A!#~\n"  # a character that is not named is one of these
CATEGORIES = {f"CATEGORY_{name}": rf"\{name[0].lower()}" for name in ("DIGIT", "SPACE", "WORD")}
CATEGORIES |= {f"CATEGORY_NOT_{name}": rf"\{name[0]}" for name in ("DIGIT", "SPACE", "WORD")}
IN_LARK = re.compile(r'/((?:\\.|[^/\\\n])+)/|"((?:\\.|[^"\\\n])+)"')  # an expression or a text
MOST = 32  # expressions of a grammar that are read


def samples(grammar: Grammar) -> list[str]:
    """A short text of each regular expression in a grammar, as the grammar writes it."""
    if grammar.kind == "regex":
        found = [shortest_text(grammar.text)]
    elif grammar.kind == "lark":
        parts = IN_LARK.findall(grammar.text)[:MOST]
        found = [text or shortest_text(expression) for expression, text in parts]
    else:
        patterns = list(dict.fromkeys(_patterns(json.loads(grammar.text))))[:MOST]
        found = [json.dumps(shortest_text(each), ensure_ascii=False)[1:-1] for each in patterns]
    return [text for text in dict.fromkeys(found) if text]


def shortest_text(expression: str) -> str:
    """A text that fits a regular expression, short but not always the shortest; nothing if none is found."""
    with suppress(re.error, ValueError, OverflowError, RecursionError):
        return _text(PARSER.parse(expression))
    return ""


def _patterns(schema: Any) -> Iterator[str]:
    """The regular expressions in a JSON schema."""
    if isinstance(schema, dict):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        yield from schema.get("patternProperties") or ()
    inner = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict | list):
        yield from chain.from_iterable(map(_patterns, inner))


def _text(parts: Any) -> str:
    return "".join(_part(kind.name, value) for kind, value in parts)


def _part(kind: str, value: Any) -> str:
    """The text of one part of a parsed expression, by the parser's name for its kind."""
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL":
            return "a" if value != ord("a") else "0"
        case "ANY":
            return "a"
        case "IN":
            return _one_of(value)
        case "BRANCH":
            return min(map(_text, value[1]), key=len)
        case "SUBPATTERN":
            return _text(value[-1])
        case "ATOMIC_GROUP":
            return _text(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return _text(value[2]) * int(value[0])
        case "AT":
            return ""
    raise ValueError(f"{kind} has no text of its own")


def _one_of(members: Any) -> str:
    """A character of a class."""
    (kind, value), *_ = members
    if kind.name in ("LITERAL", "RANGE"):
        return chr(value if kind.name == "LITERAL" else value[0])
    excluded = kind.name == "NEGATE"
    inside = (char for char in FIRST if any(_is(char, *each) for each in members) is not excluded)
    return next(inside, "")


def _is(char: str, kind: Any, value: Any) -> bool:
    """Whether a member of a class stands for a character."""
    match kind.name:
        case "LITERAL":
            return bool(ord(char) == value)
        case "RANGE":
            return bool(value[0] <= ord(char) <= value[1])
        case "CATEGORY":
            return re.fullmatch(CATEGORIES[value.name], char) is not None
    return False
