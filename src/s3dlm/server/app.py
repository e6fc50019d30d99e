"""The endpoints. Each is a few lines: parse the body, run its searches, format the answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version as package
from platform import python_version
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from starlette.exceptions import HTTPException
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)

from s3dlm import __version__
from s3dlm.errors import S3dlmError
from s3dlm.models.base import Model
from s3dlm.server import openai, parse, reference, service
from s3dlm.server.declared import method_name, most_nfe, population
from s3dlm.server.errors import ApiError, as_api_error, malformed
from s3dlm.server.middleware import Middleware
from s3dlm.server.parse import Parsed
from s3dlm.server.scheduler import Started
from s3dlm.server.schemas import (
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    ErrorResponse,
    ModelCard,
    ModelList,
    OpenAIRequest,
    SearchRequest,
    Version,
)
from s3dlm.server.service import Service
from s3dlm.server.watch import Watch, unless_gone
from s3dlm.trace import TraceEncoder
from s3dlm.viewer.page import CONTENT_POLICY, viewer_files

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse}
    for status in (400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 503, 504)
}
TEXT = {"schema": {"type": "string"}}
EVENT_STREAM: dict[str, Any] = {"text/event-stream": {"schema": {}}}
TRACE = {**EVENT_STREAM, "application/x-ndjson": TEXT}
router = APIRouter(responses=ERRORS)


def create_app(model: Model, *, cors: Sequence[str] = (), **configuration: Any) -> FastAPI:
    """An ASGI app around a loaded model; see `service.build` for the configuration."""
    shared = service.build(model, **configuration)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        shared.scheduler.start()
        yield
        await asyncio.to_thread(shared.scheduler.stop)

    app = FastAPI(
        title="s3dlm",
        version=__version__,
        summary="Inference-time search for diffusion language models behind an OpenAI-compatible API.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's own page loads scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = shared
    app.include_router(router)
    app.add_middleware(Middleware, service=shared)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    for kind in (RequestValidationError, HTTPException, ApiError, S3dlmError):
        app.add_exception_handler(kind, _error_response)
    return app


async def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        told = malformed(error.errors(), error.body)
    elif isinstance(error, HTTPException):
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
        told = ApiError(error.status_code, str(error.detail), code=code)
    else:
        told = as_api_error(error)
    request.state.note["error"] = told.body["error"]["code"]
    return JSONResponse(told.body, told.status, headers=told.headers)


def _service(request: Request) -> Service:
    shared: Service = request.app.state.service
    return shared


@router.get("/v1/models", response_model=ModelList)
async def models(request: Request) -> dict[str, Any]:
    """The model that is served, under each of its names."""
    shared = _service(request)
    return {"object": "list", "data": [_card(shared, name) for name in shared.names]}


@router.get("/v1/models/{name:path}", response_model=ModelCard)
async def one_model(name: str, request: Request) -> dict[str, Any]:
    """The card of the served model."""
    shared = _service(request)
    if name not in shared.names:
        raise ApiError(404, f"the model {name[:80]!r} does not exist here", code="model_not_found")
    return _card(shared, name)


def _card(shared: Service, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": shared.created, "owned_by": "s3dlm"}


@router.post(
    "/v1/chat/completions",
    response_model=ChatCompletion,
    responses={200: {"content": EVENT_STREAM}},
)
async def chat(body: ChatRequest, request: Request) -> Response:
    """Answer a conversation."""
    service = parse.named(_service(request), body.model)
    return await _reply(request, service, body, parse.chat(service, body), chat=True)


@router.post(
    "/v1/completions",
    response_model=Completion,
    responses={200: {"content": EVENT_STREAM}},
)
async def completion(body: CompletionRequest, request: Request) -> Response:
    """Answer one prompt or several, each as a user's message."""
    service = parse.named(_service(request), body.model)
    return await _reply(request, service, body, parse.completion(service, body), chat=False)


async def _reply(
    request: Request, service: Service, body: OpenAIRequest, parsed: Parsed, *, chat: bool
) -> Response:
    reply = openai.Reply(service, parsed, chat, body.n or 1)
    _note(request, parsed)
    watch = _watch(request, parsed, watched=bool(body.stream))
    if not body.stream:
        try:
            whole = await unless_gone(request, reply.whole(watch))
        finally:
            watch.close()
        _count(request, reply)
        return JSONResponse(whole)
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    pieces = reply.pieces(watch, with_usage=with_usage)
    return await _stream(request, watch, pieces, reply=reply)


@router.post("/v1/search", response_class=StreamingResponse, responses={200: {"content": TRACE}})
async def search(body: SearchRequest, request: Request) -> Response:
    """Stream one search: a header, one event per denoising step, the result."""
    shared = parse.named(_service(request), body.model)
    parsed = parse.search(shared, body)
    _note(request, parsed)
    watch = _watch(request, parsed, watched=True)
    lines = body.format == "jsonl"
    return await _stream(request, watch, _trace(shared, parsed, watch, lines), lines=lines)


