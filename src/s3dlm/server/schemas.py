"""Request and response bodies: OpenAI's, plus every setting of the search as an extra field.

Settings are not listed here: their schema names them, and `Settings` checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from s3dlm.search.methods import METHODS
from s3dlm.server.structured import Strict, Structured, Tool, ToolChoice
from s3dlm.settings import schema as settings_schema
from s3dlm.verifier import SELF, bundled_verifiers

LARGEST_SEED = 2**63 - 1025  # the choices of one request count up from it
HOTTEST = 2.0  # OpenAI's largest temperature
_NARROWER: dict[str, dict[str, Any]] = {
    "temperature": {"maximum": HOTTEST},
    "seed": {"maximum": LARGEST_SEED},
    "verifier": {"enum": [*bundled_verifiers(), SELF]},  # files are not for clients
}
Count = Annotated[int, Field(ge=1, le=10**9)]
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
DESCRIBED = ("type", "description", "enum", "minimum", "maximum")

# What clients send by habit: without effect, or accepted only where it changes nothing.
IGNORED = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "include": ([],),
    "previous_response_id": (),
    "conversation": (),
    "background": (False,),
    "truncation": ("disabled",),
    "text": ({}, {"format": {"type": "text"}}),
}


def request_settings() -> Mapping[str, dict[str, Any]]:
    """The JSON schema of every setting of every method known now, as a request may give it."""
    return _settings(tuple(METHODS))


@cache
def _settings(methods: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    return {
        name: {"name": name, **setting, **_NARROWER.get(name, {})}
        for name, setting in settings_schema().items()
    }


def _document(schema: dict[str, Any]) -> None:
    """List the settings among the properties of the OpenAPI schema, and allow no others."""
    properties: dict[str, Any] = {name: {} for name in (*sorted(IGNORED), *NEUTRAL)}
    for name, setting in request_settings().items():
        described = {key: setting[key] for key in DESCRIBED if key in setting}
        if "enum" in described:
            described["enum"] = [*described["enum"], None]  # null stands for one that is left out
        properties[name] = {**described, "type": [described["type"], "null"], "title": name}
    schema["properties"] = {**schema["properties"], **properties, **schema["properties"]}
    schema["additionalProperties"] = False


class RequestBody(BaseModel, extra="allow", strict=True, json_schema_extra=_document):
    """What every request may contain; extra fields are settings of the search."""

    temperature: Annotated[float, Field(ge=0, le=HOTTEST)] | None = None
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None
    task: str | None = None
    verifier: str | None = None
    max_tokens: Count | None = None
    reasoning_effort: Effort | None = Field(
        None,
        description="A share of the method's usual budget; none: no search. In place of `budget`.",
    )
    infill: str | None = Field(None, description="The answer as a text with holes, as in [[16]].")


class StreamOptions(Strict):
    include_usage: bool = False
    include_obfuscation: bool = False


class OpenAIRequest(Structured, RequestBody):
    """What chat and text completions have in common."""

    model: str
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class TextPart(Strict):
    type: Literal["text"]
    text: str


class Message(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None
    # An answer of ours, sent back as part of the conversation, brings these along.
    refusal: None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatRequest(OpenAIRequest):
    messages: Annotated[list[Message], Field(min_length=1, max_length=256)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    include_reasoning: bool | None = Field(
        None, description="Whether a stream tells of drafts as reasoning until its text is certain."
    )
    tools: Annotated[list[Tool], Field(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None


class CompletionRequest(OpenAIRequest):
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=128)]
    logprobs: bool | None = Field(None, description="Only chat completions have them.")


class SearchRequest(RequestBody):
    """One search, streamed step by step."""

    prompt: str
    model: str | None = None


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorResponse(BaseModel):
    """The body of every error; under /v1/messages it has a type, and no param and code."""

    type: Literal["error"] | None = None
    error: ErrorBody


class Usage(BaseModel):
    """Tokens, and the cost of the search: canvases forwarded, and the count of Algorithm 1."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    nfe: int
    nfe_logical: int


class SearchReport(BaseModel):
    """How one choice was found."""

    particles: int | None = None  # left out, as branching is, if the method does not use it
    branching: int | None = None
    checkable: bool | None = None  # left out if the verifier does not say
    answer: str | None
    votes: int
    survivors: int
    score: float | None
    stopped: Literal["finished", "satisfied", "budget", "agreed"]  # why the search ended
    p_correct: float | None  # None: the model has no calibration for the task and method
    seed: int
    seconds: float
    holes: list[str]  # what fills each hole of `infill`


class Choice(BaseModel):
    """One answer: OpenAI's, with how it was found."""

    index: int
    finish_reason: Literal["stop", "length", "tool_calls"]
    search: SearchReport


class Answer(BaseModel):
    """A whole reply, in one of OpenAI's two shapes."""

    id: str
    object: Literal["chat.completion", "text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    system_fingerprint: str
