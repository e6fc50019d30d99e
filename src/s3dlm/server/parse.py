"""From a request body to jobs, or to the error that says why not.

Nothing here touches a file: tasks and verifiers are names in tables built at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s3dlm import tasks
from s3dlm.diffusion.grammar import Grammar
from s3dlm.engine import Job
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.job import OWN_PACE
from s3dlm.models.base import Turn
from s3dlm.search.methods import METHODS, find_method
from s3dlm.search.select import SELECTIONS
from s3dlm.server import schemas
from s3dlm.server.reporting import ApiError
from s3dlm.server.service import Service
from s3dlm.server.structured import grammar_of, grammar_of_call
from s3dlm.settings import Settings, decoded, has
from s3dlm.verifier import SELF, bundled_verifiers

# Budgets, in those that a method has without an effort; with none there is no search.
EFFORTS = {"minimal": 0.25, "low": 0.5, "medium": 1.0, "high": 4.0, "xhigh": 16.0}
ROLES = {"developer": "system"}  # OpenAI's newer name


@dataclass(frozen=True, slots=True)
class Parsed:
    """A request's searches in the order of its choices, and where to cut their texts."""

    service: Service  # under the name that the request gives to the model
    jobs: tuple[Job, ...]
    stops: tuple[str, ...] = ()
    logprobs: bool = False
    calls: bool = False  # whether the texts are calls of tools
    outside: str | None = None  # why the model would only write nonsense

    @property
    def settings(self) -> Settings:
        return self.jobs[0].settings


def keeps_revealed_tokens(settings: Settings) -> bool:
    """Whether the answer descends from the survivors of every step, so that it will have what they all have."""
    selection = SELECTIONS[settings.search.selection]
    from_elsewhere = selection.from_all_seen or selection.from_steps
    return settings.search.final and not from_elsewhere


def watched_search(service: Service, body: schemas.SearchRequest) -> Parsed:
    """The one search of a request that watches it."""
    service = service.named(body.model)
    task, outside = _task(service, body, [body.prompt])
    settings = _settings(service, body, task, body.max_tokens)
    return Parsed(
        service, tuple(_jobs(service, body, task, [body.prompt], [settings])), outside=outside
    )


def openai_searches(
    service: Service, body: schemas.ChatRequest | schemas.CompletionRequest
) -> Parsed:
    """The searches of a request for completions: of each prompt, one for every choice."""
    service, earlier, calls = service.named(body.model), list[Turn](), None
    length, logprobs = body.max_tokens, False
    if isinstance(body, schemas.ChatRequest):
        *earlier, last = (Turn(ROLES.get(one.role, one.role), one.text()) for one in body.messages)
        if last.role != "user":
            raise ApiError(400, "the last message must have the role user", param="messages")
        prompts, length = [last.text], body.max_completion_tokens or length
        calls = grammar_of_call(body.tools or [], body.tool_choice)
        logprobs = bool(body.logprobs)
    else:
        prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        if body.logprobs:
            message = "only chat completions have logprobs; leave it out"
            raise ApiError(400, message, param="logprobs", code="unsupported_parameter")
    choices = body.n or 1
    if (count := len(prompts) * choices) > service.limits.choices:
        raise SettingsError(
            f"the request needs {count} choices; this server gives at most "
            f"{service.limits.choices}: use fewer prompts or a smaller n"
        )
    grammar = grammar_of(body)
    if grammar is not None and calls is not None:
        raise ApiError(400, "give either tools or another form of answer", param="tools")
    grammar = calls or grammar
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if stops and grammar is not None:
        message = "give either stop or a form of answer, which a stop sequence would break"
        raise ApiError(400, message, param="stop")
    task, outside = _task(service, body, prompts)
    settings = _settings(service, body, task, length, count, {} if grammar is None else OWN_PACE)
    first = settings.decoding.seed
    others = (settings.replace(seed=first + place) for place in range(1, choices))
    jobs = _jobs(service, body, task, prompts, [settings, *others], tuple(earlier), grammar)
    return Parsed(service, tuple(jobs), stops, logprobs, calls is not None, outside)


def _task(
    service: Service, body: schemas.RequestBody, prompts: Sequence[str]
) -> tuple[str | None, str | None]:
    """The task, given, or recognised where all prompts have the form of one; and why a small model should
    not be asked one of them, if so."""
    known, outside = service.model.defaults.tasks if body.infill is None else (), None
    found = {tasks.of_question(body.task, prompt, known) for prompt in prompts}
    for unknown in found - {None, *service.task_names}:
        raise SettingsError(unknown_name("task", str(unknown), service.task_names))
    if body.infill is None:
        asked = (tasks.outside(service.name, known, body.task, prompt) for prompt in prompts)
        outside = next(filter(None, asked), None)
    return found.pop() if len(found) == 1 else None, outside


