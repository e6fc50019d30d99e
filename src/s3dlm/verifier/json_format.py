"""A verifier that rewards texts of a wanted JSON form, around another that judges what they say.

A schema comes from a client, so it is bounded before it is used: no patterns and no references (whose
time or reach nobody could bound), few levels, few keywords, few subschemas and values. What is left takes
time in proportion to the size of the schema times that of the text, and a text for which that is too much
does not fit. A keyword that could not be enforced is refused. A text that is not yet JSON gets credit for
how far it can be read, so that a search has something to climb.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from s3dlm.errors import SettingsError, short_repr
from s3dlm.verifier.base import HOLE, Confidences, Score, Texts, Verifier, WrappedVerifier

FORM = 0.7  # the weight of the form; the rest is the other verifier's
UNFINISHED = 0.5  # the most that a text can earn for its form without having it
DEEPEST, LONGEST = 32, 20_000  # levels and characters of a schema
MOST_SUBSCHEMAS, MOST_VALUES = 256, 4000  # of a schema; those of enum are values too
MOST_CHECKS = 250_000  # values of a schema times values of a text: about a second
MOST_READ = 1 << 13  # texts whose form is remembered

ANNOTATIONS = frozenset({"title", "description", "$schema", "default", "examples"})
BY_NAME = frozenset({"properties"})
IN_LISTS = frozenset({"anyOf", "allOf", "oneOf", "prefixItems"})
SUBSCHEMAS = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains"})
SIMPLE = frozenset({
    "type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties",
})  # fmt: skip
TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
OPENINGS = {"{": "object", "[": "array", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}
CUT_OFF = ("Unterminated string", "Invalid \\uXXXX escape")
KEYWORDS = BY_NAME | IN_LISTS | SUBSCHEMAS | SIMPLE


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """A JSON form, checked when built."""

    schema: Mapping[str, Any]
    validator: Any = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)
    read: dict[bytes, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            from jsonschema import Draft202012Validator, SchemaError
        except ImportError as error:
            raise SettingsError(
                "response_format needs the package jsonschema; run: pip install 's3dlm[serve]'"
            ) from error
        try:
            length = len(json.dumps(self.schema, default=str))
        except RecursionError:  # a constant without end
            length = LONGEST + 1
        if length > LONGEST:
            raise SettingsError(
                f"the schema is longer than {LONGEST} characters; give a shorter one"
            )
        size = _values(self.schema)
        for what, count, most in (
            ("subschemas", _check(self.schema, "schema", DEEPEST), MOST_SUBSCHEMAS),
            ("values", size, MOST_VALUES),
        ):
            if count > most:
                raise SettingsError(
                    f"the schema has {count} {what}; give a smaller one, of at most {most}"
                )
        try:
            Draft202012Validator.check_schema(self.schema)
        except SchemaError as error:
            place = "".join(f"[{short_repr(key)}]" for key in error.path)
            raise SettingsError(
                f"schema{place}={short_repr(error.instance)} is not allowed: {error.message[:300]}"
            ) from None
        object.__setattr__(self, "validator", Draft202012Validator(self.schema))
        object.__setattr__(self, "size", size)

    def fits(self, text: str) -> bool:
        """Whether the whole text is JSON of this form."""
        return self.progress(text) == 1.0

    def progress(self, text: str) -> float:
        """1 for a text of this form, less for one that is not, by how far it can be read; each text is
        read once."""
        key = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        if key not in self.read:
            if len(self.read) >= MOST_READ:
                self.read.clear()
            self.read[key] = self._progress(text)
        return self.read.get(key, 0.0)

    def _progress(self, text: str) -> float:
        try:
            value = json.loads(text, parse_constant=_refuse)
            few = self.size * _values(value) <= MOST_CHECKS
            return 1.0 if few and self.validator.is_valid(value) else UNFINISHED
        except json.JSONDecodeError as error:
            return UNFINISHED * error.pos / max(len(text), 1)
        except (ValueError, RecursionError):  # NaN, numbers of thousands of digits, deep nesting
            return 0.0

    def possible(self, text: str) -> bool:
        """Whether a partial text may become JSON of this form, by what stands before its first hole; of
        the schema only the outermost type counts until the text is complete."""
        known, hole, _ = text.partition(HOLE)
        if not hole:
            return self.fits(text)
        known, kinds = known.lstrip(), str(self.schema.get("type", TYPES))
        kinds = kinds.replace("integer", "number")
        if known and OPENINGS.get(known[0], "number") not in kinds:
            return False
        try:
            json.loads(known, parse_constant=_refuse)
        except json.JSONDecodeError as error:
            rest = known[error.pos :].rstrip()  # what cannot be read, unless it goes on
            begun = any(word.startswith(rest) for word in ("true", "false", "null"))
            return begun or error.msg.startswith(CUT_OFF) or not rest.strip("-+.0123456789eE")
        except (ValueError, RecursionError):
            return False
        return True


class JsonVerifier(WrappedVerifier):
    """Scores the form first, then what the other verifier says."""

    __slots__ = ("form",)
    name = "json_form"  # not the other's: a server counts the calls of each name by itself

    def __init__(self, form: JsonFormat, content: Verifier) -> None:
        super().__init__(content)
        self.form = form

    @property
    def satisfied_at(self) -> float | None:  # type: ignore[override]
        """The total of a text that has the form and satisfies the other verifier."""
        content = self.inner.satisfied_at
        return None if content is None else FORM + (1 - FORM) * content

    def score_batch(self, prompts: Texts, texts: Texts, confidences: Confidences) -> list[Score]:
        """The form and the other verifier's scores, joined."""
        contents = self.inner.score_batch(prompts, texts, confidences)
        forms = map(self.form.progress, texts)
        return [_joined(content, form) for content, form in zip(contents, forms, strict=True)]

    def score_partial(self, prompt: str, text: str) -> Score:
        """The form, and what the other verifier says if it reads partial texts."""
        read = self.inner.score_partial
        content = Score(1.0) if read is None else read(prompt, text)
        return _joined(content, float(self.form.possible(text)))


