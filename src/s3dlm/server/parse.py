"""From a request body to jobs, or to the error that says why not.

Nothing here touches a file: tasks and verifiers are names in tables built at the start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s3dlm import tasks
from s3dlm.diffusion.infill import Template
from s3dlm.engine import Job
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.models.base import Turn
from s3dlm.server import declared
from s3dlm.server.reporting import ApiError
from s3dlm.server.schemas import (
    IGNORED,
    NEUTRAL,
    SEARCH_FIELDS,
    ChatRequest,
    CompletionRequest,
    Message,
    OpenAIRequest,
    Request,
    ResponseFormat,
    SearchRequest,
)
from s3dlm.server.service import Service
from s3dlm.settings import Settings
from s3dlm.verifier import as_verifier, for_task
from s3dlm.verifier.json_format import JsonFormat, JsonVerifier

ROLES = {"developer": "system"}  # OpenAI's newer name
LONGEST_STOP = 256  # characters


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request's searches in the order of its choices, and where to cut their texts."""

    jobs: tuple[Job, ...]
    stops: tuple[str, ...] = ()
    logprobs: bool = False
    form: JsonFormat | None = None  # that every text must have

    @property
    def settings(self) -> Settings:
        return self.jobs[0].settings

    @property
    def keeps_revealed(self) -> bool:
        """Whether tokens that all survivors agree on are sure to be sent: no form, no other lengths to
        try, and a method whose answer descends from the survivors of every step."""
        infill = self.jobs[0].infill
        final = self.form is None and (infill is None or Template.parse(infill).count == 1)
        return final and declared.keeps_revealed_tokens(self.settings)


def chat(service: Service, body: ChatRequest) -> Parsed:
    tokens = body.max_completion_tokens or body.max_tokens
    earlier, question = conversation(body.messages)
    parsed = _openai(service, body, [question], tokens, earlier)
    return _with_logprobs(parsed, bool(body.logprobs))


def completion(service: Service, body: CompletionRequest) -> Parsed:
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if body.logprobs:
        raise ApiError(
            400,
            f"logprobs={declared.shown(body.logprobs)}: only the probability of the chosen token is known; give 0",
            param="logprobs",
            code="unsupported_parameter",
        )
    parsed = _openai(service, body, prompts, body.max_tokens)
    return _with_logprobs(parsed, body.logprobs is not None and body.logprobs is not False)


def search(service: Service, body: SearchRequest) -> Parsed:
    settings = _settings(service, body, body.max_tokens, 1)
    return Parsed((_job(service, body, body.prompt, settings),))


def _openai(
    service: Service,
    body: OpenAIRequest,
    prompts: Sequence[str],
    max_tokens: int | None,
    earlier: tuple[Turn, ...] = (),
) -> Parsed:
    count = len(prompts) * (body.n or 1)
    if count > service.limits.choices:
        raise SettingsError(
            f"the request needs {count} choices; this server gives at most "
            f"{service.limits.choices}: use fewer prompts or a smaller n"
        )
    settings = _settings(service, body, max_tokens, count)
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if any(not stop or len(stop) > LONGEST_STOP for stop in stops):
        raise ApiError(
            400, f"every stop sequence needs 1 to {LONGEST_STOP} characters", param="stop"
        )
    jobs = [
        _job(service, body, prompt, settings.replace(seed=settings.seed + index), earlier)
        for prompt in prompts
        for index in range(body.n or 1)
    ]
    form = _form(body.response_format, settings)
    if form is not None:
        jobs = [_formed(job, form) for job in jobs]
    return Parsed(tuple(jobs), tuple(stops), form=form)


def _with_logprobs(parsed: Parsed, wanted: bool) -> Parsed:
    if wanted and parsed.form is not None:
        raise ApiError(400, "give either logprobs or a JSON response_format", param="logprobs")
    return dataclasses.replace(parsed, logprobs=wanted)


def named(service: Service, name: str | None) -> Service:
    """The service as a client calls it: by the model's name or by one of its aliases."""
    if name is None or name == service.name:
        return service
    if name not in service.aliases:
        known = ", ".join(repr(one) for one in service.names)
        raise ApiError(
            404,
            f"the model {declared.shown(name)} does not exist here; this server has {known}",
            param="model",
            code="model_not_found",
        )
    return service.as_alias(name)


def _form(wanted: ResponseFormat | None, settings: Settings) -> JsonFormat | None:
    """The JSON form that a request wants, if its method can be steered towards it."""
    if wanted is None or wanted.type == "text":
        return None
    if settings.row.scored == "never":
        raise ApiError(
            400,
            f"response_format={wanted.type!r} is enforced by the verifier, and method="
            f"{settings.method!r} never calls it; choose a method that does, such as s3",
            param="response_format",
            code="unsupported_parameter",
        )
    if wanted.type == "json_object":
        return JsonFormat({"type": "object"})
    if wanted.json_schema is None:
        raise ApiError(400, "json_schema is missing in response_format", param="response_format")
    return JsonFormat(wanted.json_schema.schema_)