def _jobs(
    service: Service, body: schemas.RequestBody, task: str | None, prompts: Sequence[str],
    settings: Sequence[Settings], earlier: tuple[Turn, ...] = (), grammar: Grammar | None = None,
) -> list[Job]:  # fmt: skip
    """Of each prompt, one job with each of the settings."""
    before = sum(len(turn.text) for turn in earlier) + len(body.infill or "")
    for prompt in prompts:
        service.limits.check_prompt(service.model, before + len(prompt))
    verifier = None if body.verifier is None else service.verifiers.get(body.verifier)
    return [
        Job(prompt, task, own, None, verifier, earlier, body.infill, grammar=grammar)
        for prompt in prompts
        for own in settings
    ]


def _settings(
    service: Service, body: schemas.RequestBody, task: str | None, max_tokens: int | None,
    count: int = 1, pace: Mapping[str, Any] | None = None,
) -> Settings:  # fmt: skip
    """What the request says, over the server's defaults; `count` choices share its budget. The pace is
    that of a grammar."""
    overrides = _overrides(service, body)
    chosen = overrides.pop("method", None)
    if isinstance(chosen, str) and chosen not in tuple(METHODS):  # a file is not for clients
        raise SettingsError(unknown_name("method", chosen, METHODS))
    method = service.method if chosen is None else chosen
    if body.reasoning_effort == "none":
        method, chosen = "greedy", None
        overrides = {n: v for n, v in overrides.items() if has(find_method(method), n)}
    greedy = decoded(find_method(method), service.values(method, task, overrides))
    if greedy["temperature"] == 0 and not find_method(method).once_only:
        if chosen is not None:
            raise SettingsError(
                f"temperature=0 with method={chosen!r}: all children would be equal; "
                "set a temperature above 0, or leave the method out"
            )
        method = "baseline"  # there is nothing to search: one greedy answer
    row = find_method(method)
    overrides |= {n: v for n, v in (pace or {}).items() if has(row, n)}
    if max_tokens is not None:
        overrides |= _sizes(service, method, task, overrides, max_tokens)
    if "budget" in overrides:
        if body.reasoning_effort is not None:
            raise SettingsError("budget and reasoning_effort were both given; leave one out")
        if isinstance(overrides["budget"], int):
            overrides["budget"] //= count
    elif EFFORTS.get(body.reasoning_effort or "", 1.0) != 1 and not row.once_only:
        usual = Settings(method, **service.values(method, task, overrides))
        most = usual.most_nfe_in_blocks(service.model.denoiser.causal_block)
        budget = max(2, round(EFFORTS[str(body.reasoning_effort)] * most))
        overrides["budget"] = min(budget, service.limits.nfe)
        if has(row, "rounds"):
            overrides.setdefault("rounds", 0)  # as many as the budget allows
    settings = Settings(method, **service.values(method, task, overrides))
    service.limits.check(settings, service.model, count, body.infill)
    return settings


def _sizes(
    service: Service, method: str, task: str | None, overrides: Mapping[str, Any], length: int
) -> dict[str, Any]:
    """Settings for another length of the answer: blocks stay as long as they are, and steps are in
    proportion, as far as the server's limit allows, unless the request names them."""
    row = find_method(method)
    # Steps that the request names are for the length that it wants.
    others = {name: value for name, value in overrides.items() if name != "steps"}
    usual = decoded(row, service.values(method, task, others))
    sizes = [usual[name] for name in ("gen_length", "block_length", "steps")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return {}  # which is refused with the rest
    whole, block, steps = sizes
    if "gen_length" in overrides and length >= whole:
        return {}
    context = service.model.denoiser.context
    if length >= context:
        message = f"max_tokens={length} is too long: {service.name} reads {context} tokens in all"
        raise ApiError(400, message, param="max_tokens", code="context_length_exceeded")
    block = min(block, length)
    steps = min(round(steps * length / whole), service.limits.steps)
    steps = overrides.get("steps", min(max(steps, -(-length // block)), length))
    fitting = {"block_length": block, "steps": steps, "gen_length": length}
    return {name: value for name, value in fitting.items() if has(row, name)}


def _overrides(service: Service, body: schemas.RequestBody) -> dict[str, Any]:
    """The settings that a body contains; null means that one was left out."""
    overrides: dict[str, Any] = {"temperature": body.temperature, "seed": body.seed}
    if body.verifier not in service.verifiers:  # registered ones are not a setting
        overrides["verifier"] = body.verifier
        if body.verifier is not None and body.verifier not in (SELF, *bundled_verifiers()):
            allowed = {*service.verifiers, *bundled_verifiers(), SELF}
            raise SettingsError(unknown_name("verifier", body.verifier, allowed))
    known = schemas.request_settings()
    for name, value in (body.__pydantic_extra__ or {}).items():
        if name in known:
            overrides[name] = value
        elif name in schemas.NEUTRAL:
            if value is not None and value not in schemas.NEUTRAL[name]:
                message = f"{name} is not supported by a diffusion search; leave it out"
                raise ApiError(400, message, param=name, code="unsupported_parameter")
        elif name not in schemas.IGNORED:
            message = unknown_name("field", name, {*type(body).model_fields, *known})
            raise ApiError(400, message, param=name, code="unknown_parameter")
    return {name: value for name, value in overrides.items() if value is not None}
