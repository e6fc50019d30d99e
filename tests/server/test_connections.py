"""Sockets that do nothing, send half a header or never read: bounded, and no outage for others."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator

import httpx
import pytest

from s3dlm.server import connections
from s3dlm.server.limits import Limits
from tests.fakes import fake_model
from tests.server.live import (
    Live,
    raw_connection,
    raw_post,
    serve_process,
    serving,
    wait_for,
)

HALF = b"GET /health HTTP/1.1\r\nHost: local"
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = {"gen_length": 400, "steps": 200, "block_length": 400, "particles": 32, "branching": 2}


@pytest.fixture(scope="module")
def strict() -> Iterator[Live]:
    limits = Limits(header_seconds=0.4, idle_seconds=0.4, connections=4)
    with serving(fake_model(), limits=limits) as live:
        yield live


def is_cut(client: socket.socket) -> bool:
    """Whether the server ends the connection; waits for it."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half a header"])
def test_a_request_that_never_comes_is_cut(strict: Live, sent: bytes) -> None:
    with raw_connection(strict.url) as client:
        client.sendall(sent)
        assert is_cut(client)


@pytest.mark.parametrize("sent", [b"", HALF], ids=["nothing", "half a header"])
def test_a_connection_is_cut_after_its_last_request(strict: Live, sent: bytes) -> None:
    with raw_connection(strict.url) as client:
        client.sendall(WHOLE)
        answer = client.recv(10_000)
        while not answer.endswith(b"}"):
            answer += client.recv(10_000)
        client.sendall(sent)
        assert is_cut(client)


def test_idle_connections_make_room_for_new_ones() -> None:
    limits = Limits(connections=4)
    with serving(fake_model(), limits=limits) as live, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(raw_connection(live.url)) for _ in range(10)]
        for _ in range(3):
            with live.http() as http:
                assert http.get("/health").status_code == 200
        assert is_cut(idle[0])


def test_a_busy_connection_is_not_cut_for_a_new_one() -> None:
    slow = {"gen_length": 120, "steps": 120, "block_length": 120, "particles": 4, "branching": 4}
    body = {"model": "fake", "prompt": "x", **slow}
    with (
        serving(fake_model(), limits=Limits(connections=2)) as live,
        raw_post(live, "/v1/completions", body) as busy,
        contextlib.ExitStack() as stack,
    ):
        wait_for(lambda: live.service.scheduler.load["running"] == 1)
        for _ in range(10):
            stack.enter_context(raw_connection(live.url))
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_connections_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for soft, limit in ((128, 16), (1024, 512), (resource.RLIM_INFINITY, 512), (20, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert connections.connection_limit(512) == limit


def test_no_outage_and_no_flood_of_log_lines_without_descriptors() -> None:
    """140 idle sockets against a process that may open 128 files."""
    with serve_process("--descriptors", "128") as (process, address):
        with contextlib.ExitStack() as stack:
            for _ in range(140):
                stack.enter_context(raw_connection(address))
            for _ in range(5):
                with httpx.Client(base_url=address, timeout=60) as http:
                    assert http.get("/health").status_code == 200
                    body = {"model": "fake", "prompt": "x", "gen_length": 8, "steps": 2}
                    answer = http.post("/v1/completions", json={**body, "block_length": 8})
                    assert answer.status_code == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(log.splitlines()) < 30


def test_clients_that_never_read_cannot_keep_the_process_alive() -> None:
    with (
        serve_process("--grace", "1") as (process, address),
        contextlib.ExitStack() as stack,
    ):
        for _ in range(8):
            stack.enter_context(raw_post(address, "/v1/search", {"prompt": "x", **LARGE}))
        with httpx.Client(base_url=address, timeout=60) as http:
            wait_for(lambda: "s3dlm_searches_running 8.0" in http.get("/metrics").text)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=100)
    assert process.returncode == 0


def test_the_process_ends_with_its_engine() -> None:
    with serve_process("--panic", "!") as (process, address):
        with httpx.Client(base_url=address, timeout=60) as http:
            answer = http.post("/v1/completions", json={"model": "fake", "prompt": "now!"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failed")
        _, log = process.communicate(timeout=100)
    assert process.returncode == 1
    assert '"event": "engine failed"' in log
    assert "now!" not in log
