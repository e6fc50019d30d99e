"""A real server on a real socket for tests: uvicorn in a thread, a free port, a fake model."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import uvicorn

from s3dlm.models.base import Model
from s3dlm.server.app import create_app
from s3dlm.server.run import bind_socket, server_config
from s3dlm.server.service import Service

SMALL = {"gen_length": 24, "steps": 6, "block_length": 24, "particles": 2, "branching": 2}


class PlainClient(openai.DefaultHttpxClient):
    """Reads no certificates, which takes longer than most requests here; closed when forgotten. It keeps
    no connection: one that the garbage collector finds before its client would be reported as lost."""

    def __init__(self) -> None:
        super().__init__(verify=False, limits=httpx.Limits(max_keepalive_connections=0))

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Live:
    """A running server."""

    url: str
    service: Service

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, "timeout": 120, **options}
        options.setdefault("http_client", PlainClient())
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def http(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, verify=False, **options)

    def wait_until_idle(self) -> None:
        wait_for(lambda: self.service.scheduler.idle)

    def wait_for_queue(self, count: int) -> None:
        """Wait until so many searches are in the queue, all of them tokenised."""
        waiting = self.service.scheduler
        wait_for(lambda: [one.prepared is not None for one in waiting._waiting] == [True] * count)


def wait_for(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


@contextlib.contextmanager
def serving(
    model: Model, *, send_buffer: int | None = None, **configuration: Any
) -> Iterator[Live]:
    """Serve a model for the length of a with block.

    Over loopback the kernel takes 2.5 MB that nobody reads; `send_buffer` is for tests that need less.
    """
    with bind_socket("127.0.0.1", 0) as bound:
        if send_buffer is not None:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        with serving_on(bound, model, **configuration) as live:
            yield live


@contextlib.contextmanager
def serving_on(bound: socket.socket, model: Model, **configuration: Any) -> Iterator[Live]:
    """Serve on a socket that may already have connections in its queue."""
    app = create_app(model, **{"defaults": SMALL, **configuration})
    server = uvicorn.Server(server_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield Live(f"http://127.0.0.1:{bound.getsockname()[1]}", app.state.service)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@contextlib.contextmanager
def serve_process(
    *arguments: str, script: str = "serve_fake.py"
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    here = Path(__file__)
    paths = [str(here.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, str(here.with_name(script)), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, process.communicate()[1]
        yield process, address
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def raw_post(live: Live | str, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A request on a socket of its own, whose answer is not read unless the test does."""
    url = live if isinstance(live, str) else live.url
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with raw_connection(url) as client:
        client.sendall(head.encode() + content)
        yield client


def raw_connection(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little is sent unread
    client.settimeout(60)
    client.connect((host, int(port)))
    return client
