"""Closed by default: keys, hosts, origins, bodies, the log, the address."""

from __future__ import annotations

import json
import logging
import socket
import sys
from typing import Any

import httpx
import openai
import pytest
from typer.testing import CliRunner

from s3dlm.cli.main import app
from s3dlm.errors import ModelError, SettingsError
from s3dlm.server.limits import bind_socket
from s3dlm.server.reporting import JsonLines
from s3dlm.server.run import LOCAL_NAMES, Middleware, allowed_hosts, check_exposure
from tests.server.live import (
    JSON,
    Live,
    code,
    head,
    logged,
    patient,
    raw_connection,
    serving,
    wait_for,
)

KEY = "a-key-of-some-length"


def test_keys_hosts_and_origins(live: Live) -> None:
    friend = {"origin": "https://friend.example", "access-control-request-method": "POST"}
    with serving(api_key=KEY, cors=[friend["origin"]], hosts=LOCAL_NAMES) as closed:

        def ask(path: str, **headers: str) -> httpx.Response:
            sent = {name.replace("_", "-"): value.encode() for name, value in headers.items()}
            return closed.http.get(path, headers=sent)

        assert closed.client(api_key=KEY).completions.create(model="fake", prompt="x").choices
        with pytest.raises(openai.AuthenticationError):
            closed.client(api_key="wrong").models.list()
        for key in ("wrong", KEY + "x", KEY[:-1], "ключ"):
            for own in ({"authorization": f"Bearer {key}"}, {"x_api_key": key}):
                assert code(ask("/v1/models", **own)) == (401, "invalid_api_key")
        assert ask("/v1/models", authorization=f"Basic {KEY}").status_code == 401
        assert ask("/v1/models", x_api_key=KEY).status_code == 200
        assert ask("/v1/models", x_api_key=KEY, authorization="Bearer wrong").status_code == 401
        for path in ("/v1/models", "/metrics", "/v1/options", "/openapi.json", "/nothing"):
            assert ask(path).status_code == 401, path
        assert ask("/health").json() == {"status": "ok"}
        assert ask("/").status_code == 200
        # A page cannot reach a local server under its own name.
        for host, status in (("evil.example", 403), ("localhost:80", 200), ("[::1]:80", 200)):
            assert ask("/health", host=host).status_code == status
        allowed = closed.http.options("/v1/completions", headers=friend)
        assert allowed.headers["access-control-allow-origin"] == friend["origin"]
        foe = {**friend, "origin": "https://e.example"}
        other = closed.http.options("/v1/completions", headers=foe)
    for refused in (other, live.http.get("/v1/models", headers=friend)):
        assert "access-control-allow-origin" not in refused.headers


def test_a_body_that_never_ends() -> None:
    with serving(limits=patient(body_seconds=0.2)) as live, raw_connection(live.url) as client:
        client.sendall(head("/v1/completions", 100) + b"{")
        assert client.recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("announced", [True, False])
