"""What an answer must be, whatever the model: a JSON schema, a regular expression, choices or a grammar.

Grammars come from clients, so what would take long to compile is refused before it is compiled; the bounds of
the compiler itself and of the search are with the process that follows a grammar (`particles.WITH_GRAMMAR`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import accumulate
from types import GenericAlias, UnionType
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from s3dlm.errors import SettingsError, short_repr

LONGEST, DEEPEST = 20_000, 64  # characters and brackets within brackets of a grammar
REPEATED = 100_000  # copies of a part of a regular expression, those of its copies included
FINEST = 10_000  # of multipleOf, without its decimal point
BRACKET, MULTIPLE_OF = re.compile(r"[(\[{}\])]"), re.compile(r'"multipleOf": ([0-9][^,}\]]*)')
DIRECTIVE = re.compile("%(json|regex|llguidance)")  # of Lark, that would go round these bounds
FLAGS = {
    re.IGNORECASE: "i",
    re.MULTILINE: "m",
    re.DOTALL: "s",
}  # of Python's, as a grammar writes them
PART = re.compile(r"\\.|\[(?:\\.?|[^\]\\])*+(?:\]|\Z)|\{([0-9]+)(?:,([0-9]*))?\}|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must be.

    Args:
        kind: "json", "regex" or "lark".
        text: The JSON schema, the regular expression or the Lark grammar.
        read: What reads the value of a text; by default JSON is read as plain data.
    """

    kind: str
    text: str
    read: Callable[[str], Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse what would take too long to compile."""
        depths = accumulate(1 if each in "([{" else -1 for each in BRACKET.findall(self.text))
        wrong = ""
        if len(self.text) > LONGEST:
            wrong = f"has {len(self.text)} characters; give one of at most {LONGEST}"
        elif max(depths, default=0) > DEEPEST:
            wrong = f"has more than {DEEPEST} levels of brackets"
        elif _repeated(self.text, nested=self.kind != "lark") > REPEATED:
            wrong = f"repeats a part more than {REPEATED} times"
        elif self.kind == "json" and any(map(_is_fine, MULTIPLE_OF.findall(self.text))):
            wrong = f"has a multipleOf of more than the digits of {FINEST}; give a simpler number"
        elif self.kind == "lark" and (found := DIRECTIVE.search(self.text)):
            wrong = f"has the directive {found.group()}, which is not allowed here"
        if wrong:
            raise SettingsError(f"the {self.kind} grammar {wrong}")

    @classmethod
    def of(cls, value: Any) -> Grammar:
        """The grammar that a value stands for.

        Args:
            value: A JSON schema as a dictionary; a pydantic class or another type, such as
                `list[int]`; a regular expression (`re.compile(…)`); a list of choices; or the text of
                a Lark grammar.
        """
        if isinstance(value, Grammar):
            return value
        if isinstance(value, dict | bool):
            return cls.json_schema(value)
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
            return cls("regex", _with_flags(value))
        if isinstance(value, list | tuple):
            return cls.choice(value)
        if isinstance(value, str):
            return cls("lark", value)
        if isinstance(value, type | GenericAlias | UnionType) or hasattr(value, "__origin__"):
            try:
                adapter = TypeAdapter[Any](value)
                schema = adapter.json_schema(schema_generator=Closed)
            except Exception as error:
                raise SettingsError(
                    f"grammar={short_repr(value)} has no JSON schema: {str(error)[:300]}"
                ) from error
            return cls("json", json.dumps(schema), adapter.validate_json)
        raise SettingsError(
            f"grammar={short_repr(value)} is not a grammar; give a pydantic class, a JSON schema as a "
            "dictionary, re.compile(…), a list of choices, or the text of a Lark grammar"
        )

    @classmethod
    def json_schema(cls, schema: Any) -> Grammar:
        """Compact JSON of this schema; True: any JSON."""
        try:
            text = json.dumps({} if schema is True else schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise SettingsError(f"the JSON schema cannot be written as JSON: {error}") from error
        return cls("json", text)

    @classmethod
    def choice(cls, choices: Sequence[Any]) -> Grammar:
        """One of some texts."""
        if not choices or not all(isinstance(each, str) and each for each in choices):
            raise SettingsError(f"choices={short_repr(choices)}: give one text or more, none empty")
        return cls("lark", "start: " + " | ".join(json.dumps(each) for each in choices))

    def value(self, text: str) -> Any:
        """What a text of this grammar says: an object of the type it was made of, or JSON's value; None
        for other grammars."""
        if self.read is not None:
            return self.read(text)
        return json.loads(text) if self.kind == "json" else None


class Closed(GenerateJsonSchema):
    """Schemas of classes: an object has their fields and no others, unless a class allows them."""

    def model_schema(self, schema: Any) -> dict[str, Any]:
        return {"additionalProperties": False} | super().model_schema(schema)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        return {"additionalProperties": False} | super().typed_dict_schema(schema)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        return {"additionalProperties": False} | super().dataclass_schema(schema)


def _with_flags(expression: re.Pattern[str]) -> str:
    """The text of a compiled expression with its flags in it."""
    if expression.flags & (re.ASCII | re.VERBOSE):
        raise SettingsError(
            f"grammar={short_repr(expression)} has the flag re.ASCII or re.VERBOSE, which cannot be followed; "
            r"leave it out, and write [0-9] instead of \d, or the expression without blanks"
        )
    flags = "".join(sign for flag, sign in FLAGS.items() if expression.flags & flag)
    return f"(?{flags}:{expression.pattern})" if flags else expression.pattern


def _repeated(text: str, *, nested: bool) -> int:
    """How often a part is repeated at most: {3} inside of {4} is 12. In a Lark grammar one rule may be inside
    of another, so there the three largest numbers count."""
    levels, last, counts = [1], 1, [1]
    for part in PART.finditer(text):
        if part[1] is not None:
            counts.append(max(int(part[1][:9]), int((part[2] or "0")[:9])))
            last *= counts[-1]
            levels[-1] = max(levels[-1], last)
        elif part[0] == "(":
            levels.append(1)
        elif part[0] == ")" and len(levels) > 1:
            last = levels.pop()
            levels[-1] = max(levels[-1], last)
        else:
            last = 1
    return max(levels) if nested else math.prod(sorted(counts)[-3:])


def _is_fine(number: str) -> bool:
    """Whether a number has more digits than a grammar of its multiples may have."""
    return int("".join(map(str, Decimal(number).normalize().as_tuple().digits))) > FINEST
