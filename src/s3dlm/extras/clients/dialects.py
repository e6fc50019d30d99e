"""Two other APIs that clients speak: OpenAI's Responses and Anthropic's Messages, text in and text out.

Each is a translation: of a request into one to chat completions, so that parsing, limits, queue and
search are the same, and of the reply into the objects and events that the official clients expect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from s3dlm.engine import Result
from s3dlm.errors import unknown_name
from s3dlm.search.step import Step
from s3dlm.server.openai import Reply, sse
from s3dlm.server.reporting import ApiError
from s3dlm.server.schemas import (
    NEUTRAL,
    ChatRequest,
    Count,
    Effort,
    Message,
    RequestBody,
    Stop,
    request_settings,
)
from s3dlm.server.streaming import Watch, cut


class ContentPart(BaseModel, strict=True):
    """Of a message's content; fields that are not named in these classes have no effect here."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class TextTurn(BaseModel, strict=True):
    """One message; an answer of ours may be sent back as it came."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]

    def joined(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


Turns = Annotated[list[TextTurn], Field(min_length=1, max_length=256)]


class Reasoning(BaseModel, strict=True):
    """How hard to try."""

    effort: Effort | None = None


class ResponsesRequest(RequestBody):
    """OpenAI's Responses, without tools or memory: the input is the whole conversation."""

    model: str
    input: str | Turns
    instructions: str | None = None
    max_output_tokens: Count | None = None
    reasoning: Reasoning | None = None
    stream: bool | None = None

    def as_chat(self) -> ChatRequest:
        turns, length = self.input, self.max_output_tokens or self.max_tokens
        if isinstance(turns, str):
            turns = [TextTurn(role="user", content=turns)]
        effort = self.reasoning.effort if self.reasoning else self.reasoning_effort
        own = {"max_tokens": length, "reasoning_effort": effort}
        return _chat(self, self.instructions, turns, **own)


class MessagesRequest(RequestBody):
    """Anthropic's Messages, without tools or images."""

    model: str
    messages: Turns
    max_tokens: Count
    system: str | list[ContentPart] | None = None
    stop_sequences: Annotated[list[Stop], Field(max_length=16)] | None = None
    thinking: dict[str, Any] | None = None  # without effect
    output_config: Reasoning | None = None
    stream: bool | None = None

    def as_chat(self) -> ChatRequest:
        effort = self.output_config.effort if self.output_config else self.reasoning_effort
        own = {"reasoning_effort": effort, "stop": self.stop_sequences}
        return _chat(self, self.system, self.messages, **own)


def _chat(
    body: Any, system: str | list[ContentPart] | None, turns: Turns, **own: Any
) -> ChatRequest:
    """The same request to chat completions; a field of theirs that this API lacks is unknown here."""
    extra = dict(body.__pydantic_extra__ or {})
    for name in ("tools", "tool_choice"):
        if (value := extra.pop(name, None)) is not None and value not in NEUTRAL[name]:
            message = f"{name} is supported by /v1/chat/completions only; leave it out here"
            raise ApiError(400, message, param=name, code="unsupported_parameter")
    for name in extra.keys() & ChatRequest.model_fields.keys():
        message = unknown_name("field", name, {*type(body).model_fields, *request_settings()})
        raise ApiError(400, message, param=name, code="unknown_parameter")
    first = [TextTurn(role="system", content=system)] if system else []
    messages = [Message(role=turn.role, content=turn.joined()) for turn in [*first, *turns]]
    shared = {name: getattr(body, name) for name in (*RequestBody.model_fields, "model", "stream")}
    return ChatRequest(**{**extra, **shared, **own, "messages": messages})


ERROR_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
}  # fmt: skip


def anthropic_error(told: ApiError) -> dict[str, Any]:
    """An error as Anthropic's clients expect it."""
    usual = "invalid_request_error" if told.status_code < 500 else "api_error"
    kind = ERROR_TYPES.get(told.status_code, usual)
    return {"type": "error", "error": {"type": kind, "message": told.detail}}


def event(kind: str, **data: Any) -> str:
    """A server-sent event with its name."""
    return f"event: {kind}\n{sse({'type': kind, **data})}"


class Translated(Reply):
    """The one answer to a request, as another API's object."""

    async def whole(self, watch: Watch) -> dict[str, Any]:
        (choice,) = (await super().whole(watch))["choices"]
        return self.told(choice["message"]["content"], choice)

    def told(self, text: str | None, end: dict[str, Any]) -> dict[str, Any]:
        """The object; no text and no end while it has just begun."""
        names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
        usage = {names.get(name, name): count for name, count in self.usage.items()}
        return {"model": self.service.name, "usage": usage, "search": end.get("search")}


