"""The endpoints. Each is a few lines: parse the body, run its searches, format the answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from s3dlm import __version__
from s3dlm.errors import S3dlmError
from s3dlm.inputs import Registry
from s3dlm.models.base import Model
from s3dlm.server import openai, schemas
from s3dlm.server.parse import Parsed, openai_searches, watched_search
from s3dlm.server.reporting import ApiError, as_api_error
from s3dlm.server.run import Middleware, network
from s3dlm.server.scheduler import Started
from s3dlm.server.service import Configuration, Service, example_problems
from s3dlm.server.streaming import Watch, streamed, unless_disconnected
from s3dlm.trace import TraceEncoder
from s3dlm.viewer.page import CONTENT_POLICY, viewer_files

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse}
    for status in (400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 500, 503, 504)
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {}}}}
}
JSON_LINES = "application/x-ndjson"
TRACED: dict[int | str, dict[str, Any]] = {
    200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}}
}
endpoints = APIRouter(responses=ERRORS)
DIALECTS: Registry[APIRouter] = Registry("dialect", "s3dlm.dialects", APIRouter)


def create_app(model: Model, **options: Any) -> FastAPI:
    """An ASGI app around a loaded model.

    Args:
        model: The model.
        options: See `Configuration`.
    """
    service = Service(model, given := Configuration(**options))

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.scheduler.start()
        yield
        await asyncio.to_thread(service.scheduler.stop)

    app = FastAPI(
        title="s3dlm",
        version=__version__,
        summary="Inference-time search for diffusion language models behind an OpenAI-compatible API.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.service = service
    routers = [endpoints, *(DIALECTS.find(name) for name in DIALECTS)]
    for each in routers:
        app.include_router(each)
    routes = [route for each in routers for route in each.routes]
    paths = frozenset(str(getattr(route, "path", "")) for route in routes)
    app.add_middleware(Middleware, service=service, endpoints=paths)
    if given.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(given.cors),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "x-api-key"],
        )
    if given.proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[*map(network, given.proxies)])
    for kind in (RequestValidationError, HTTPException, S3dlmError):
        app.add_exception_handler(kind, _refuse)
    return app


async def _refuse(request: Request, error: Exception) -> Response:
    """Have the middleware tell the client."""
    if isinstance(error.__cause__, ClientDisconnect):
        raise error.__cause__  # FastAPI takes it for a mistake in the body
    raise as_api_error(error)


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Shared = Annotated[Service, Depends(_service)]


@endpoints.get("/v1/models")
async def models(service: Shared) -> dict[str, Any]:
    """The model that is served, under each of its names."""
    return {"object": "list", "data": [_card(service, name) for name in service.names]}


@endpoints.get("/v1/models/{name:path}")
async def model_card(name: str, service: Shared) -> dict[str, Any]:
    """The card of the served model."""
    return _card(service, service.named(name).name)


def _card(service: Service, name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": service.created, "owned_by": "s3dlm"}


@endpoints.post("/v1/chat/completions", response_model=schemas.Answer, responses=STREAMED)
async def chat(body: schemas.ChatRequest, request: Request, service: Shared) -> Response:
    """Answer a conversation."""
    return await reply_to(request, service, body)


@endpoints.post("/v1/completions", response_model=schemas.Answer, responses=STREAMED)
async def completion(
    body: schemas.CompletionRequest, request: Request, service: Shared
) -> Response:
    """Answer one prompt or several, each as a user's message."""
    return await reply_to(request, service, body)


async def reply_to(
    request: Request,
    service: Service,
    body: schemas.ChatRequest | schemas.CompletionRequest,
    shape: type[openai.Reply] = openai.Reply,
) -> Response:
    parsed = openai_searches(service, body)
    reply = shape(parsed, body, request.state.note)
    watch = _watch(request, parsed, watched=bool(body.stream))
    if body.stream:
        return await streamed(request, watch, reply.pieces(watch), reply.failure)
    return JSONResponse(await unless_disconnected(request, watch, reply.whole(watch)))


@endpoints.post("/v1/search", response_class=StreamingResponse, responses=TRACED)
async def search(body: schemas.SearchRequest, request: Request, service: Shared) -> Response:
    """Stream one search as a trace, in JSON lines: a header, one line per denoising step, the result."""
    parsed = watched_search(service, body)
    watch = _watch(request, parsed, watched=True)

    async def lines() -> AsyncIterator[str]:
        """What `s3dlm generate --trace` writes, event by event."""
        encoder, job = TraceEncoder(service.model), parsed.jobs[0]
        told = (parsed.service.name, job.question, job.task, job.settings, job.infill)
        async for _, event in watch.events():
            data = encoder.header(*told) if isinstance(event, Started) else encoder.event(event)
            yield openai.json_line(data)

    def failure(told: ApiError) -> str:
        return openai.json_line(told.body)

    return await streamed(request, watch, lines(), failure, JSON_LINES)


def _watch(request: Request, parsed: Parsed, *, watched: bool) -> Watch:
    """Queue the searches of a request, and note for the log what they are."""
    service, settings = parsed.service, parsed.settings
    if parsed.outside is not None:
        example = example_problems(service.model.defaults.tasks)[0]["prompt"]
        message = f"{parsed.outside}; ask, for example, {example!r}, or give the task 'none'"
        raise ApiError(
            400, f"{message} to see what it writes all the same", code="unknown_question"
        )
    request.state.note.update(
        searches=len(parsed.jobs),
        task=parsed.jobs[0].task,
        search=settings.method,
        **openai.population(settings),
        steps=settings.decoding.steps,
        gen_length=settings.decoding.gen_length,
        seed=settings.decoding.seed,
    )
    client = "" if request.client is None else request.client.host
    return Watch(service.scheduler, parsed.jobs, watched=watched, client=client)


@endpoints.get("/v1/options")
async def page_options(service: Shared) -> dict[str, Any]:
    """What the page offers: settings, methods, tasks, examples and limits."""
    return service.options()


@endpoints.post("/v1/settings")
async def search_settings(body: schemas.SearchRequest, service: Shared) -> dict[str, Any]:
    """The settings that a search would have, and the most forward passes that it could need."""
    parsed = watched_search(service, body)
    (job,), known = parsed.jobs, parsed.outside is None
    most = job.settings.most_nfe_in_blocks(service.model.denoiser.causal_block)
    return {"settings": job.settings.to_json(), "most_nfe": most, "task": job.task, "known": known}


@endpoints.get("/health")
async def health(service: Shared) -> Response:
    """200 while the engine works and requests are accepted, else 503 with the reason."""
    problem = service.scheduler.problem
    return JSONResponse({"status": problem or "ok"}, 503 if problem else 200)


@endpoints.get("/metrics", response_class=PlainTextResponse)
async def metrics(service: Shared) -> Response:
    """Prometheus' text format."""
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Response(generate_latest(service.metrics), media_type=kind)


@endpoints.get("/", include_in_schema=False)
@endpoints.get("/viewer/{name}", include_in_schema=False)
async def page_file(name: str = "index.html") -> Response:
    """One of the page's own files, from a table in memory: no path reaches the disk."""
    if name not in viewer_files():
        raise ApiError(404, "no such file", code="not_found")
    content, kind = viewer_files()[name]
    headers = {"Content-Security-Policy": CONTENT_POLICY, "Cache-Control": "no-cache"}
    return Response(content, media_type=kind, headers=headers)
