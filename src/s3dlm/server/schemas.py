"""The bodies that come in and go out: OpenAI's, plus the search's own settings as extra fields.

The search's settings are not written down a second time: any field of `Settings` may stand in a
body, its value is checked by `Settings` itself, and the OpenAPI document lists them from there.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from s3dlm import settings as choices
from s3dlm.settings import Settings
from s3dlm.verifier.lookup import PROFILES

SEARCH_FIELDS = tuple(
    field.name
    for field in dataclasses.fields(Settings)
    if field.name not in ("temperature", "seed")  # OpenAI has these two
)
LARGEST_SEED = 2**63 - 1

# What clients send by habit: without effect, or allowed only where it changes nothing.
IGNORED = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}
)
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
}
CHOICES: dict[str, tuple[str, ...]] = {  # settings that take one of a few names
    "method": choices.METHODS,
    "policy": choices.POLICIES,
    "resampling": choices.RESAMPLERS,
    "selection": choices.SELECTIONS,
    "tilt": choices.TILTS,
    "siblings": choices.SIBLINGS,
    "profile": tuple(PROFILES),
}
_JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def _document(schema: dict[str, Any]) -> None:
    """List the search's settings among the properties, and nothing beyond them."""
    hints = typing.get_type_hints(Settings)
    for name in SEARCH_FIELDS:
        schema["properties"][name] = _property(name, hints[name])
    schema["properties"] |= {name: {} for name in (*sorted(IGNORED), *NEUTRAL)}
    schema["additionalProperties"] = False


def _property(name: str, hint: Any) -> dict[str, Any]:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    names = [_JSON_TYPES[kind] for kind in kinds if kind in _JSON_TYPES]
    described: dict[str, Any] = {"type": [*names, "null"], "title": name}
    if name in CHOICES:
        described["enum"] = [*CHOICES[name], None]
    return described


class Request(BaseModel):
    """What every request may say; extra fields are settings of the search."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra=_document)

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED - 1024)] | None = None
    task: str | None = None
    verifier: str | None = None
    budget: Annotated[int, Field(ge=2, le=10**9)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    include_usage: bool = False
    include_obfuscation: bool = False


class OpenAIRequest(Request):
    """What chat and text completions have in common."""

    model: str
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class TextPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

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
    max_completion_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = None


class CompletionRequest(OpenAIRequest):
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=128)]


class SearchRequest(Request):
    """One search, watched step by step."""

    prompt: str
    model: str | None = None
    format: Literal["sse", "jsonl"] | None = None


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """Every refusal."""

    error: ErrorBody


class Usage(BaseModel):
    """Tokens, and what the search cost: rows really forwarded and what Algorithm 1 counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    nfe: int
    nfe_logical: int


class SearchReport(BaseModel):
    """How one choice was found."""

    particles: int
    branching: int
    answer: str | None
    votes: int
    survivors: int
    score: float | None
    seed: int
    seconds: float


class ReplyMessage(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: ReplyMessage
    finish_reason: Literal["stop", "length"]
    logprobs: None = None
    search: SearchReport


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str


class TextChoice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"]
    logprobs: None = None
    search: SearchReport


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage
    system_fingerprint: str


class ModelCard(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelCard]
