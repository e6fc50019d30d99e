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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import uvicorn

import s3dlm
from s3dlm.models.base import Model
from s3dlm.search.methods import find_method
from s3dlm.server.app import create_app
from s3dlm.server.limits import bind_socket, server_config
from s3dlm.server.reporting import JsonLines
from s3dlm.server.scheduler import Scheduler
from s3dlm.server.service import Service
from s3dlm.settings import Settings, has
from tests.fakes import fake_model
from tests.server.serve_fake import patient as patient

SMALL = {"gen_length": 24, "steps": 6, "block_length": 24, "particles": 2, "branching": 2}
# One step of it is more than asyncio and the kernel take unread.
LARGE = {"gen_length": 400, "steps": 200, "block_length": 400, "particles": 16, "branching": 2}
JSON = {"content-type": "application/json"}
QUESTION = "Target: 24 Numbers: 6, 4, 12"
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ASK: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": QUESTION}]}


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
    http: httpx.Client
    pool: ThreadPoolExecutor

    @property
    def scheduler(self) -> Scheduler:
        return self.service.scheduler

    def client(self, **options: Any) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, "timeout": 900, **options}
        options.setdefault("http_client", PlainClient())
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def chat(self, **extra: Any) -> Any:
        """The official client's answer to the question."""
        own = {name: extra.pop(name) for name in ("model", "messages", "stream") if name in extra}
        return self.client().chat.completions.create(**{**ASK, **own}, extra_body=extra)

    def post(self, path: str, **body: Any) -> httpx.Response:
        # `json=` would refuse half of a character.
        return self.http.post(path, content=json.dumps(body), headers=JSON)

    def ask(self, prompt: str | list[str], **extra: Any) -> httpx.Response:
        """A completion, as it was answered."""
        return self.post("/v1/completions", **{"model": "fake", "prompt": prompt, **extra})

    def later(self, prompt: str, **extra: Any) -> Future[httpx.Response]:
        """A completion in a thread."""
        return self.pool.submit(self.ask, prompt, **extra)

    def lines(self, prompt: str = QUESTION, **extra: Any) -> list[str]:
        """The trace of a search, line by line."""
        answer = self.post("/v1/search", **{"prompt": prompt, **extra})
        assert answer.status_code == 200, answer.text
        return answer.text.split("\n")[:-1]

    def wait_until_idle(self) -> None:
        wait_for(lambda: self.scheduler.idle)

    def wait_for_queue(self, count: int) -> None:
        """Wait until so many searches are in the queue, all of them tokenised."""
        wait_for(lambda: [bool(each.prepared) for each in self.scheduler.waiting] == [True] * count)


def text(answer: httpx.Response) -> str:
    """The text of a completion."""
    return str(answer.json()["choices"][0]["text"])


def code(answer: httpx.Response) -> tuple[int, str | None]:
    """Status and code of an error, which must have OpenAI's shape."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return answer.status_code, error["code"]


def alone(
    prompt: str, *, task: str | None = None, verifier: Any = None, **own: Any
) -> s3dlm.Result:
    """What the library answers without a server, with the settings that the test server has."""
    method = find_method(own.get("method", "s3"))
    small = {name: value for name, value in SMALL.items() if has(method, name)}
    settings = Settings.from_json({"method": "s3", **small, **own})
    return s3dlm.generate(fake_model(), prompt, task=task, settings=settings, verifier=verifier)


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the log."""
    return [json.loads(JsonLines().format(record)) for record in caplog.records]


def wait_for(condition: Callable[[], Any], seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


class Gate(threading.Event):
    """Holds back the forward passes of a model until it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._reached = threading.Event()

    def wait_until_reached(self) -> None:
        assert self._reached.wait(900)

    def hold(self) -> None:
        self._reached.set()
        self.wait(900)


def changed_model(before: Callable[[Any], None]) -> Model:
    """A fake model that calls a function with the tokens before every forward pass."""
    model = fake_model()
    original = model.denoiser.encode

    def encode(tokens: Any, *others: Any) -> Any:
        before(tokens)
        return original(tokens, *others)

    model.denoiser.encode = encode  # type: ignore[method-assign]
    return model


def held_model() -> tuple[Model, Gate]:
    """A fake model whose forward passes wait for the test."""
    gate = Gate()
    return changed_model(lambda tokens: gate.hold()), gate


@contextlib.contextmanager
def serving(
    model: Model | None = None, *, bound: socket.socket | None = None, send_buffer: int | None = None,
    **configuration: Any,
) -> Iterator[Live]:  # fmt: skip
    """Serve a model for the length of a with block.

    The socket may already have connections in its queue. Over loopback the kernel takes 2.5 MB that nobody reads;
    `send_buffer` is for tests that need less.
    """
    usual = {"defaults": {"method": "s3", **SMALL}, "limits": patient()}
    app = create_app(model or fake_model(), **{**usual, **configuration})
    bound = bound or bind_socket("127.0.0.1", 0)
    if send_buffer is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = uvicorn.Server(server_config(app, app.state.service.limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    try:
        wait_for(lambda: server.started)
        with new_client(url) as http, ThreadPoolExecutor(64) as pool:
            yield Live(url, app.state.service, http, pool)
    finally:
        server.should_exit = True
        thread.join(900)
        assert not thread.is_alive()
        bound.close()


def new_client(url: str, timeout: float = 900) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=timeout, verify=False)


@contextlib.contextmanager
def serve_process(**options: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address; options are those of `serve_fake.main`."""
    here = Path(__file__)
    paths = [str(here.parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, str(here.with_name("serve_fake.py")), json.dumps(options)],
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
def raw_post(live: Live | str, path: str, **body: Any) -> Iterator[socket.socket]:
    """A request on a socket of its own, whose answer is not read unless the test does."""
    content = json.dumps(body).encode()
    with raw_connection(live if isinstance(live, str) else live.url) as client:
        client.sendall(head(path, len(content)) + content)
        yield client


def head(path: str, length: int) -> bytes:
    """The head of a POST request."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def raw_connection(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little is sent unread
    client.settimeout(900)
    client.connect((host, int(port)))
    return client
