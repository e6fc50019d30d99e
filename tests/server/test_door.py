"""Closed by default: keys, hosts, origins, bodies, the log; and nothing a fuzzer finds is a 500."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from typer.testing import CliRunner

from s3dlm.errors import ModelError, SettingsError
from s3dlm.server.limits import Limits
from s3dlm.server.reporting import JsonLines
from s3dlm.server.run import LOCAL_NAMES, allowed_hosts, bind_socket, check_exposure
from tests.fakes import fake_model
from tests.server.live import Live, raw_connection, serving, wait_for

KEY = "a-key-of-some-length"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def closed() -> Iterator[Live]:
    """A server with everything shut that can be."""
    with serving(
        fake_model(),
        api_key=KEY,
        cors=["https://friend.example"],
        hosts=LOCAL_NAMES,
        limits=Limits(body=5000),
    ) as server:
        yield server


def test_keys(closed: Live) -> None:
    assert closed.client(api_key=KEY).completions.create(model="fake", prompt="x").choices
    for wrong in ("wrong", KEY + "x", KEY[:-1], "ключ"):
        with closed.http() as http:
            headers = {"authorization": f"Bearer {wrong}".encode()}
            answer = http.get("/v1/models", headers=headers)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    with pytest.raises(openai.AuthenticationError):
        closed.client(api_key="wrong").models.list()
    with closed.http() as http:
        for path in ("/v1/models", "/metrics", "/v1/options", "/openapi.json", "/nothing"):
            assert http.get(path).status_code == 401, path
        basic = http.get("/v1/models", headers={"authorization": f"Basic {KEY}"})
        assert basic.status_code == 401
        assert http.get("/health").json() == {"status": "ok"}
        assert http.get("/").status_code == 200


def test_origins(closed: Live, live: Live) -> None:
    asks = {"access-control-request-method": "POST", "origin": "https://friend.example"}
    with closed.http() as http:
        allowed = http.options("/v1/completions", headers=asks)
        assert allowed.headers["access-control-allow-origin"] == "https://friend.example"
        other = http.options("/v1/completions", headers={**asks, "origin": "https://e.example"})
        assert "access-control-allow-origin" not in other.headers
    with live.http() as http:
        answer = http.get("/v1/models", headers={"origin": "https://friend.example"})
        assert "access-control-allow-origin" not in answer.headers


def test_a_page_cannot_reach_a_local_server_under_its_own_name(closed: Live) -> None:
    with closed.http() as http:
        assert http.get("/health", headers={"host": "evil.example"}).status_code == 403
        assert http.get("/health", headers={"host": "localhost:80"}).status_code == 200
        assert http.get("/health", headers={"host": "[::1]:80"}).status_code == 200


def test_bodies(closed: Live) -> None:
    headers = {"authorization": f"Bearer {KEY}", **JSON}

    def post(content: bytes | Iterator[bytes], **own: str) -> httpx.Response:
        with closed.http() as http:
            return http.post("/v1/completions", content=content, headers={**headers, **own})

    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b" " * 1000

    assert post(b" " * 5001).status_code == 413
    assert post(pieces()).status_code == 413
    for malformed in (b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 4000, b'{"a":1e999}'):
        answer = post(malformed)
        assert answer.status_code == 400, malformed
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert post(b"{}", **{"content-type": "text/plain"}).status_code == 415


def test_a_body_that_never_ends() -> None:
    with (
        serving(fake_model(), limits=Limits(body_seconds=0.2)) as live,
        raw_connection(live.url) as client,
    ):
        client.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_unknown_paths_and_verbs(live: Live) -> None:
    with live.http() as http:
        for verb, path, status in [
            ("GET", "/nothing", 404),
            ("GET", "/viewer/..%2f..%2fapp.py", 404),
            ("GET", "/viewer/page.py", 404),
            ("GET", "/v1/completions", 405),
            ("DELETE", "/v1/models", 405),
        ]:
            answer = http.request(verb, path)
            assert answer.status_code == status, path
            assert answer.json()["error"]["message"]


def logged(caplog: pytest.LogCaptureFixture, request: str) -> list[dict[str, Any]]:
    """The log's lines about one request; an earlier one's may still arrive beside them."""
    lines = [json.loads(JsonLines().format(one)) for one in caplog.records]
    return [line for line in lines if line["event"] == "request" and line["id"] == request]


def test_the_log_holds_prompts_only_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")
    for wanted in (False, True):
        caplog.clear()
        with serving(fake_model(), log_prompts=wanted) as live, live.http() as http:
            answer = http.post("/v1/completions", json={"model": "fake", "prompt": "hush"})
        (fields,) = logged(caplog, answer.headers["x-request-id"])
        assert fields["endpoint"] == "/v1/completions"
        assert fields["nfe"] == answer.json()["usage"]["nfe"]
        assert ("hush" in json.dumps(fields)) == wanted


def test_a_refusal_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture, live: Live) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")
    with live.http() as http:
        answer = http.post("/v1/completions", json={"model": "other", "prompt": "x"})
        assert answer.is_error
    own = answer.headers["x-request-id"]
    wait_for(lambda: bool(logged(caplog, own)))  # the line is written after the answer
    (line,) = logged(caplog, own)
    assert (line["status"], line["error"]) == (404, "model_not_found")
    assert "traceback" not in line


def test_a_body_that_is_no_json(live: Live) -> None:
    with live.http() as http:
        error = http.post("/v1/completions", content=b'{"a"', headers=JSON).json()["error"]
    assert error["message"].startswith("the body is not JSON")
    assert (error["param"], error["code"]) == (None, "invalid_json")


def test_tracebacks_in_the_log_do_not_quote_prompts() -> None:
    for error, quoted in ((ModelError("prompt 'hush'"), False), (RuntimeError("plain"), True)):
        try:
            raise error
        except Exception:
            record = logging.LogRecord("x", 40, "x", 1, "failed", (), sys.exc_info())
        line = json.loads(JsonLines().format(record))
        assert type(error).__name__ in line["traceback"]
        assert (str(error) in line["traceback"].splitlines()[-1]) == quoted


def test_metrics_count_what_happened() -> None:
    with serving(fake_model()) as live, live.http() as http:
        usage = http.post("/v1/completions", json={"model": "fake", "prompt": "x"}).json()["usage"]
        http.post("/v1/completions", json={"model": "fake", "prompt": ""})
        text = http.get("/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["s3dlm_nfe_total"]) == usage["nfe"]
    done = 's3dlm_requests_total{endpoint="/v1/completions",status="%s"}'
    assert float(values[done % 200]) == float(values[done % 400]) == 1
    assert float(values['s3dlm_searches_total{method="s3",outcome="finished"}']) == 1
    assert float(values["s3dlm_forward_seconds_total"]) > 0
    assert float(values["s3dlm_verifier_seconds_total"]) > 0
    assert float(values["s3dlm_queue_seconds_count"]) == 1


def test_no_bind_socket_by_accident() -> None:
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


def test_the_command_refuses_before_it_loads_anything() -> None:
    import typer

    from s3dlm.cli.serve import register

    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["serve", "--host", "0.0.0.0"])
    assert isinstance(result.exception, SettingsError)


def test_nothing_a_fuzzer_sends_is_a_server_error() -> None:
    """Schemathesis over the whole OpenAPI document, bounded: every answer is one it announces."""
    limits = Limits(length=32, steps=8, children=8, nfe=300, seconds=20)
    with serving(fake_model(), limits=limits) as live:
        statuses = _fuzz(f"{live.url}/openapi.json")
    assert {200, 400, 404} <= set(statuses)
    assert len(statuses) > 40


def _fuzz(address: str) -> list[int]:
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as conformance

    wanted = (
        not_a_server_error,
        conformance.status_code_conformance,
        conformance.content_type_conformance,
        conformance.response_schema_conformance,
    )
    statuses: list[int] = []
    for operation in (
        result.ok() for result in schemathesis.openapi.from_url(address).get_all_operations()
    ):

        @settings(
            max_examples=12, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def fuzz(case: Any) -> None:
            if isinstance(case.body, dict) and len(statuses) % 4:
                case.body["model"] = "fake"  # most would end at a wrong name otherwise
            statuses.append(case.call_and_validate(checks=wanted).status_code)

        fuzz()
    return statuses


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    with bind_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port={port} cannot be listened on.*--port"):
            bind_socket("127.0.0.1", port)


def test_an_answer_does_not_wait_for_acknowledgements() -> None:
    """Head and body are sent one after the other; with Nagle's algorithm each answer takes 40 ms."""

    async def accepted() -> int:
        made: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

        class Accepts(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                made.set_result(transport)

        bound = bind_socket("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        async with await loop.create_server(Accepts, sock=bound):
            with socket.create_connection(bound.getsockname()):
                transport = await made
                own = transport.get_extra_info("socket")
                off: int = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                transport.abort()
        return off

    assert asyncio.run(accepted())
