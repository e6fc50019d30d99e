"""Sockets that do nothing, send half a header or never read: bounded, and no outage for others."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import socket

import pytest

from s3dlm.server import reporting
from s3dlm.server.limits import bind_socket, connection_limit
from tests.server.live import (
    LARGE,
    code,
    head,
    held_model,
    logged,
    new_client,
    patient,
    raw_connection,
    raw_post,
    serve_process,
    serving,
    wait_for,
)

HALF = b"GET /health HTTP/1.1\r\nHost: local"
WHOLE = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def is_cut(client: socket.socket) -> bool:
    """Whether the server ends the connection, after what it may have answered; waits for it."""
    try:
        while client.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def was_cut(client: socket.socket) -> bool:
    """Whether the server has ended the connection already."""
    client.setblocking(False)
    try:
        return is_cut(client)
    except BlockingIOError:
        return False


def after_a_request(url: str) -> socket.socket:
    """A connection whose request was answered: a busy machine may be too slow for its own bounds."""
    while True:
        client, answer = raw_connection(url), b""
        with contextlib.suppress(ConnectionError):
            client.sendall(WHOLE)
            while received := client.recv(10_000):
                answer += received
                if answer.endswith(b"}"):
                    return client
        client.close()


def test_a_connection_without_a_request_is_cut() -> None:
    """New or after a request, silent or with half a header."""
    limits, silent = patient(header_seconds=1, idle_seconds=1), list[socket.socket]()
    with serving(limits=limits) as live, contextlib.ExitStack() as stack:
        for connect, sent in itertools.product((raw_connection, after_a_request), (b"", HALF)):
            silent.append(stack.enter_context(connect(live.url)))
            with contextlib.suppress(ConnectionError):  # it may have been cut already
                silent[-1].sendall(sent)
        assert all(is_cut(client) for client in silent)


@pytest.mark.parametrize(
    "sent", [b"", *(head(path, 1000) + b"{" for path in ("/health", "/v1/completions"))]
)
def test_idle_connections_make_room_for_new_ones(sent: bytes) -> None:
    """One whose body is not finished is idle, too."""
    with serving(limits=patient(connections=4)) as live, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(raw_connection(live.url)) for _ in range(10)]
        for client in idle:
            with contextlib.suppress(ConnectionError):  # it may have been cut already
                client.sendall(sent)
        for _ in range(3):
            with new_client(live.url) as http:
                assert http.get("/health").status_code == 200
        assert is_cut(idle[0])


def test_connections_that_come_at_once_are_cut_to_the_share_of_their_address(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them wait in the kernel's queue before the first is accepted."""
    monkeypatch.setattr(reporting, "_LAST_TIME", {})
    limits = patient(connections=8)
    with bind_socket("127.0.0.1", 0) as bound, contextlib.ExitStack() as stack:
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        idle = [stack.enter_context(raw_connection(url)) for _ in range(20)]
        with serving(bound=bound, limits=limits):
            wait_for(lambda: sum(was_cut(client) for client in idle) == 20 - 6)
    assert [line["address"] for line in logged(caplog)] == ["127.0.0.1"]


def test_many_connections_wait_until_they_are_accepted() -> None:
    """One that found no place in the kernel's queue would try again only after a second."""
    with bind_socket("127.0.0.1", 0) as bound, contextlib.ExitStack() as stack:
        bound.listen(64)  # as asyncio does, which accepts as many in one go
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        for _ in range(300):
            stack.enter_context(raw_connection(url))


def test_a_busy_connection_is_not_cut_for_a_new_one() -> None:
    model, gate = held_model()
    with (
        serving(model, limits=patient(connections=2)) as live,
        raw_post(live, "/v1/completions", model="fake", prompt="x") as busy,
        contextlib.ExitStack() as stack,
    ):
        wait_for(lambda: live.scheduler.load["running"] == 1)
        idle = [stack.enter_context(raw_connection(live.url)) for _ in range(10)]
        assert all(is_cut(client) for client in idle[:9])
        gate.set()
        assert busy.recv(12) == b"HTTP/1.1 200"


def test_connections_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for soft, limit in ((128, 16), (1024, 512), (resource.RLIM_INFINITY, 512), (20, 8)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, soft=soft: (soft, soft))
        assert connection_limit(512) == limit
        assert connection_limit(2) == 2


def test_no_outage_and_no_flood_of_log_lines_without_descriptors() -> None:
    """140 idle sockets against a process that may open 128 files."""
    with serve_process(descriptors=128) as (process, address):
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(raw_connection(address)) for _ in range(140)]
            # The kernel may hand over some of them late: wait until the server has seen them all.
            wait_for(lambda: sum(was_cut(client) for client in idle) >= 140 - 16)
            body = {"model": "fake", "prompt": "x", "gen_length": 8, "steps": 2, "block_length": 8}
            for _ in range(5):
                with new_client(address) as http:
                    assert http.get("/health").status_code == 200
                    assert http.post("/v1/completions", json=body).status_code == 200
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=900)
    assert process.returncode == 0
    assert len(log.splitlines()) < 30


def test_clients_that_never_read_cannot_keep_the_process_alive() -> None:
    """SIGTERM comes when the server has more to send to them than it can get rid of."""
    stack = contextlib.ExitStack()
    with serve_process(grace=1, send_buffer=4096) as (process, address), stack:
        for _ in range(2):
            stack.enter_context(raw_post(address, "/v1/search", prompt="x", **LARGE))
        with new_client(address) as http:
            # A step was sent, and others wait behind it.
            passes = re.compile(r'^s3dlm_forwards_total{model="fake"} (\S+)$', re.M)
            wait_for(lambda: float(passes.findall(http.get("/metrics").text)[0]) >= 4)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=900)
    assert process.returncode == 0


def test_the_process_ends_with_its_engine() -> None:
    with serve_process(panic="!") as (process, address):
        with new_client(address) as http:
            answer = http.post("/v1/completions", json={"model": "fake", "prompt": "now!"})
        assert code(answer) == (503, "engine_failed")
        _, log = process.communicate(timeout=900)
    assert process.returncode == 1
    assert '"event": "engine failed"' in log
    assert "now!" not in log
