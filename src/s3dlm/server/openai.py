"""Results as OpenAI's objects: whole answers and streamed chunks."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from s3dlm.engine import Result
from s3dlm.models.base import Model
from s3dlm.search.select import Survivor
from s3dlm.search.step import Step
from s3dlm.server.declared import population
from s3dlm.server.errors import no_such_form
from s3dlm.server.parse import Parsed
from s3dlm.server.scheduler import Started
from s3dlm.server.service import Service
from s3dlm.server.streaming import CertainText, cut
from s3dlm.server.watch import Watch

DONE = "data: [DONE]\n\n"


def sse(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


@dataclass(slots=True)
class Usage:
    """Tokens and forward passes of one request."""

    prompt: dict[int, int] = field(default_factory=dict)  # by search
    completion: int = 0
    nfe: int = 0
    nfe_logical: int = 0

    def add(self, result: Result, tokens: int) -> None:
        self.completion += tokens
        self.nfe += result.nfe
        self.nfe_logical += result.nfe_logical

    def as_json(self, per_prompt: int) -> dict[str, int]:
        """Prompts are counted once, however many choices they have."""
        prompt = sum(count for index, count in self.prompt.items() if index % per_prompt == 0)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.completion,
            "total_tokens": prompt + self.completion,
            "nfe": self.nfe,
            "nfe_logical": self.nfe_logical,
        }


@dataclass(slots=True)
class Reply:
    """The answer to one request, in one of OpenAI's two shapes."""

    service: Service
    parsed: Parsed
    chat: bool
    per_prompt: int
    usage: Usage = field(default_factory=Usage)
    envelope: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        kind = "chatcmpl" if self.chat else "cmpl"
        self.envelope = {
            "id": f"{kind}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": self.service.name,
            "system_fingerprint": f"s3dlm-{self.parsed.settings.replace(seed=0).hash()}",
        }

    async def whole(self, watch: Watch) -> dict[str, Any]:
        """One object when all choices are there."""
        choices: dict[int, dict[str, Any]] = {}
        async for index, event in watch.events():
            if isinstance(event, Started):
                self.usage.prompt[index] = event.prompt_tokens
            elif isinstance(event, Result):
                event = self._formed(event)
                text, _ = cut(event.text, self.parsed.stops)
                content: dict[str, Any] = {"text": text}
                if self.chat:
                    content = {"message": {"role": "assistant", "content": text, "refusal": None}}
                choices[index] = {"index": index, **content, **self._end(event)}
        return {
            **self.envelope,
            "object": "chat.completion" if self.chat else "text_completion",
            "choices": [choices[index] for index in sorted(choices)],
            "usage": self.usage.as_json(self.per_prompt),
        }

    def _logprobs(self, result: Result) -> dict[str, Any]:
        found = _pieces(self.service.model, result, self.parsed.stops)
        if self.chat:
            content = [
                {"token": piece, "logprob": logp, "bytes": list(piece.encode()), "top_logprobs": []}
                for piece, logp in found
            ]
            return {"content": content, "refusal": None}
        ends = list(itertools.accumulate((len(piece) for piece, _ in found), initial=0))
        return {
            "tokens": [piece for piece, _ in found],
            "token_logprobs": [logp for _, logp in found],
            "top_logprobs": None,
            "text_offset": ends[:-1],
        }

    async def pieces(self, watch: Watch, *, with_usage: bool) -> AsyncIterator[str]:
        """Server-sent events: certain text as it becomes certain, the rest at the end."""
        certain = [
            CertainText.of(
                self.service.model, job.settings, self.parsed.stops, final=self.parsed.final
            )
            for job in self.parsed.jobs
        ]
        async for index, event in watch.events():
            if isinstance(event, Started):
                self.usage.prompt[index] = event.prompt_tokens
                if self.chat:
                    yield self._piece(index, "", role="assistant")
            elif isinstance(event, Step):
                if new := certain[index].after(event):
                    yield self._piece(index, new)
            else:
                event = self._formed(event)
                if rest := certain[index].rest(event.text):
                    yield self._piece(index, rest)
                yield self._piece(index, None, **self._end(event))
        if with_usage:
            usage = self.usage.as_json(self.per_prompt)
            yield sse({**self._chunk(), "choices": [], "usage": usage})
        yield DONE

    def _chunk(self) -> dict[str, Any]:
        return {
            **self.envelope,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
        }

    def _piece(self, index: int, text: str | None, *, role: str | None = None, **end: Any) -> str:
        choice: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": None, **end}
        if self.chat:
            delta = {"role": role, "content": text}
            choice["delta"] = {name: value for name, value in delta.items() if value is not None}
        else:
            choice["text"] = text or ""
        return sse({**self._chunk(), "choices": [choice]})

    def _formed(self, result: Result) -> Result:
        """The result, or the best survivor of the wanted form, or an error that says there is none."""
        form = self.parsed.form
        if form is None or form.fits(result.text):
            return result
        fitting = [one for one in result.survivors if form.fits(one.text)]
        if not fitting:
            raise no_such_form(len(result.survivors))
        best = max(fitting, key=lambda one: one.score or 0.0)
        return replace(result, text=best.text, answer=best.answer)

    def _end(self, result: Result) -> dict[str, Any]:
        """Why a choice ended and how it was found; also counts what it cost."""
        chosen = _chosen(result)
        tokens = len(self.service.model.tokenizer.encode(result.text))
        if chosen is not None:
            tokens = chosen.tokens
        self.usage.add(result, tokens)
        _, was_cut = cut(result.text, self.parsed.stops)
        full = tokens >= result.settings.gen_length and not (was_cut or result.holes)
        return {
            "logprobs": self._logprobs(result) if self.parsed.logprobs else None,
            "finish_reason": "length" if full else "stop",
            "search": {
                **population(result.settings),
                "answer": result.answer,
                "votes": _votes(result.survivors, result.answer),
                "survivors": len(result.survivors),
                "score": result.score,
                "stopped": result.stopped,
                "p_correct": None if result.p_correct is None else round(result.p_correct, 6),
                "seed": result.settings.seed,
                "seconds": round(result.seconds, 6),
                "holes": list(result.holes),
            },
        }


def _pieces(model: Model, result: Result, stops: Sequence[str]) -> list[tuple[str, float]]:
    """The tokens of what is sent, as text with their log-probabilities."""
    sent, _ = cut(result.text, stops)
    found, length = [], 0
    for token, logp in zip(result.token_ids, result.token_logprobs, strict=True):
        if length >= len(sent):
            break
        piece = model.tokenizer.decode([token])
        found.append((piece, round(logp, 6)))
        length += len(piece)
    return found


def _chosen(result: Result) -> Survivor | None:
    """The survivor with the answer's text; None if the answer is an earlier text."""
    return next((one for one in result.survivors if one.text == result.text), None)


def _votes(survivors: Sequence[Survivor], answer: str | None) -> int:
    return 0 if answer is None else sum(one.answer == answer for one in survivors)
