"""A verifier that rewards texts of a wanted JSON form, around another that judges what they say.

Only a small part of JSON Schema is supported, and a schema that needs more is refused, because a
form that nothing checks is not enforced. A text that is not yet JSON gets credit for how far it can
be read, so that a search has something to climb.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s3dlm.errors import SettingsError, shown
from s3dlm.verifier.base import Score, Verifier, WrappedVerifier

FORM = 0.7  # the weight of the form; the rest is the other verifier's
UNFINISHED = 0.5  # the most that a text can earn for its form without having it
ANNOTATIONS = frozenset({"title", "description", "$schema", "default", "examples"})
KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum"})
DEEPEST = 32  # levels of a schema

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """A JSON form, checked when built."""

    schema: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check(self.schema, "schema", DEEPEST)

    def fits(self, text: str) -> bool:
        """Whether the whole text is JSON of this form."""
        return self.progress(text) == 1.0

    def progress(self, text: str) -> float:
        """1 for a text of this form, less for one that is not, by how far it can be read."""
        try:
            value = json.loads(text, parse_constant=_refuse)
        except json.JSONDecodeError as error:
            return UNFINISHED * error.pos / max(len(text), 1)
        except (ValueError, RecursionError):  # NaN, numbers of thousands of digits, deep nesting
            return 0.0
        return 1.0 if conforms(value, self.schema) else UNFINISHED


class JsonVerifier(WrappedVerifier):
    """Scores the form first, then what the other verifier says."""

    __slots__ = ("form",)

    def __init__(self, form: JsonFormat, content: Verifier) -> None:
        super().__init__(content)
        self.form = form

    @property
    def satisfied_at(self) -> float | None:  # type: ignore[override]
        """The total of a text that has the form and satisfies the other verifier."""
        content = self.inner.satisfied_at
        return None if content is None else FORM + (1 - FORM) * content

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        contents = self.inner.score_batch(prompts, texts, confidences)
        forms = map(self.form.progress, texts)
        return [_joined(content, form) for content, form in zip(contents, forms, strict=True)]

    def rescore(self, score: Score, confidence: float | None) -> Score:
        parts = dict(score.parts)
        form = parts.pop("json_form")
        content = Score((score.total - FORM * form) / (1 - FORM), parts, score.spans)
        return _joined(self.inner.rescore(content, confidence), form)


def _joined(content: Score, form: float) -> Score:
    total = FORM * form + (1 - FORM) * content.total
    return Score(total, {**content.parts, "json_form": form}, content.spans)


def conforms(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value has the form that a schema describes."""
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        return False
    kinds = schema.get("type", list(_TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not any(_is(value, kind) for kind in kinds):
        return False
    if isinstance(value, dict):
        return _object_conforms(value, schema)
    if isinstance(value, list) and "items" in schema:
        return all(conforms(one, schema["items"]) for one in value)
    return True


def _object_conforms(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    known = schema.get("properties", {})
    if any(name not in value for name in schema.get("required", ())):
        return False
    if schema.get("additionalProperties") is False and any(name not in known for name in value):
        return False
    return all(conforms(value[name], known[name]) for name in known if name in value)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):  # which Python counts among the numbers
        return kind == "boolean"
    return isinstance(value, _TYPES[kind])


def _same(value: Any, other: Any) -> bool:
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _check(schema: Any, where: str, levels: int) -> None:
    """Refuse a schema that could not be checked."""
    if not isinstance(schema, Mapping) or levels == 0:
        raise SettingsError(
            f"{where}={shown(schema)} is not a JSON schema of at most {DEEPEST} levels"
        )
    for name in schema:
        if name not in KEYWORDS | ANNOTATIONS:
            raise SettingsError(
                f"the schema keyword {shown(name)} cannot be enforced here; use only: "
                f"{', '.join(sorted(KEYWORDS))}"
            )
    for name, (allowed, remedy) in _VALUES.items():
        if name in schema and not allowed(schema[name]):
            raise SettingsError(
                f"{where}: {name}={shown(schema[name])} cannot be enforced here; give {remedy}"
            )
    for name, one in schema.get("properties", {}).items():
        _check(one, shown(name), levels - 1)
    if "items" in schema:
        _check(schema["items"], "items", levels - 1)


def _is_type(value: Any) -> bool:
    kinds = [value] if isinstance(value, str) else value
    return _is_filled(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)


def _is_filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)  # nothing would conform to one of none


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


# What each keyword may be, and how an error says it.
_VALUES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, f"one of these or a list of some: {', '.join(_TYPES)}"),
    "additionalProperties": (lambda value: isinstance(value, bool), "true or false"),
    "required": (_are_names, "a list of names"),
    "enum": (_is_filled, "a list of at least one value"),
    "properties": (lambda value: isinstance(value, Mapping), "an object of schemas by name"),
}
