"""What a request says of the form of its answer, in the dialects of OpenAI and vLLM: as a grammar."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from s3dlm.diffusion.grammar import Grammar
from s3dlm.errors import short_repr
from s3dlm.server.reporting import ApiError


class Strict(BaseModel, strict=True, extra="forbid"):
    """A part of a request in which nothing unknown is allowed."""


Schema = dict[str, Any] | bool | str
Choices = Annotated[list[str], Field(min_length=1, max_length=1024)]


class JsonSchema(Strict):
    name: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None  # it is always strict


class ResponseFormat(Strict):
    """Text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(Strict):
    """vLLM's own field; one of these."""

    json_: Annotated[Schema | None, Field(alias="json")] = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None


class Structured(BaseModel):
    """The fields that say it; a request has one of them at most."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = Field(None, description="A Lark grammar.")


class Function(Strict):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: Function


class FunctionName(Strict):
    name: str


class ToolChoice(Strict):
    """The one tool to call."""

    type: Literal["function"]
    function: FunctionName


def grammar_of(body: Structured) -> Grammar | None:
    """The grammar that a request wants, if any."""
    wanted, outputs = body.response_format, body.structured_outputs or StructuredOutputs()
    schemas: list[Any] = [outputs.json_, body.guided_json]
    if wanted is not None and wanted.type == "json_schema":
        if wanted.json_schema is None:
            message = "json_schema is missing in response_format"
            raise ApiError(400, message, param="response_format")
        schemas.append(wanted.json_schema.schema_)
    if (wanted is not None and wanted.type == "json_object") or outputs.json_object:
        schemas.append({"type": "object"})
    kinds: tuple[tuple[Callable[[Any], Grammar], list[Any]], ...] = (
        (_json, schemas),
        (partial(Grammar, "regex"), [outputs.regex, body.guided_regex]),
        (Grammar.choice, [outputs.choice, body.guided_choice]),
        (partial(Grammar, "lark"), [outputs.grammar, body.guided_grammar]),
    )
    found = [make(value) for make, values in kinds for value in values if value is not None]
    if len(found) > 1:
        raise ApiError(400, f"the request wants {len(found)} forms of answer at once; give one")
    return found[0] if found else None


def grammar_of_call(tools: list[Tool], choice: str | ToolChoice | None) -> Grammar | None:
    """The grammar of a call of one of the tools, as JSON with name and arguments; None: no call."""
    if choice == "none" or (not tools and choice in (None, "auto")):
        return None
    if choice is None or choice == "auto":
        message = (
            "tool_choice='auto' is not supported: whether to call a tool is decided before the answer is "
            "written; give 'required', the name of a function, or 'none'"
        )
        raise ApiError(400, message, param="tool_choice", code="unsupported_parameter")
    named = choice.function.name if isinstance(choice, ToolChoice) else None
    functions = [tool.function for tool in tools if named in (None, tool.function.name)]
    if not functions:
        wanted = "a call" if named is None else f"a call of {short_repr(named)}"
        message = f"tool_choice wants {wanted}, and tools has none; add it, or give 'none'"
        raise ApiError(400, message, param="tool_choice")
    calls: list[dict[str, Any]] = [
        {
            "type": "object",
            "properties": {
                "name": {"const": each.name},
                "arguments": each.parameters or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for each in functions
    ]
    shared: dict[str, Any] = {}  # definitions are looked up at the top of a schema
    for call in calls:
        for key in ("$defs", "definitions"):
            shared.setdefault(key, {}).update(call["properties"]["arguments"].get(key, {}))
    return Grammar.json_schema({"anyOf": calls, **shared})


def tool_call(text: str) -> dict[str, Any]:
    """A text of that grammar as OpenAI's object."""
    called = json.loads(text)
    arguments = json.dumps(called["arguments"], ensure_ascii=False, separators=(",", ":"))
    function = {"name": called["name"], "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


def _json(schema: Schema) -> Grammar:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"the JSON schema is no JSON: {error}") from error
    return Grammar.json_schema(schema)