def _formed(job: Job, form: JsonFormat) -> Job:
    weights = tasks.get(job.task).verifier if job.task is not None else "general"
    named = job.settings.verifier
    content = as_verifier(job.verifier) if job.verifier else for_task(weights, named)
    return dataclasses.replace(job, verifier=JsonVerifier(form, content))


def _job(
    service: Service,
    body: Request,
    prompt: str,
    settings: Settings,
    earlier: tuple[Turn, ...] = (),
) -> Job:
    texts = [prompt, *(turn.text for turn in earlier), body.infill or ""]
    service.limits.check_prompt(service.model, sum(map(len, texts)))
    if body.infill is not None:
        service.limits.check_infill(settings, Template.parse(body.infill))
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise ApiError(400, "the prompt is not valid Unicode text", param="prompt") from None
    if body.task is not None and body.task not in service.task_names:
        raise SettingsError(_unknown("task", body.task, service.task_names))
    verifier = None if body.verifier is None else service.verifiers.get(body.verifier)
    return Job(prompt, body.task, settings, verifier=verifier, earlier=earlier, infill=body.infill)


def _settings(service: Service, body: Request, max_tokens: int | None, count: int) -> Settings:
    """What the request says, over the server's defaults."""
    changes = _own(service, body)
    method = _method(service, changes, body.task)
    changes.pop("method", None)
    if max_tokens is not None:
        changes = shorten(service.settings(method, body.task, **changes), max_tokens, changes)
    if "budget" in changes:  # of the request: its choices share it
        changes["budget"] = declared.check("budget", changes["budget"] // count)
    settings = service.settings(method, body.task, **changes)
    service.limits.check(settings, service.model)
    return settings


def _own(service: Service, body: Request) -> dict[str, Any]:
    """The settings that a body contains, each checked; null means that it was left out."""
    own: dict[str, Any] = {}
    for name, value in (body.__pydantic_extra__ or {}).items():
        if name in SEARCH_FIELDS:
            if value is not None:
                own[name] = declared.check(name, value)
        elif name in NEUTRAL:
            if value is not None and value not in NEUTRAL[name]:
                raise ApiError(
                    400,
                    f"{name} is not supported by a diffusion search; leave it out",
                    param=name,
                    code="unsupported_parameter",
                )
        elif name not in IGNORED:
            message = _unknown("field", name, {*type(body).model_fields, *SEARCH_FIELDS})
            short = name[: declared.LONGEST_NAME]
            raise ApiError(400, message, param=short, code="unknown_parameter")
    given = {
        "temperature": body.temperature,
        "seed": body.seed,
        "verifier": _bundled(service, body),
    }
    return own | {name: value for name, value in given.items() if value is not None}


def _bundled(service: Service, body: Request) -> str | None:
    """The bundled verifier that a request names; registered ones are not a setting."""
    if body.verifier is None or body.verifier in service.verifiers:
        return None
    bundled = declared.by_name()["verifier"]["enum"]
    if body.verifier not in bundled:
        raise SettingsError(_unknown("verifier", body.verifier, {*service.verifiers, *bundled}))
    return body.verifier


def _unknown(what: str, name: str, allowed: Any) -> str:
    return unknown_name(what, name[: declared.LONGEST_NAME], allowed)


def _method(service: Service, own: dict[str, Any], task: str | None) -> str:
    """The method of a request; at temperature 0 there is nothing to search: one greedy answer."""
    method: str = own.get("method", service.method)
    temperature = own.get("temperature", service.settings(method, task).temperature)
    if temperature != 0 or not declared.compares_children(method):
        return method
    if "method" in own:
        raise SettingsError(
            f"temperature=0 with method={own['method']!r}: all children would be equal; "
            "set a temperature above 0, or leave the method out"
        )
    return "baseline"


def shorten(settings: Settings, max_tokens: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    """At most `max_tokens` tokens, with steps in proportion unless the request names them."""
    if max_tokens >= settings.gen_length:
        return dict(changes)
    block = min(settings.block_length, max_tokens)
    blocks = -(-max_tokens // changes.get("block_length", block))
    steps = round(settings.steps * max_tokens / settings.gen_length)
    fitting = {"block_length": block, "steps": min(max(steps, blocks), max_tokens)}
    return {**settings.effective(fitting), **changes, "gen_length": max_tokens}


def conversation(messages: Sequence[Message]) -> tuple[tuple[Turn, ...], str]:
    """The earlier turns and the question."""
    if messages[-1].role != "user":
        raise ApiError(400, "the last message must have the role user", param="messages")
    turns = [Turn(ROLES.get(one.role, one.role), one.text()) for one in messages]
    return tuple(turns[:-1]), turns[-1].text
