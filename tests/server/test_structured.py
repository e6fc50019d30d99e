"""Structured output over HTTP: OpenAI's and vLLM's fields, calls of tools, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

import s3dlm
from tests.server.live import Live, serving

QUESTION = (
    "Zoe has 9 packs of 5 shells. She buys 8 packs of 6. How many shells does she have in the end?"
)
ASK: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]}
PAIR = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "yy"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
WRITTEN = r'\{"a":-?\d+,"b":"(x|yy)"\}'
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": PAIR}},
    {"type": "function", "function": {"name": "stop"}},
]
DEEP = {"type": "function", "function": {"name": "deep", "parameters": json.loads('{"a":' * 400 + "1" + "}" * 400)}}  # fmt: skip


class Answer(BaseModel):
    steps: list[str]
    answer: int = Field(ge=0, le=999)


@pytest.fixture(scope="module")
def tiny() -> Iterator[Live]:
    with serving(s3dlm.load("tiny")) as server:
        yield server


@pytest.mark.parametrize("method", ["s3", "baseline"])
def test_the_official_client_parses_a_pydantic_class(tiny: Live, method: str) -> None:
    extra = {"extra_body": {"method": method, "max_tokens": 32}}
    parse = tiny.client().chat.completions.parse
    choice = parse(**ASK, response_format=Answer, **extra).choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Answer)
    with tiny.client().chat.completions.stream(**ASK, response_format=Answer, **extra) as events:
        for _ in events:
            pass
        assert events.get_final_completion().choices[0].message.parsed == choice.message.parsed


@pytest.mark.parametrize(
    ("extra", "expression"),
    [
        ({"response_format": {"type": "json_object"}}, r"\{.*\}"),
        ({"guided_json": PAIR}, WRITTEN),
        ({"guided_json": json.dumps(PAIR)}, WRITTEN),
        ({"structured_outputs": {"json": PAIR}}, WRITTEN),
        ({"structured_outputs": {"json_object": True}}, r"\{.*\}"),
        ({"guided_regex": "[a-c]{3}"}, "[a-c]{3}"),
        ({"structured_outputs": {"regex": "[a-c]{3}"}}, "[a-c]{3}"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"structured_outputs": {"choice": ["ja", "nein"]}, "n": 2}, "ja|nein"),
        ({"guided_grammar": 'start: "x" start "y" | "z"'}, "x*zy*"),
        ({"structured_outputs": {"grammar": 'start: "x"+'}, "temperature": 0}, "x+"),
    ],
    ids=str,
)
def test_every_field_is_a_guarantee(tiny: Live, extra: dict[str, Any], expression: str) -> None:
    answer = tiny.post("/v1/chat/completions", **ASK, max_tokens=24, seed=1, **extra)
    assert answer.status_code == 200, answer.text
    for choice in answer.json()["choices"]:
        assert re.fullmatch(expression, choice["message"]["content"], re.DOTALL)
    told = tiny.ask(QUESTION, max_tokens=24, **{**extra, "model": "tiny"})
    assert re.fullmatch(expression, told.json()["choices"][0]["text"], re.DOTALL)


def test_definitions_of_one_name_stay_with_their_tools(tiny: Live) -> None:
    """And what a schema refers to is looked up within it, wherever it is."""
    words = {"one": "aaa", "two": "bbb", "three": "ccc"}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {"x": {"$ref": "#/$defs/Item"}, "y": {"$ref": "#/properties/x"}},
            "required": ["x", "y"], "additionalProperties": False, "$defs": {"Item": {"enum": [word]}},
        }}}
        for name, word in words.items()
    ]  # fmt: skip
    ask = {**ASK, "tools": tools, "tool_choice": "required", "method": "baseline"}
    answer = tiny.post("/v1/chat/completions", **ask, max_tokens=48, temperature=2.0, n=16).json()
    called = [each["message"]["tool_calls"][0]["function"] for each in answer["choices"]]
    assert len({each["name"] for each in called}) > 1
    for each in called:
        assert json.loads(each["arguments"]) == dict.fromkeys("xy", words[each["name"]])


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_tool_is_called(tiny: Live, choice: Any) -> None:
    extra: Any = {**ASK, "tools": TOOLS, "tool_choice": choice, "max_tokens": 64}
    create = tiny.client().chat.completions.create
    whole = create(**extra).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content is None
    (call,) = whole.message.tool_calls
    assert call.function.name in (("add",) if isinstance(choice, dict) else ("add", "stop"))
    if call.function.name == "add":
        Draft202012Validator(PAIR).validate(json.loads(call.function.arguments))
    pieces = [chunk.choices[0] for chunk in create(**extra, stream=True) if chunk.choices]
    (told,) = [made for piece in pieces for made in piece.delta.tool_calls or ()]
    assert (told.index, told.function.arguments) == (0, call.function.arguments)
    assert pieces[-1].finish_reason == "tool_calls"
    # Without a call, tools change nothing.
    free = create(**ASK).choices[0].message
    for none in ({"tools": TOOLS, "tool_choice": "none"}, {"tools": []}):
        assert create(**ASK, **none).choices[0].message == free  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"response_format": {"type": "json_schema"}}, "json_schema is missing"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        ({"guided_json": {"uniqueItems": True, "type": "array"}}, "uniqueItems"),
        ({"guided_json": "{"}, "is no JSON"),
        ({"guided_json": {"type": "string", "minLength": 40}}, "gen_length=4[12] or more"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "2 forms of answer"),
        ({"guided_regex": "a", "stop": "b"}, "give either stop"),
        ({"guided_regex": "a", "method": "unmaskfork"}, "needs them from the left"),
        ({"guided_regex": "a", "infill": "x[[2]]"}, "leave one out"),
        ({"tools": TOOLS}, "tool_choice='auto' is not supported"),
        ({"tools": [DEEP], "tool_choice": "required"}, "more than 64 levels"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "'x'"),
        ({"tools": TOOLS, "tool_choice": "required", "guided_regex": "a"}, "either tools"),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(tiny: Live, extra: dict[str, Any], words: str) -> None:
    answer = tiny.post("/v1/chat/completions", **ASK, max_tokens=24, **extra)
    assert answer.status_code == 400, answer.text
    assert re.search(words, answer.json()["error"]["message"])
