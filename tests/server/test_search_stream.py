"""The step stream is a trace: what the server sends is what the library records, and can be viewed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import s3dlm
from s3dlm.errors import RecordError
from s3dlm.settings import Settings
from s3dlm.trace import TraceEncoder, read_trace
from s3dlm.viewer.page import joined, standalone
from tests.fakes import fake_model
from tests.server.live import SMALL, Live

ASK = {"prompt": "Target: 24 Numbers: 6, 4, 12", "task": "countdown", "seed": 2}


def events(text: str) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("rule", [{}, {"reveal": "threshold", "reveal_threshold": 0.12}])
def test_the_stream_is_what_the_library_records(live: Live, rule: dict[str, object]) -> None:
    with live.http() as http:
        answer = http.post("/v1/search", json={**ASK, **rule})
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = events(answer.text)
    settings = Settings(**SMALL, seed=2).replace(**rule)
    model = fake_model()
    encoder = TraceEncoder.of(model)
    expected = [encoder.header("fake", str(ASK["prompt"]), "countdown", settings)]
    for event in s3dlm.stream(model, str(ASK["prompt"]), task="countdown", settings=settings):
        expected.append(encoder.event(event))
    for one in (*told, *expected):
        one.pop("seconds", None)
        one.pop("timings", None)
    assert told == expected


def test_lines_can_be_saved_read_and_viewed(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "saved.jsonl"
    with live.http() as http:
        path.write_bytes(http.post("/v1/search", json={**ASK, "format": "jsonl"}).content)
    trace = read_trace(path)
    assert len(list(trace)) == SMALL["steps"] + 1
    page = standalone([path])
    assert page.count("<script") == 2
    assert "/viewer/" not in page
    assert "import {" not in page
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    with pytest.raises(RecordError, match="not a trace"):
        standalone([other])


def test_a_trace_cannot_break_out_of_its_page(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "evil.jsonl"
    evil = {**ASK, "prompt": "</script><script>alert(1)</script>", "format": "jsonl"}
    with live.http() as http:
        path.write_bytes(http.post("/v1/search", json=evil).content)
    page = standalone([path])
    assert "alert(1)</script>" not in page
    assert page.count("<script") == 2


def test_every_module_of_the_page_is_joined_once() -> None:
    code = joined("main.js")
    assert "import " not in "".join(line for line in code.splitlines() if line.startswith("import"))
    assert not [line for line in code.splitlines() if line.startswith("export")]


def test_errors_come_before_the_stream(live: Live) -> None:
    with live.http() as http:
        for wrong in ({"prompt": ""}, {"prompt": "x", "budget": 1}, {"prompt": "x", "nope": 1}):
            answer = http.post("/v1/search", json=wrong)
            assert answer.status_code == 400
            assert answer.json()["error"]["message"]


def test_options_offer_only_what_is_accepted(live: Live) -> None:
    with live.http() as http:
        offered = http.get("/v1/options").json()
        for example in offered["examples"][:2]:
            assert http.post("/v1/search", json={**example, "gen_length": 24}).status_code == 200
        for method in offered["methods"]:
            ask = {"prompt": "x", "method": method, "format": "jsonl"}
            text = http.post("/v1/search", json=ask).text
            assert json.loads(text.splitlines()[-1])["event"] == "result"