def _joined(content: Score, form: float) -> Score:
    total = FORM * form + (1 - FORM) * content.total
    return Score(total, {**content.parts, "json_form": form}, content.spans)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _values(value: Any) -> int:
    """How many values a JSON value holds, itself and names included."""
    count, left = 0, [value]
    while left:
        count, each = count + 1, left.pop()
        if isinstance(each, Mapping):
            count += len(each)
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return count


def _check(schema: Any, where: str, levels: int) -> int:
    """Refuse a schema that could not be enforced; the number of its subschemas, itself included."""
    if isinstance(schema, bool):
        return 1
    if not isinstance(schema, Mapping) or levels == 0:
        raise SettingsError(
            f"{where}={short_repr(schema)} is not a JSON schema of at most {DEEPEST} levels"
        )
    count = 1
    for name, value in schema.items():
        if (
            name == "$schema" and levels < DEEPEST
        ):  # it would switch to the keywords of another draft
            raise SettingsError(
                f"{where}: $schema is allowed only at the top of a schema; leave it out"
            )
        if name not in KEYWORDS | ANNOTATIONS:
            raise SettingsError(
                f"the schema keyword {short_repr(name)} cannot be enforced here; use only: "
                f"{', '.join(sorted(KEYWORDS))}"
            )
        if name == "enum" and value == []:  # to which nothing would conform
            raise SettingsError(f"{where}: enum=[] is not allowed; give at least one value")
        kinds = value if isinstance(value, list) else [value]
        if name == "type" and not (kinds and all(kind in TYPES for kind in kinds)):
            raise SettingsError(
                f"{where}: type={short_repr(value)} is not allowed; give one or a list of: "
                f"{', '.join(TYPES)}"
            )
        children: list[tuple[str, Any]] = []
        if name in BY_NAME and isinstance(value, Mapping):
            children = [(short_repr(key), child) for key, child in value.items()]
        elif name in IN_LISTS and isinstance(value, list):
            children = [(name, child) for child in value]
        elif name in SUBSCHEMAS:
            children = [(name, value)]
        for place, child in children:
            count += _check(child, place, levels - 1)
    return count
