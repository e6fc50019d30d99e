"""The JSON form: what fits, what is refused, and that a search has something to climb."""

from __future__ import annotations

from typing import Any

import pytest

from s3dlm.errors import SettingsError
from s3dlm.verifier import json_format
from s3dlm.verifier.base import adapt
from s3dlm.verifier.json_format import JsonFormat, JsonVerifier

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"name": "Ann"}', True),
        (' {"name": "Ann", "age": 3, "tags": ["a", "b", "a"]} ', True),
        ('{"age": 3}', False),
        ('{"name": "Ann", "age": 3.5}', False),
        ('{"name": "Ann", "age": true}', False),
        ('{"name": "Ann", "tags": ["c"]}', False),
        ('{"name": "Ann", "other": 1}', False),
        ('{"name": NaN}', False),
        ('{"name": "Ann"} and more', False),
        ("[" * 100_000, False),
        ("9" * 10_000, False),
        ("", False),
    ],
)
def test_what_fits(text: str, fits: bool) -> None:
    assert JsonFormat(PERSON).fits(text) is fits


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "object", "properties": {"a": {"pattern": "x"}}}, "'pattern' cannot be enforced"),
        ({"$ref": "#/x"}, "cannot be enforced"),
        ({"type": "text"}, "type='text' is not allowed; .* object, array"),
        ({"type": []}, r"type=\[\] is not allowed; .* object, array"),
        ({"type": ["string", 3]}, "is not allowed; .* object, array"),
        ({"properties": [1]}, r"schema\['properties'\]=\[1\] is not allowed: .* 'object'"),
        ({"enum": 3}, r"\['enum'\]=3 is not allowed: .* 'array'"),
        ({"enum": []}, r"enum=\[\] is not allowed; give at least one value"),
        ({"required": "a"}, r"\['required'\]='a' is not allowed: .* 'array'"),
        ({"required": [["a"]]}, r"\['required'\]\[0\]=\['a'\] is not allowed: .* 'string'"),
        ({"items": {"required": [1]}}, r"\['items'\]\['required'\]\[0\]=1 is not allowed"),
        ({"items": 3}, "items=3 is not a JSON schema"),
        ({"enum": list(range(10_000))}, "longer than 20000 characters"),
        ({"anyOf": [{}] * 4900}, "has 4901 subschemas; give a smaller one, of at most 256"),
        ({"enum": [[1]] * 3900}, "has 7803 values; give a smaller one, of at most 4000"),
        ({"items": {"$schema": "http://json-schema.org/draft-03/schema#"}}, "only at the top"),
    ],
)
def test_what_could_not_be_checked_is_refused(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        JsonFormat(schema)


def test_a_schema_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(40):
        schema = {"items": schema}
    with pytest.raises(SettingsError, match="levels"):
        JsonFormat(schema)


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"additionalProperties": {"type": "string"}}, '{"a": "b"}', True),
        ({"additionalProperties": {"type": "string"}}, '{"a": 1}', False),
        ({"anyOf": [{"const": 1}, {"minLength": 2}]}, '"a"', False),
        ({"anyOf": [{"const": 1}, {"minLength": 2}]}, "1", True),
        ({"enum": [1]}, "true", False),
        ({"not": {"maximum": 5}}, "6", True),
    ],
)
def test_more_keywords(schema: dict[str, Any], text: str, fits: bool) -> None:
    assert JsonFormat(schema).fits(text) is fits


def test_time_is_bounded_by_schema_times_text() -> None:
    """Branches that all fail late, at every level: without bounds on both this has no end."""
    schema: dict[str, Any] = {"const": 1}
    for _ in range(5):
        schema = {"anyOf": [{"items": schema}, {"items": {"items": schema}}]}
    assert not JsonFormat(schema).fits("[" * 400 + "2" + "]" * 400)


def test_a_text_that_takes_too_many_checks_does_not_fit() -> None:
    form = JsonFormat({"items": {"anyOf": [{"const": 0}] * 200 + [{}]}})
    assert form.fits("[1, 2, 3]")
    assert form.progress(str([1] * 9000)) == 0.5  # as any JSON of another form


def test_a_text_is_read_once_and_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    progress = JsonFormat._progress

    def counted(form: JsonFormat, text: str) -> float:
        read.append(text)
        return progress(form, text)

    monkeypatch.setattr(JsonFormat, "_progress", counted)
    monkeypatch.setattr(json_format, "MOST_READ", 4)
    form = JsonFormat(PERSON)
    assert [form.fits('{"name": "Ann"}') for _ in range(3)] == [True] * 3
    assert read == ['{"name": "Ann"}']
    for number in range(20):
        form.fits(str(number))
    assert len(form.read) <= 4


def test_its_calls_are_counted_by_themselves() -> None:
    content = adapt(lambda *_: 0.5)
    assert JsonVerifier(JsonFormat(PERSON), content).name != content.name


def test_more_of_the_form_is_a_higher_score() -> None:
    verifier = JsonVerifier(JsonFormat(PERSON), adapt(lambda *_: 0.5))
    texts = ["no", '{"name" "Ann"}', '{"age": 1}', '{"name": "Ann"}']
    scores = [verifier.score("q", text, None) for text in texts]
    totals = [one.total for one in scores]
    assert totals == sorted(set(totals))
    assert totals[-1] == pytest.approx(0.7 + 0.3 * 0.5)
    assert scores[-1].parts["json_form"] == 1.0