class MessagesReply(Translated):
    """Anthropic's message."""

    def told(self, text: str | None, end: dict[str, Any]) -> dict[str, Any]:
        content = [] if text is None else [{"type": "text", "text": text}]
        own = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "content": content}
        return {**own, **_stopped(end), **super().told(text, end)}

    def _end(self, result: Result) -> dict[str, Any]:
        text, was_cut = cut(result.text, self.parsed.stops)
        stops = (each for each in self.parsed.stops if result.text.startswith(each, len(text)))
        return {**super()._end(result), "stop_sequence": next(stops) if was_cut else None}

    async def pieces(self, watch: Watch) -> AsyncIterator[str]:
        async for _, text, end in self.parts(watch):
            if text is None:
                yield event("message_start", message=self.told(None, {}))
                yield event(
                    "content_block_start", index=0, content_block={"type": "text", "text": ""}
                )
            elif isinstance(text, Step):
                yield event("ping")
            elif not end:
                delta = {"type": "text_delta", "text": text}
                yield event("content_block_delta", index=0, delta=delta)
            else:
                yield event("content_block_stop", index=0)
                more = {name: self.told(None, end)[name] for name in ("usage", "search")}
                yield event("message_delta", delta=_stopped(end), **more)
                yield event("message_stop")

    def failure(self, told: ApiError) -> str:
        return event("error", error=anthropic_error(told)["error"])


def _stopped(end: dict[str, Any]) -> dict[str, str | None]:
    """Anthropic's reason why a message ended."""
    reason = {"length": "max_tokens", "stop": "end_turn"}.get(end.get("finish_reason", ""))
    stop = end.get("stop_sequence")
    return {"stop_reason": reason if stop is None else "stop_sequence", "stop_sequence": stop}


class ResponsesReply(Translated):
    """OpenAI's response, with one message."""

    def told(self, text: str | None, end: dict[str, Any]) -> dict[str, Any]:
        settings, status, shared = self.parsed.settings, _status(end), super().told(text, end)
        details = {"cached_tokens": 0, "cache_write_tokens": 0, "reasoning_tokens": 0}
        shared["usage"] |= {f"{side}_tokens_details": details for side in ("input", "output")}
        cause = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **shared,
            "id": f"resp_{self.id}", "object": "response", "created_at": self.envelope["created"],
            "status": status, "error": None, "incomplete_details": cause, "instructions": None,
            "output": [] if text is None else [self._message(end, _output_text(text))], "metadata": {},
            "parallel_tool_calls": False, "tools": [], "tool_choice": "none",
            "temperature": settings.decoding.temperature, "top_p": settings.decoding.top_p,
            "max_output_tokens": settings.decoding.gen_length,
        }  # fmt: skip

    def _message(self, end: dict[str, Any], *content: dict[str, Any]) -> dict[str, Any]:
        own = {"id": f"msg_{self.id}", "status": _status(end), "content": list(content)}
        return {"type": "message", "role": "assistant", **own}

    def _event(self, kind: str, **more: Any) -> str:
        return event(kind, sequence_number=next(self.number), **more)

    async def pieces(self, watch: Watch) -> AsyncIterator[str]:
        whole, place = "", {"output_index": 0}
        part = {"item_id": f"msg_{self.id}", "content_index": 0, **place}
        async for _, text, end in self.parts(watch):
            if text is None:
                for kind in ("response.created", "response.in_progress"):
                    yield self._event(kind, response=self.told(None, {}))
                yield self._event("response.output_item.added", **place, item=self._message({}))
                yield self._event("response.content_part.added", **part, part=_output_text(""))
            elif isinstance(text, Step):
                yield self.alive(text)
            elif not end:
                whole += text
                yield self._event("response.output_text.delta", **part, delta=text, logprobs=[])
            else:
                done = _output_text(whole)
                yield self._event("response.output_text.done", **part, text=whole, logprobs=[])
                yield self._event("response.content_part.done", **part, part=done)
                item = {"item": self._message(end, done)}
                yield self._event("response.output_item.done", **place, **item)
                yield self._event(f"response.{_status(end)}", response=self.told(whole, end))

    def failure(self, told: ApiError) -> str:
        error = told.body["error"]
        return self._event("error", **{name: error[name] for name in ("code", "message", "param")})


def _status(end: dict[str, Any]) -> str:
    reasons = {"": "in_progress", "length": "incomplete"}
    return reasons.get(end.get("finish_reason", ""), "completed")


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
