"""Results as OpenAI's objects: whole answers and streamed chunks."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

from s3dlm import __version__
from s3dlm.engine import Result
from s3dlm.search.step import Step
from s3dlm.server import schemas
from s3dlm.server.parse import Parsed, keeps_revealed_tokens
from s3dlm.server.reporting import ApiError
from s3dlm.server.scheduler import Started
from s3dlm.server.streaming import CertainText, Watch, cut
from s3dlm.server.structured import tool_call
from s3dlm.settings import Settings

Said = str | Step | None
DONE = "data: [DONE]\n\n"
LONGEST_THOUGHT = 200  # characters of a draft that are shown


def json_line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


def sse(data: dict[str, Any]) -> str:
    """A server-sent event."""
    return f"data: {json_line(data)}\n"


def population(settings: Settings) -> dict[str, int]:
    """Particles and branching, each only if the method uses it."""
    return {n: v for n, v in settings.search if n in ("particles", "branching")}


class Reply:
    """The answer to one request, in one of OpenAI's two shapes."""

    def __init__(self, parsed: Parsed, body: schemas.OpenAIRequest, note: dict[str, Any]) -> None:
        """The usage also goes into `note`."""
        self.service, self.parsed, self.body, self.note = parsed.service, parsed, body, note
        self.chat = isinstance(body, schemas.ChatRequest)
        self.usage = dict.fromkeys(schemas.Usage.model_fields, 0)
        self.id, self.number = uuid.uuid4().hex, itertools.count()  # the number of an event
        self.envelope = {
            "id": f"{'chatcmpl' if self.chat else 'cmpl'}-{self.id}",
            "created": int(time.time()),
            "model": self.service.name,
            "system_fingerprint": f"s3dlm-{__version__}",
        }

    async def whole(self, watch: Watch) -> dict[str, Any]:
        """One object when all choices are there."""
        choices: list[dict[str, Any]] = [
            {"index": i, "text": ""} for i in range(len(self.parsed.jobs))
        ]
        async for index, text, end in self.parts(watch):  # no steps: nobody watches them
            choices[index]["text"] += text or ""
            choices[index] |= end
        for choice in choices if self.chat else ():
            content = choice.pop("text")
            said = self._said(content)
            choice["message"] = {"role": "assistant", "content": None, "refusal": None, **said}
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self.envelope, "object": kind, "choices": choices, "usage": self.usage}

    async def parts(self, watch: Watch) -> AsyncIterator[tuple[int, Said, dict[str, Any]]]:
        """(choice, text, end): no text at the start, then certain text as it becomes certain, or the step
        that left nothing more certain, the rest at the end, and last, with an empty text, how the choice
        ended."""
        parsed, model = self.parsed, self.service.model
        live = keeps_revealed_tokens(parsed.settings) and not parsed.calls
        certain = [CertainText(model, parsed.stops, live) for _ in parsed.jobs]
        async for index, event in watch.events():
            if isinstance(event, Started):
                if index % (self.body.n or 1) == 0:  # a prompt counts once for all its choices
                    self._count(prompt_tokens=event.prompt_tokens)
                yield index, None, {}
            elif isinstance(event, Step):
                yield index, certain[index].after(event) or event, {}
            else:
                if rest := certain[index].rest(event.text):
                    yield index, rest, {}
                yield index, "", self._end(event)

    async def pieces(self, watch: Watch) -> AsyncIterator[str]:
        """Server-sent events."""
        thought, begun = [""] * len(self.parsed.jobs), set[int]()
        async for index, text, end in self.parts(watch):
            if text is None:
                yield self._piece(index, "", role="assistant")
            elif isinstance(text, Step):
                words = "" if index in begun else self._thought(text)
                if not words or words == thought[index]:
                    yield self.alive(text)
                else:
                    thought[index] = words
                    yield self._piece(index, None, reasoning_content=f"{words}\n")
            else:
                begun.add(index)
                yield self._piece(index, None if end else text, **end)
        if self.body.stream_options is not None and self.body.stream_options.include_usage:
            yield self._chunk([], usage=self.usage)
        yield DONE

    def failure(self, told: ApiError) -> str:
        """The event that ends a stream by an error."""
        return sse(told.body)

    def alive(self, step: Step) -> str:
        """A comment, which clients skip, so that no connection is silent while the search goes on."""
        return f": step {step.index + 1} of {step.total}\n\n"

    def _thought(self, step: Step) -> str:
        """What the best particle would say if it ended now, where a chat's text is not certain yet."""
        scores, model, body = step.score[step.survivor], self.service.model, self.body
        wanted = isinstance(body, schemas.ChatRequest) and body.include_reasoning is not False
        if not wanted or np.isnan(scores).all():
            return ""
        best = step.survivor[int(np.nanargmax(scores))]
        ids = step.clean[best].tolist()
        ids = list(itertools.takewhile(lambda token: token not in model.end_ids, ids))
        words = " ".join(model.tokenizer.decode(ids).split())[:LONGEST_THOUGHT]
        return f"Draft {step.round + 1}, score {step.score[best]:.2f}: {words}"

    def _piece(
        self, index: int, text: str | None, *, role: str | None = None,
        reasoning_content: str | None = None, **end: Any,
    ) -> str:  # fmt: skip
        choice: dict[str, Any] = {"index": index, "logprobs": None, "finish_reason": None, **end}
        if self.chat:
            said: dict[str, Any] = {"content": ""} if role else {}
            said |= self._said(text, index=0) if text else {}
            delta = {"role": role, **said, "reasoning_content": reasoning_content}
            choice["delta"] = {name: value for name, value in delta.items() if value is not None}
        else:
            choice["text"] = text or ""
        return self._chunk([choice])

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> str:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        return sse({**self.envelope, "object": kind, "choices": choices, **more})

    def _said(self, text: str, **more: int) -> dict[str, Any]:
        """A text of the answer, or the call of a tool that it is."""
        if not self.parsed.calls:
            return {"content": text}
        return {"tool_calls": [{**more, **tool_call(text)}]}

    def _count(self, **counts: int) -> None:
        for name, count in counts.items():
            self.usage[name] += count
            if name.endswith("_tokens"):
                self.usage["total_tokens"] += count
                self.service.metrics.tokens.labels(name.removesuffix("_tokens")).inc(count)
        self.note.update(self.usage)

    def _end(self, result: Result) -> dict[str, Any]:
        """Why a choice ended and how it was found; also counts what it cost."""
        survivors = result.survivors
        tokens = next((each.tokens for each in survivors if each.text == result.text), None)
        if tokens is None:  # the answer is an earlier text
            tokens = len(self.service.model.tokenizer.encode(result.text))
        self._count(completion_tokens=tokens, nfe=result.nfe, nfe_logical=result.nfe_logical)
        sent, was_cut = cut(result.text, self.parsed.stops)
        full = tokens >= result.settings.decoding.gen_length and not (was_cut or result.holes)
        complete = "tool_calls" if self.parsed.calls else "stop"
        return {
            "logprobs": self._logprobs(result, sent) if self.parsed.logprobs else None,
            "finish_reason": "length" if full and result.grammar is None else complete,
            "search": {
                **population(result.settings),
                **({} if result.checkable is None else {"checkable": result.checkable}),
                "answer": result.answer,
                "votes": 0 if result.answer is None else result.votes,
                "survivors": len(survivors),
                "score": result.score,
                "stopped": result.stopped,
                "p_correct": None if result.p_correct is None else round(result.p_correct, 6),
                "seed": result.settings.decoding.seed,
                "seconds": round(result.seconds, 6),
                "holes": list(result.holes),
            },
        }

    def _logprobs(self, result: Result, sent: str) -> dict[str, Any]:
        """The tokens of what is sent, as text with their log-probabilities."""
        texts = [self.service.model.tokenizer.decode([token]) for token in result.token_ids]
        starts = itertools.accumulate(map(len, texts), initial=0)
        rows = zip(texts, result.token_logprobs, starts, strict=False)
        tokens = [
            {
                "token": text,
                "logprob": round(logp, 6),
                "bytes": list(text.encode()),
                "top_logprobs": [],
            }
            for text, logp, start in rows
            if start < len(sent)
        ]
        return {"content": tokens, "refusal": None}
