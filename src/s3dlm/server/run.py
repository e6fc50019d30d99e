"""uvicorn around the app, with a graceful end.

On the first SIGTERM or Ctrl-C new requests get 503 while running ones finish, for at most the grace
period. A second signal ends the server at once. Nothing that hangs can keep the process alive.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from s3dlm.errors import ModelError, SettingsError
from s3dlm.server.connections import (
    BACKLOG,
    BoundedProtocol,
    connection_limit,
    quiet_accept_errors,
)
from s3dlm.server.limits import Limits
from s3dlm.server.service import Service
from s3dlm.server.telemetry import configure, log

SHUTDOWN_SECONDS = 3  # for connections that are still open after the grace period
HARD_END_SECONDS = 15.0  # after the grace period
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class GracefulServer(uvicorn.Server):
    """A uvicorn server that drains before it ends, and that ends with its engine."""

    def __init__(
        self, config: uvicorn.Config, service: Service, grace: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.service, self.grace, self.ready = service, grace, ready
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
        self.service.scheduler.drain()
        end_after(self.grace + HARD_END_SECONDS)
        log("draining", signal=signal.Signals(sig).name, load=self.service.scheduler.load)

    async def on_tick(self, counter: int) -> bool:
        scheduler = self.service.scheduler
        late = self._until is not None and time.monotonic() > self._until
        if late or scheduler.failed:
            scheduler.stop(wait=False)
        if late or scheduler.failed or (self._until is not None and scheduler.idle):
            self.should_exit = True
        return await super().on_tick(counter)


def end_after(seconds: float) -> None:
    """End the process by then, whatever still hangs: a model, a verifier, a client."""

    def end() -> None:
        log("ended by force", level=40, seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def is_loopback(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
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


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket, bound before a large model is loaded in case the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only on sockets that name TCP; otherwise a small piece
    # waits until the client has acknowledged the previous one, which takes 40 ms.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere this would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
        return bound
    except OSError as error:
        bound.close()
        raise SettingsError(
            f"host={host!r} with port={port} cannot be listened on: {error.strerror}; choose another "
            "--port (0 picks a free one) or --host"
        ) from error


def serve(
    app: FastAPI,
    bound: socket.socket,
    *,
    grace: float,
    announce: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until a signal; `announce` gets the address once the server answers."""
    configure()
    service: Service = app.state.service
    host, port = bound.getsockname()[:2]

    def ready() -> None:
        log("serving", host=host, port=port, model=service.name)
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    GracefulServer(server_config(app), service, grace, ready).run(sockets=[bound])
    if service.scheduler.failed:
        raise ModelError("the engine failed, so the server has ended; its log says why")
    log("stopped")


def server_config(app: FastAPI) -> uvicorn.Config:
    """uvicorn with this server's bounds on connections."""
    limits: Limits = app.state.service.limits
    limits = replace(limits, connections=connection_limit(limits.connections))
    return uvicorn.Config(
        app,
        http=partial(BoundedProtocol, limits=limits),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=math.ceil(limits.idle_seconds) + 1,  # BoundedProtocol is first
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        lifespan="on",
    )
