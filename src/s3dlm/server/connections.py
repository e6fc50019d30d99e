"""Bounds on connections, which uvicorn leaves open: how many, how long they may be idle, how long
they may take to send a header, and how long they may refuse to read what we send.

A connection beyond a bound is cut, not closed: closing waits until the client has read everything.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from s3dlm.server.limits import Limits
from s3dlm.server.telemetry import log

BACKLOG = 64  # connections that are accepted in one go
RESERVED = BACKLOG + 48  # file descriptors for them, and for the model, the log and libraries
SECONDS_BETWEEN_WARNINGS = 10.0


class BoundedProtocol(H11Protocol):
    """One connection, checked about once a second."""

    def __init__(self, *arguments: Any, limits: Limits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.limits = limits
        self._period = min(
            1.0, limits.header_seconds / 4, limits.idle_seconds / 4, limits.send_seconds / 4
        )
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since = self._moved = self.loop.time()
        self._between_requests = False  # a new connection has to send its first request soon
        self._unsent = 0

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._make_room()
        self._timer = self.loop.call_later(self._period, self._check)

    def _make_room(self) -> None:
        """Cut the connection that has been idle longest, first of those that never had a request.

        Many connections may come before the first that was cut is gone: it does not count any more.
        """
        left = [one for one in self.connections if not one.transport.is_closing()]
        if len(left) <= self.limits.connections:
            return
        idle = [one for one in left if isinstance(one, BoundedProtocol) and one.idle]
        chosen = min(idle, key=lambda one: (one._between_requests, one._idle_since), default=self)
        chosen.transport.abort()

    def _check(self) -> None:
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if unsent != self._unsent or not unsent:
            self._unsent, self._moved = unsent, now
        if unsent:
            late = now - self._moved > self.limits.send_seconds
        else:
            limit = (
                self.limits.idle_seconds if self._between_requests else self.limits.header_seconds
            )
            late = self.idle and now - self._idle_since > limit
        if late:
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(self._period, self._check)

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

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if most == resource.RLIM_INFINITY else max(8, min(wanted, most - RESERVED))


def quiet_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Report a lack of file descriptors now and then: asyncio reports it for every attempt."""
    last = 0.0

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        if not isinstance(context.get("exception"), OSError) or "accept" not in context["message"]:
            loop.default_exception_handler(context)
        elif time.monotonic() - last > SECONDS_BETWEEN_WARNINGS:
            last = time.monotonic()
            log("connections cannot be accepted", level=40, reason=str(context["exception"]))

    loop.set_exception_handler(handle)
