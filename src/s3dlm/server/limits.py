"""How much one request may use, how much the server accepts, and what a connection may do."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import os
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import uvicorn
from pydantic import ConfigDict
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from s3dlm.diffusion.infill import Template
from s3dlm.errors import PromptError, SettingsError
from s3dlm.models.base import Model
from s3dlm.server.reporting import log
from s3dlm.settings import Settings

BACKLOG = 64  # connections that are accepted in one go
QUEUE = 1024  # connections that wait in the kernel until they are accepted
SHUTDOWN_SECONDS = 3  # for connections that are still open after the grace period
RESERVED = BACKLOG + 48  # file descriptors for them, and for the model, the log and libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The server's bounds; a request beyond one of them is refused with the limit's value."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # where they are read from a file

    # one request
    length: int = 4096  # gen_length
    children: int = 64  # particles times branching
    steps: int = 1024
    texts: int = 2048  # verified in one step: choices × children × look_aheads
    nfe: int = 100_000  # forward passes that one search can need
    choices: int = 16  # searches per request: prompts times n
    memo: int = 512  # MiB in which one search keeps what the model made of canvases
    characters: int = 16  # of a prompt, per token of the model's context
    seconds: float = 300.0  # from arrival to answer
    body: int = 1 << 20  # bytes
    body_seconds: float = 30.0  # from the first to the last byte of a body
    # all requests
    bodies: int = 64 << 20  # bytes of bodies beyond which only small ones are read
    waiting: int = 128  # searches in the queue
    running: int = 64  # searches that take turns
    memos: int = 4096  # MiB that those may keep together; others wait
    batch: int = 128  # canvases per forward pass
    unread: int = 8  # steps a search may be ahead of its reader before it pauses
    verifier_seconds: float = 10.0  # one call of a verifier, with all its texts
    verifier_calls: int = 4  # of one verifier at work at once, hung ones included
    stall_seconds: float = 120.0  # one round of the engine before /health reports it
    # connections
    connections: int = 512
    header_seconds: float = 10.0  # from the first byte of a request to the end of its header
    idle_seconds: float = 30.0  # between requests
    send_seconds: float = 20.0  # without the client reading anything

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise SettingsError(
                    f"limit {field.name}={value!r} is not allowed; give a number above 0"
                )

    def check(
        self, settings: Settings, model: Model, choices: int = 1, infill: str | None = None
    ) -> None:
        """Refuse settings of a search, of which a request makes so many, and holes beyond a limit."""
        children = settings.search.size * settings.search.children
        most_nfe = settings.most_nfe_in_blocks(model.denoiser.causal_block)
        tokens = 0 if infill is None else sum(Template.parse(infill).lengths)
        if not settings.search.budget:  # holes may be longer than an answer
            most_nfe *= max(1, -(-tokens // settings.decoding.gen_length))
        for name, value, most in (
            ("gen_length", settings.decoding.gen_length, self.length),
            ("the tokens in the holes of infill", tokens, self.length),
            ("particles × branching", children, self.children),
            ("steps", settings.decoding.steps, self.steps),
            ("the forward passes that it can need", most_nfe, self.nfe),
            ("n × texts per step", choices * settings.search.texts_at_once, self.texts),
            ("memo", settings.decoding.memo, min(self.memo, self.memos)),
        ):
            if value > most:
                raise SettingsError(
                    f"{name}={value} is more than this server's limit of {most}; give a smaller value"
                )

    def check_prompt(self, model: Model, characters: int) -> None:
        """Refuse a prompt that cannot fit before anyone spends time on tokenising it."""
        most = self.characters * model.denoiser.context
        if characters > most:
            raise PromptError(
                f"the prompt has {characters} characters, but {model.name} reads at most "
                f"{model.denoiser.context} tokens; shorten the prompt to at most {most} characters"
            )


def share(places: int) -> int:
    """What one address may take: it leaves a quarter to others."""
    return places - places // 4


class BoundedProtocol(H11Protocol):
    """A connection with bounds that uvicorn lacks, checked about once a second.

    A connection beyond a bound is cut, not closed: closing waits until the client has read everything.
    """

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.limits = limits
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since = self._moved = self.loop.time()
        self._between_requests = False  # a new connection has to send its first request soon
        self._unsent = 0

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def address(self) -> str | None:
        return self.client[0] if self.client else None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._check()

    def _make_room(self) -> None:
        """Cut the connection that has been idle longest, first of those that never had a request. One
        whose request has not arrived in full counts as idle.

        Many connections may come before the first that was cut is gone: it does not count any more.
        """
        others = [other for other in self.connections if isinstance(other, BoundedProtocol)]
        left = [other for other in others if not other.transport.is_closing()]
        if len(left) <= self.limits.connections:
            left = [other for other in left if other.address == self.address]
            if len(left) <= share(self.limits.connections):
                return
        log("too many connections", level=logging.WARNING, seldom=True, address=self.address)
        idle = [other for other in left if other.idle or other.cycle.more_body]
        first = min(
            idle, key=lambda other: (other._between_requests, other._idle_since), default=self
        )
        first.transport.abort()

    def _check(self) -> None:
        limits, now, unsent = self.limits, self.loop.time(), self.transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent, self._moved = unsent, now
        allowed = limits.idle_seconds if self._between_requests else limits.header_seconds
        if now - self._moved > limits.send_seconds or (
            self.idle and not unsent and now - self._idle_since > allowed
        ):
            self.transport.abort()
            return
        period = min(4.0, limits.header_seconds, limits.idle_seconds, limits.send_seconds) / 4
        self._timer = self.loop.call_later(period, self._check)

    def data_received(self, data: bytes) -> None:
        if self.idle and self._between_requests:
            self._idle_since, self._between_requests = self.loop.time(), False
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._idle_since, self._between_requests = self.loop.time(), True
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)


def connection_limit(wanted: int) -> int:
    """As many connections as the process has file descriptors for."""
    if sys.platform == "win32":
        return wanted
    import resource

    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(8, descriptors - RESERVED))


def server_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """uvicorn with these bounds on connections."""
    limits = replace(limits, connections=connection_limit(limits.connections))
    return uvicorn.Config(
        app,
        http=partial(BoundedProtocol, limits=limits),  # type: ignore[arg-type]
        ws="none",
        proxy_headers=False,  # whom to believe is said to the app
        loop="asyncio",  # whatever else is installed
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=math.ceil(limits.idle_seconds) + 1,  # BoundedProtocol is first
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )


class ListeningSocket(socket.socket):
    """Its queue is long, however few connections asyncio accepts in one go: a client that finds a full
    queue tries again only after a second."""

    def listen(self, backlog: int = 0, /) -> None:
        super().listen(max(backlog, QUEUE))


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket, bound before a large model is loaded in case the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only on sockets that name TCP; otherwise a small piece
    # waits until the client has acknowledged the previous one, which takes 40 ms.
    bound = ListeningSocket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere this would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen()
        return bound
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"host={host!r} with port={port} is not available: {error.strerror}; choose another "
            "--port (0 picks a free one) or --host"
        ) from error


def quiet_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Report a lack of file descriptors now and then: asyncio reports it for every attempt."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and "accept" in context["message"]:
            what = "connections cannot be accepted"
            log(what, level=logging.ERROR, seldom=True, reason=str(error))
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
