"""The JSON form: what fits, what is refused, and that a search has something to climb."""

from __future__ import annotations

from typing import Any

import pytest

from s3dlm.errors import SettingsError
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
        ({"type": "text"}, "type='text' cannot .* object, array"),
        ({"type": []}, r"type=\[\] cannot .* object, array"),
        ({"properties": [1]}, r"schema: properties=\[1\] cannot be enforced here; give an object"),
        ({"additionalProperties": {"type": "string"}}, r"={'type': 'string'} .* true or false"),
        ({"enum": 3}, "enum=3 cannot .* a list"),
        ({"enum": []}, r"enum=\[\] cannot .* at least one value"),
        ({"required": "a"}, "required='a' cannot .* a list of names"),
        ({"required": [["a"]]}, r"required=\[\['a'\]\] cannot .* a list of names"),
        ({"items": {"required": [1]}}, r"items: required=\[1\] cannot"),
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


def test_more_of_the_form_is_a_higher_score() -> None:
    verifier = JsonVerifier(JsonFormat(PERSON), adapt(lambda *_: 0.5))
    texts = ["no", '{"name" "Ann"}', '{"age": 1}', '{"name": "Ann"}']
    scores = [verifier.score("q", text, None) for text in texts]
    totals = [one.total for one in scores]
    assert totals == sorted(set(totals))
    assert totals[-1] == pytest.approx(0.7 + 0.3 * 0.5)
    assert scores[-1].parts["json_form"] == 1.0