def _watch(request: Request, parsed: Parsed, *, watched: bool) -> Watch:
    client = "" if request.client is None else request.client.host
    return Watch(_service(request).scheduler, parsed.jobs, watched=watched, client=client)


async def _trace(shared: Service, parsed: Parsed, watch: Watch, lines: bool) -> AsyncIterator[str]:
    """What `s3dlm generate --trace` writes, event by event."""
    encoder, job = TraceEncoder.of(shared.model), parsed.jobs[0]
    write = _line if lines else openai.sse
    yield write(encoder.header(shared.name, job.question, job.task, job.settings, job.infill))
    async for _, event in watch.events():
        if not isinstance(event, Started):
            yield write(encoder.event(event))
    if not lines:
        yield openai.DONE


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n"


async def _stream(
    request: Request,
    watch: Watch,
    pieces: AsyncIterator[str],
    *,
    lines: bool = False,
    reply: openai.Reply | None = None,
) -> Response:
    """Send pieces as they come. Errors before the first are plain responses, later ones events."""
    try:
        await unless_gone(request, watch.begin())
    except BaseException:
        watch.close()
        raise

    async def body() -> AsyncIterator[str]:
        try:
            async for piece in pieces:
                yield piece
        except (ApiError, S3dlmError) as error:
            told, write = as_api_error(error).body, _line if lines else openai.sse
            request.state.note["error"] = told["error"]["code"]
            yield write(told)
        finally:
            watch.close()
            if reply is not None:
                _count(request, reply)

    kind = "application/x-ndjson" if lines else "text/event-stream"
    return StreamingResponse(body(), media_type=kind, headers={"Cache-Control": "no-store"})


def _note(request: Request, parsed: Parsed) -> None:
    """What the log says about a request; the prompt only if the operator wants it."""
    settings = parsed.settings
    request.state.note.update(
        searches=len(parsed.jobs),
        task=parsed.jobs[0].task,
        search=method_name(settings),
        **population(settings),
        steps=settings.steps,
        gen_length=settings.gen_length,
        seed=settings.seed,
    )
    if _service(request).log_prompts:
        request.state.note["prompts"] = [
            job.question if job.infill is None else f"{job.question}\n{job.infill}"
            for job in parsed.jobs
        ]


def _count(request: Request, reply: openai.Reply) -> None:
    usage, metrics = reply.usage.as_json(reply.per_prompt), _service(request).metrics
    metrics.tokens.labels("prompt").inc(usage["prompt_tokens"])
    metrics.tokens.labels("completion").inc(usage["completion_tokens"])
    request.state.note.update(usage)


@router.get("/v1/options")
async def options(request: Request) -> dict[str, Any]:
    """What the page offers: settings, methods, tasks, examples and limits."""
    return _service(request).options()


@router.post("/v1/settings")
async def settings(body: SearchRequest, request: Request) -> dict[str, Any]:
    """The settings that a search would have, and the most forward passes that it could need."""
    service = parse.named(_service(request), body.model)
    made = parse.search(service, body).settings
    return {"settings": made.to_json(), "most_nfe": most_nfe(made, service.model)}


@router.get("/v1/traces")
def traces(request: Request) -> list[dict[str, Any]]:
    """The recorded searches of the runs that the operator named."""
    return _service(request).recorded.listing()


@router.get("/v1/traces/{name:path}", response_class=Response, responses={200: {"content": TRACE}})
def trace(name: str, request: Request) -> Response:
    """One recorded search as JSON lines."""
    found = _service(request).recorded.trace(name)
    if found is None:
        raise ApiError(404, "no such trace; GET /v1/traces lists them", code="not_found")
    return Response(found, media_type="application/x-ndjson")


@router.get("/version", response_model=Version)
async def version(request: Request) -> dict[str, Any]:
    """Versions of the package, Python and torch, and the names of the model."""
    versions = {"version": __version__, "python": python_version(), "torch": package("torch")}
    return {**versions, "models": _service(request).names}


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """The API as a page that loads nothing from elsewhere."""
    headers = {"Content-Security-Policy": reference.CONTENT_POLICY}
    shared = _service(request)
    # Who has no key learns nothing about what is served.
    model = shared.name if shared.api_key is None else None
    page = reference.page(request.app.openapi(), str(request.base_url), model)
    return HTMLResponse(page, headers=headers)


@router.get("/health")
async def health(request: Request) -> Response:
    """200 while the engine works and requests are accepted, else 503 with the reason."""
    problem = _service(request).scheduler.problem
    return JSONResponse({"status": problem or "ok"}, 503 if problem else 200)


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    return Response(
        _service(request).metrics.text(),
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return _file("index.html")


@router.get("/viewer/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    return _file(name)


def _file(name: str) -> Response:
    """One of the page's own files, from a table in memory: no path reaches the disk."""
    found = viewer_files().get(name)
    if found is None:
        raise ApiError(404, "no such file", code="not_found")
    content, kind = found
    headers = {"Content-Security-Policy": CONTENT_POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=kind, headers=headers)
