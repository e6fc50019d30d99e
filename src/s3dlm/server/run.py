"""uvicorn around the app with a graceful end, and what every request passes on its way in.

On the first SIGTERM or Ctrl-C new requests get 503 while running ones finish, for at most the grace
period. A second signal ends the server at once. Nothing that hangs can keep the process alive.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s3dlm.errors import ModelError, SettingsError
from s3dlm.inputs import Registry
from s3dlm.server.limits import quiet_accept_errors, server_config
from s3dlm.server.reporting import (
    ERROR_SHAPES,
    ApiError,
    as_api_error,
    configure_logging,
    log,
    shutting_down,
)
from s3dlm.server.service import Service

HARD_END_SECONDS = 15.0  # after the grace period
# What serves replicas of a model behind one address, by the engine that runs them.
REPLICAS: Registry[Callable[..., None]] = Registry("replicas", "s3dlm.replicas", object)
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
CLIENT_GONE = 499  # as nginx logs it; nobody receives it
OPEN_PATHS = ("/", "/health")  # and the page's own files
PAGE_PREFIX = "/viewer/"
SMALL_BODY = 1 << 16  # bytes that are read whatever others sent: about what a connection buffers
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


class Middleware:
    """Host and key checks, a bounded body, the shape of errors, a log line and metrics.

    Plain ASGI around the whole app, so that it also covers the answers of handlers that fail.
    """

    def __init__(self, app: ASGIApp, service: Service, endpoints: frozenset[str]) -> None:
        self.app, self.service, self.endpoints = app, service, endpoints
        self.held = 0  # bytes of the bodies of all requests under way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, request_id = time.perf_counter(), f"req-{uuid.uuid4().hex[:16]}"
        status = CLIENT_GONE
        request = Request(scope)
        request.state.note, request.state.size = {}, 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()), *HEADERS, (b"x-request-id", request_id.encode()),
                ]  # fmt: skip
            await send(message)

        try:
            self._check(request)
            await self.app(scope, self._bounded(request, receive), answer)
        except ClientDisconnect:
            status = CLIENT_GONE
        except Exception as error:
            told = as_api_error(error, request_id)
            request.state.note["error"] = told.body["error"]["code"]
            if told is not error:
                log("request failed", level=logging.ERROR, with_traceback=True, id=request_id)
            if status == CLIENT_GONE:  # nothing was sent; else the connection is closed
                body = (
                    ERROR_SHAPES[path](told)
                    if (path := scope["path"]) in ERROR_SHAPES
                    else told.body
                )
                response = JSONResponse(body, told.status_code, headers=told.headers)
                await response(scope, receive, answer)
        finally:
            self.held -= request.state.size
            seconds = time.perf_counter() - started
            path = scope["path"]
            endpoint = path if path in self.endpoints else "other"
            self.service.metrics.requests.labels(endpoint, str(status)).inc()
            self.service.metrics.latency.labels(endpoint).observe(seconds)
            if endpoint not in ("/health", "/metrics"):
                log(
                    "request", id=request_id, method=scope["method"], endpoint=endpoint,
                    status=status, seconds=round(seconds, 4), **request.state.note,
                )  # fmt: skip

    def _check(self, request: Request) -> None:
        service, headers, path = self.service, request.headers, request.scope["path"]
        hosts, own_key = service.configuration.hosts, service.configuration.api_key
        if hosts is not None and _host_name(headers.get("host", "")) not in hosts:
            message = "this server accepts only local host names"
            raise ApiError(403, message, code="host_not_allowed")
        if "content-length" in headers and "transfer-encoding" in headers:
            message = "a body has a Content-Length or a Transfer-Encoding, not both"
            raise ApiError(400, message, headers={"Connection": "close"})
        if path in OPEN_PATHS or path.startswith(PAGE_PREFIX):
            if request.method != "GET":  # its body is not read
                message, close = "this path answers GET", {"Connection": "close"}
                raise ApiError(405, message, code="method_not_allowed", headers=close)
            return
        if own_key is not None:
            given = headers.get("authorization") or f"Bearer {headers.get('x-api-key', '')}"
            scheme, _, key = given.partition(" ")
            # Digests have one length, so that the comparison tells nothing of the key's.
            sent = hashlib.sha256(key.strip().encode("latin-1")).digest()
            same = hmac.compare_digest(sent, hashlib.sha256(own_key.encode()).digest())
            if scheme.lower() != "bearer" or not same:
                raise ApiError(
                    401,
                    "the API key is missing or wrong; send Authorization: Bearer KEY (or x-api-key: KEY)",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        if request.method == "POST":
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise ApiError(415, "send JSON, with Content-Type: application/json")
            if service.scheduler.draining:
                raise shutting_down()

    def _bounded(self, request: Request, receive: Receive) -> Receive:
        """`receive` with limits on the body: its size, also in sum with the bodies of others, and the
        time until all of it is there."""
        limits, state, whole = self.service.limits, request.state, False
        deadline = asyncio.get_running_loop().time() + limits.body_seconds
        announced = request.headers.get("content-length", "")

        def check(size: int, held: int) -> None:
            if size > limits.body:
                message = f"the body is larger than {limits.body} bytes"
                raise ApiError(413, message, code="body_too_large")
            if size > SMALL_BODY and held > limits.bodies:
                message = "too many large bodies at once; try again in 5 s, or send a smaller one"
                raise ApiError(503, message, code="bodies_too_large", retry_after=5)

        if announced.isdigit():
            check(int(announced), self.held + int(announced))

        async def bounded() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = "the body did not arrive in time"
                raise ApiError(408, late, code="body_timeout") from None
            more = len(message.get("body", b""))
            state.size, self.held = state.size + more, self.held + more
            check(state.size, self.held)
            whole = not message.get("more_body", False)
            return message

        return bounded


def _host_name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lstrip("[").lower()
    return host.partition(":")[0].lower()


class GracefulServer(uvicorn.Server):
    """A uvicorn server that drains before it ends, and that ends with its engine."""

    def __init__(
        self, config: uvicorn.Config, service: Service, grace: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.scheduler, self.grace, self.ready = service.scheduler, grace, ready
        self._until: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        quiet_accept_errors(asyncio.get_running_loop())
        await super().startup(sockets)
        if self.started:
            self.ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._until is not None:
            self.should_exit = self.force_exit = True
            return
        self._until = time.monotonic() + self.grace
        self.scheduler.draining = True
        log("draining", signal=signal.Signals(sig).name, load=self.scheduler.load)
        end_by_force(self.grace + HARD_END_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        late = self._until is not None and time.monotonic() > self._until
        if late or self.scheduler.failed:
            self.scheduler.stop(wait=False)
            self.should_exit = True
        elif self._until is not None and self.scheduler.idle:
            self.should_exit = True
        return await super().on_tick(counter)


def end_by_force(seconds: float) -> None:
    """End the process after so long, whatever still hangs: a model, a verifier, a client."""

    def end() -> None:
        log("ended by force", level=logging.ERROR, seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def network(address: str) -> str:
    """The address or network of a proxy, checked."""
    try:
        return str(ipaddress.ip_network(address))
    except ValueError as error:
        raise SettingsError(
            f"proxy={address!r} is not allowed ({error}); give an address such as 127.0.0.1, or a "
            "network such as 10.0.0.0/8"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, api_key: str | None, *, insecure: bool) -> None:
    """Refuse to be reachable from a network by accident."""
    if api_key is not None and len(api_key) < 16 and not insecure:
        raise SettingsError(
            f"the API key has {len(api_key)} characters; use at least 16, for example from "
            '`python -c "import secrets; print(secrets.token_urlsafe())"`'
        )
    if api_key is None and not insecure and not is_loopback(host):
        raise SettingsError(
            f"host={host!r} is reachable from other machines and there is no API key; set --api-key or "
            "S3DLM_API_KEY, bind to 127.0.0.1, or pass --insecure"
        )


def allowed_hosts(host: str, api_key: str | None) -> frozenset[str] | None:
    """Without a key, a web page must not reach a local server under its own host name."""
    return LOCAL_NAMES | {host} if api_key is None and is_loopback(host) else None


def serve_until_signal(
    app: FastAPI,
    bound: socket.socket,
    *,
    grace: float,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until a signal; `announce` gets the address once the server answers."""
    configure_logging()
    service: Service = app.state.service
    host, port = bound.getsockname()[:2]

    def ready() -> None:
        log("serving", host=host, port=port, model=service.name)
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    GracefulServer(server_config(app, service.limits), service, grace, ready).run(sockets=[bound])
    if service.scheduler.failed:
        raise ModelError("the engine failed, so the server has ended; its log says why")
    log("stopped")
