"""From a body to jobs: what a request means, or why it is refused.

Nothing here touches a file: tasks, profiles and verifiers are names in tables built at the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from s3dlm.engine import Job
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.models.base import Turn
from s3dlm.server.budget import allot
from s3dlm.server.refusals import Refusal
from s3dlm.server.schemas import (
    CHOICES,
    IGNORED,
    NEUTRAL,
    SEARCH_FIELDS,
    ChatRequest,
    CompletionRequest,
    Message,
    OpenAIRequest,
    Request,
    SearchRequest,
)
from s3dlm.server.service import Service
from s3dlm.settings import SAMPLING_METHODS, Settings

ROLES = {"developer": "system"}  # OpenAI's newer name for the same thing


@dataclass(frozen=True, slots=True)
class Asked:
    """A request understood: its searches in the order of the choices, and where to cut the text."""

    jobs: tuple[Job, ...]
    stops: tuple[str, ...] = ()

    @property
    def settings(self) -> Settings:
        return self.jobs[0].settings


def chat(service: Service, body: ChatRequest) -> Asked:
    _check_model(service, body.model)
    tokens = body.max_completion_tokens or body.max_tokens
    earlier, question = conversation(body.messages)
    return _openai(service, body, [question], tokens, earlier)


def completion(service: Service, body: CompletionRequest) -> Asked:
    _check_model(service, body.model)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    return _openai(service, body, prompts, body.max_tokens)


def search(service: Service, body: SearchRequest) -> Asked:
    if body.model is not None:
        _check_model(service, body.model)
    settings = _settings(service, body, body.max_tokens, 1)
    return Asked((_job(service, body, body.prompt, settings),))


def _openai(
    service: Service,
    body: OpenAIRequest,
    prompts: Sequence[str],
    max_tokens: int | None,
    earlier: tuple[Turn, ...] = (),
) -> Asked:
    count = len(prompts) * (body.n or 1)
    if count > service.limits.choices:
        raise SettingsError(
            f"the request asks for {count} choices; this server gives at most "
            f"{service.limits.choices}: use fewer prompts or a smaller n"
        )
    settings = _settings(service, body, max_tokens, count)
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if any(not stop or len(stop) > 256 for stop in stops):
        raise Refusal(400, "every stop sequence needs 1 to 256 characters", param="stop")
    jobs = [
        _job(service, body, prompt, settings.replace(seed=settings.seed + index), earlier)
        for prompt in prompts
        for index in range(body.n or 1)
    ]
    return Asked(tuple(jobs), tuple(stops))


def _check_model(service: Service, name: str) -> None:
    if name != service.name:
        raise Refusal(
            404,
            f"the model {name[:80]!r} does not exist here; this server has {service.name!r}",
            param="model",
            code="model_not_found",
        )


def _job(
    service: Service,
    body: Request,
    prompt: str,
    settings: Settings,
    earlier: tuple[Turn, ...] = (),
) -> Job:
    try:
        "".join([prompt, *(turn.text for turn in earlier)]).encode()
    except UnicodeEncodeError:
        raise Refusal(400, "the prompt is not valid Unicode text", param="prompt") from None
    if body.task is not None and body.task not in service.task_names:
        raise SettingsError(unknown_name("task", body.task[:80], service.task_names))
    verifier = None
    if body.verifier is not None:
        if body.verifier not in service.verifiers:
            raise SettingsError(unknown_name("verifier", body.verifier[:80], service.verifiers))
        verifier = service.verifiers[body.verifier]
    return Job(prompt, body.task, settings, verifier=verifier, earlier=earlier)


def _settings(service: Service, body: Request, max_tokens: int | None, count: int) -> Settings:
    """The server's defaults under what the request says."""
    own = _own(body)
    if body.temperature is not None:
        own["temperature"] = body.temperature
    if body.seed is not None:
        own["seed"] = body.seed
    merged = {**service.defaults, **service.own_of(str(own.get("method", ""))), **own}
    _greedy(merged, own)
    if max_tokens is not None:
        shorten(merged, max_tokens, own)
    if body.budget is not None:
        _spend(merged, own, body.budget // count, service.limits.children)
    settings = Settings.from_json(merged)
    service.limits.check(settings)
    return settings


def _own(body: Request) -> dict[str, Any]:
    """The settings among a body's extra fields; nulls say nothing, habits are let pass."""
    own: dict[str, Any] = {}
    for name, value in (body.__pydantic_extra__ or {}).items():
        if name in SEARCH_FIELDS:
            if value is not None:
                own[name] = value
        elif name in NEUTRAL:
            if value is not None and value not in NEUTRAL[name]:
                raise Refusal(
                    400,
                    f"{name} is not supported by a diffusion search; leave it out",
                    param=name,
                    code="unsupported_parameter",
                )
        elif name not in IGNORED:
            known = {*type(body).model_fields, *SEARCH_FIELDS}
            message = unknown_name("field", name[:80], known)
            raise Refusal(400, message, param=name[:80], code="unknown_parameter")
    profile = own.get("profile")
    if profile is not None and profile not in CHOICES["profile"]:  # never a file
        raise SettingsError(unknown_name("profile", str(profile)[:80], CHOICES["profile"]))
    return own


def _greedy(merged: dict[str, Any], own: dict[str, Any]) -> None:
    """Temperature 0 asks for the one greedy answer: nothing is left to search among."""
    if merged["temperature"] != 0 or merged["method"] not in SAMPLING_METHODS:
        return
    if "method" in own:
        raise SettingsError(
            f"temperature=0 with method={str(own['method'])[:40]!r}: all children would be equal; "
            "set a temperature above 0, or leave the method out"
        )
    merged["method"] = "baseline"


def shorten(merged: dict[str, Any], max_tokens: int, own: dict[str, Any]) -> None:
    """A canvas of at most `max_tokens`, its steps shrunk in proportion unless they were named."""
    length, steps = merged["gen_length"], merged["steps"]
    if not isinstance(length, int) or max_tokens >= length:
        return
    merged["gen_length"] = max_tokens
    if "block_length" not in own and isinstance(merged["block_length"], int):
        merged["block_length"] = min(merged["block_length"], max_tokens)
    if "steps" not in own:
        blocks = -(-max_tokens // merged["block_length"])
        merged["steps"] = min(max(round(steps * max_tokens / length), blocks), max_tokens)


def _spend(merged: dict[str, Any], own: dict[str, Any], budget: int, most: int) -> None:
    if "particles" in own or "branching" in own:
        raise SettingsError(
            "budget picks particles and branching itself; give either the budget or those two"
        )
    if not isinstance(merged["steps"], int) or isinstance(merged["steps"], bool):
        return  # Settings will name the mistake
    merged["particles"], merged["branching"] = allot(budget, max(1, merged["steps"]), most=most)


def conversation(messages: Sequence[Message]) -> tuple[tuple[Turn, ...], str]:
    """What was said before, and the question: the model's own template writes them."""
    if messages[-1].role != "user":
        raise Refusal(400, "the last message must be the user's", param="messages")
    turns = [Turn(ROLES.get(one.role, one.role), one.text()) for one in messages]
    return tuple(turns[:-1]), turns[-1].text