def test_large_bodies_are_bounded_in_sum(announced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones are read all the same, and large ones again when there is room."""
    doors, original = list[Middleware](), Middleware.__init__

    def noted(self: Middleware, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        doors.append(self)

    monkeypatch.setattr(Middleware, "__init__", noted)
    content = json.dumps({"model": "fake", "prompt": "a" * 150_000}).encode()

    def large() -> tuple[int, str]:
        pieces = (content[start : start + 1000] for start in range(0, len(content), 1000))
        body = content if announced else pieces
        return code(live.http.post("/v1/completions", content=body, headers=JSON))

    refused, read = (503, "bodies_too_large"), (400, "invalid_prompt")
    with serving(limits=patient(bodies=200_000)) as live:
        assert large() == read
        wait_for(lambda: doors[-1].held == 0)  # what it held is given back after the answer
        with raw_connection(live.url) as client:
            client.sendall(head("/v1/completions", 200_000) + b" " * 150_000)  # not finished
            wait_for(lambda: doors[-1].held == 150_000)
            assert large() == refused
            assert live.ask("small").status_code == 200
        wait_for(lambda: doors[-1].held == 0)
        assert large() == read


@pytest.mark.parametrize(
    ("path", "framing", "status"),
    [
        ("/health", b"Content-Length: 1000", b"405"),
        ("/viewer/main.js", b"Transfer-Encoding: chunked", b"405"),
        ("/v1/models", b"Content-Length: 2\r\nTransfer-Encoding: chunked", b"400"),
    ],
)
def test_a_body_is_refused_before_it_is_read(
    live: Live, path: str, framing: bytes, status: bytes
) -> None:
    with raw_connection(live.url) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n" % (path.encode(), framing))
        answer = b"".join(iter(lambda: client.recv(4096), b""))  # until the server closes
        assert answer.startswith(b"HTTP/1.1 " + status)


def test_the_log_has_one_line_for_a_request_and_no_prompt(
    caplog: pytest.LogCaptureFixture, live: Live
) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")

    def line_of(answer: httpx.Response) -> dict[str, Any]:
        """The log's line about a request; it is written after the answer."""
        own = answer.headers["x-request-id"]
        wait_for(lambda: any(line.get("id") == own for line in logged(caplog)))
        (line,) = (line for line in logged(caplog) if line.get("id") == own)
        assert "hush" not in json.dumps(line)
        assert line["endpoint"] == "/v1/completions"
        return line

    answer = live.ask("hush")
    assert line_of(answer)["nfe"] == answer.json()["usage"]["nfe"]
    refusal = line_of(live.ask("hush", model="other"))
    assert (refusal["status"], refusal["error"]) == (404, "model_not_found")
    assert "traceback" not in refusal


@pytest.mark.parametrize(
    ("error", "quoted"), [(ModelError("prompt 'hush'"), False), (RuntimeError("plain"), True)]
)
def test_tracebacks_in_the_log_do_not_quote_prompts(error: Exception, quoted: bool) -> None:
    try:
        raise error
    except Exception:
        record = logging.LogRecord("x", 40, "x", 1, "failed\u2028\x85", (), sys.exc_info())
    line = JsonLines().format(record)
    assert len(line.splitlines()) == 1  # whatever Unicode takes for the end of a line
    last = json.loads(line)["traceback"].splitlines()[-1]
    assert type(error).__name__ in last
    assert (str(error) in last) == quoted


def test_metrics_count_what_happened() -> None:
    with serving() as live:
        usage = live.ask("x").json()["usage"]
        live.ask("")
        text = live.http.get("/metrics").text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    values = {name: float(value) for name, value in lines}
    assert values['s3dlm_nfe_total{model="fake"}'] == usage["nfe"]
    completion = 's3dlm_tokens_total{kind="completion",model="fake"}'
    assert values[completion] == usage["completion_tokens"]
    done = 's3dlm_requests_total{endpoint="/v1/completions",model="fake",status="%s"}'
    assert values[done % 200] == values[done % 400] == 1
    assert values['s3dlm_searches_total{method="s3",model="fake",outcome="finished"}'] == 1
    assert values['s3dlm_forward_seconds_total{model="fake"}'] > 0
    assert values['s3dlm_verifier_seconds_total{model="fake"}'] > 0
    assert values['s3dlm_queue_seconds_count{model="fake"}'] == 1


def test_nothing_listens_to_a_network_by_accident() -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        check_exposure(host, None, insecure=False)
        assert host in (allowed_hosts(host, None) or ())
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(SettingsError, match="--insecure"):
            check_exposure(host, None, insecure=False)
        check_exposure(host, None, insecure=True)
        check_exposure(host, KEY, insecure=False)
    with pytest.raises(SettingsError, match="at least 16"):
        check_exposure("127.0.0.1", "short", insecure=False)
    # The command refuses before it loads anything.
    result = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0"])
    assert isinstance(result.exception, SettingsError)


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    with bind_socket("127.0.0.1", 0) as first:
        assert first.proto == socket.IPPROTO_TCP  # else asyncio leaves Nagle's algorithm on
        port = first.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port={port} is not available.*--port"):
            bind_socket("127.0.0.1", port)
