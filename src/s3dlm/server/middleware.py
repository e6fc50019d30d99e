"""What every request passes: host and key checks, bounded body, error shape, log line, metrics.

Plain ASGI around the whole app, so that it also covers the answers of handlers that fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
import uuid
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s3dlm.server import errors
from s3dlm.server.errors import ApiError
from s3dlm.server.service import Service
from s3dlm.server.telemetry import log
from s3dlm.server.watch import ClientGone

CLIENT_GONE = 499  # as nginx logs it; nobody receives it
OPEN_PATHS = ("/", "/docs", "/health")  # and the page's own files
PAGE_PREFIX = "/viewer/"
ENDPOINTS = frozenset(
    {
        "/",
        "/docs",
        "/health",
        "/metrics",
        "/version",
        "/v1/models",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/search",
        "/v1/options",
        "/v1/settings",
        "/v1/traces",
    }
)
HEADERS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


class Middleware:
    """ASGI middleware; see the module's docstring."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, request_id = time.perf_counter(), f"req-{uuid.uuid4().hex[:16]}"
        note: dict[str, Any] = {}
        scope.setdefault("state", {}).update(note=note, request_id=request_id)
        status = CLIENT_GONE

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [*HEADERS, (b"x-request-id", request_id.encode())]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        try:
            await self._handle(scope, receive, answer)
        except ClientGone:
            status = CLIENT_GONE
        finally:
            self._record(scope, status, time.perf_counter() - started, request_id, note)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app, or refuse it; an unexpected exception is a plain 500."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            self._check(scope, headers)
            if scope["method"] == "POST":
                receive = await self._read(headers, receive)
            await self.app(scope, receive, watched)
        except ClientGone:
            raise
        except Exception as error:
            told = errors.as_api_error(error, scope["state"]["request_id"])
            if told.status == 500 and not isinstance(error, ApiError):
                log(
                    "request failed", level=40, with_traceback=True, id=scope["state"]["request_id"]
                )
            if not begun:  # else the connection is closed
                response = JSONResponse(told.body, told.status, headers=told.headers)
                await response(scope, receive, send)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self.service.hosts is not None and _bare(host) not in self.service.hosts:
            raise ApiError(
                403, "this server accepts only local host names", code="host_not_allowed"
            )
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(PAGE_PREFIX):
            return
        self._check_key(headers.get(b"authorization", b""))
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind != b"application/json":
                raise ApiError(415, "send JSON, with Content-Type: application/json")
            if self.service.scheduler.draining:
                raise errors.shutting_down()

    def _check_key(self, authorization: bytes) -> None:
        if self.service.api_key is None:
            return
        scheme, _, given = authorization.partition(b" ")
        # Digests have one length, so that the comparison tells nothing of the key's.
        same = hmac.compare_digest(_digest(given.strip()), _digest(self.service.api_key.encode()))
        if scheme.lower() != b"bearer" or not same:
            raise ApiError(
                401,
                "the API key is missing or wrong; send Authorization: Bearer KEY",
                kind="authentication_error",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """The whole body, or an error; afterwards `receive` only reports a disconnect."""
        limit = self.service.limits.body
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        body = bytearray()
        try:
            async with asyncio.timeout(self.service.limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        raise _too_large(limit)
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="body_timeout") from None
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        return replay

    def _record(
        self, scope: Scope, status: int, seconds: float, request_id: str, note: dict[str, Any]
    ) -> None:
        path = scope["path"]
        endpoint = path if path in ENDPOINTS else "other"
        self.service.metrics.requests.labels(endpoint, str(status)).inc()
        self.service.metrics.latency.labels(endpoint).observe(seconds)
        if endpoint not in ("/health", "/metrics"):
            log(
                "request",
                id=request_id,
                method=scope["method"],
                endpoint=endpoint,
                status=status,
                seconds=round(seconds, 4),
                **note,
            )


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _bare(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lstrip("[").lower()
    return host.partition(":")[0].lower()
