"""What is refused over HTTP, with which status and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.live import ASK, JSON, QUESTION, Live, code, patient, serving

USER = {"role": "user", "content": QUESTION}
SYSTEM = {"role": "system", "content": "Be brief."}
# What a chat has beside its question, or in place of it, and the words of its 400.
WORDS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"partickles": 3}, "did you mean 'particles'"),
    ({"particles": "3"}, "whole number"),
    ({"particles": 500}, "this server's limit of 64"),
    ({"steps": 25}, "steps"),
    ({"method": "s4"}, "choose one of"),
    ({"task": "/etc/passwd.jsonl:math"}, "task"),
    ({"verifier": "profile.toml"}, "verifier"),
    ({"verifier": "mine.py:length"}, "is unknown; choose"),
    ({"budget": 1}, "budget"),
    ({"budget": 10**6}, "this server's limit of 100000"),
    ({"budget": 10, "n": 8}, "budget"),
    ({"budget": 10, "reasoning_effort": "low"}, "leave one out"),
    ({"reasoning_effort": "extreme"}, "'none', 'minimal', 'low'"),
    ({"decided_at": 0.9}, "methods that have it: adaptive_vote"),
    ({"look_aheads": 1000}, "n × texts per step=4000 is more than this server's limit"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": 0, "method": "s3"}, "temperature=0 with method='s3'"),
    ({"seed": -1}, "seed"),
    ({"n": 17}, "at most 16"),
    ({"stop": [""]}, "stop"),
    ({"max_tokens": 512}, "reads 512 tokens"),
    ({"max_tokens": 500}, "smaller gen_length (max_tokens)"),
    ({"infill": "no hole"}, "has no hole"),
    ({"infill": ""}, "has no hole"),
    ({"infill": "a [[x]]"}, "not a number of tokens"),
    ({"infill": "a [[600]]"}, "reads at most"),
    ({"infill": "[[5000]]"}, "holes of infill=5000 is more than this server's limit of 4096"),
    ({"messages": []}, "messages"),
    ({"messages": [{**USER, "content": None}]}, "messages.0.content"),
    ({"messages": [{**USER, "content": [{"type": "image_url"}]}]}, "messages.0.content.0.type"),
    # Numbers and names that are too long to print.
    ({"lam": 10**400}, "lam"),
    ({"particles": 10**4000, "max_tokens": 4}, "particles"),
    ({"seed": -(10**4000)}, "seed"),
    ({"steps": "x", "max_tokens": 4}, "steps"),
    ({"block_length": 0, "max_tokens": 4}, "block_length"),
    ({"method": []}, "method"),
    *(({name: "m" * 900_000}, name) for name in ("method", "task", "verifier", "stop")),
    ({"m" * 900_000: 1}, "is unknown"),
    ({"tool_choice": "required"}, "tools has none"),
    ({"messages": [{**USER, "content": "\ud800"}]}, "half of a character"),
    ({"messages": [{**SYSTEM, "content": "\ud800"}, USER]}, "half of a character"),
    ({"messages": [{**USER, "content": "  "}]}, "empty"),
    ({"messages": [{**USER, "content": "x" * 600}]}, "reads at most 512"),
    ({"messages": [USER, {"role": "assistant", "content": "24"}]}, "last message must have"),
    ({"messages": [SYSTEM]}, "last message must have"),
    ({"messages": [{"role": "tool", "content": "x"}, USER]}, "messages.0.role"),
    ({"messages": [{**USER, "tool_calls": [{"id": "1"}]}]}, "tool_calls"),
)


@pytest.mark.parametrize(("own", "words"), WORDS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_refused_before_anything_is_sent(
    live: Live, own: dict[str, Any], words: str, stream: bool
) -> None:
    answer = live.post("/v1/chat/completions", **{**ASK, **own, "stream": stream})
    assert code(answer)[0] == 400
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    assert len(answer.text) < 2000


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/search", {"prompt": ""}, 400, "empty"),
        ("/v1/search", {"prompt": "x", "budget": 1}, 400, "budget"),
        ("/v1/search", {"prompt": "x", "nope": 1}, 400, "nope"),
        ("/v1/search", {"prompt": "x", "model": "other"}, 404, "this server has 'fake'"),
        ("/v1/settings", {"prompt": "x", "particles": 500}, 400, "this server's limit of 64"),
        ("/v1/completions", {"model": "fake"}, 400, "prompt: Field required"),
        ("/v1/completions", {"model": "fake", "prompt": []}, 400, "prompt"),
        ("/v1/completions", {"model": "fake", "prompt": "x", "logprobs": 0}, 400, "boolean"),
        ("/v1/completions", {"model": "fake", "prompt": "x", "logprobs": True}, 400, "only chat"),
        ("/v1/completions", {"model": "gpt-4", "prompt": "x"}, 404, "this server has 'fake'"),
        ("/nothing", {}, 404, "Not Found"),
        ("/v1/models", {}, 405, "Method Not Allowed"),
        # No path reaches the disk, and no verb is guessed.
        ("GET /viewer/..%2f..%2fapp.py", None, 404, "Not Found"),
        ("GET /viewer/page.py", None, 404, "no such file"),
        ("GET /v1/models/..%2f..%2fetc%2fpasswd", None, 404, "does not exist"),
        ("GET /v1/completions", None, 405, "Method Not Allowed"),
        ("DELETE /v1/models", None, 405, "Method Not Allowed"),
    ],
)
def test_other_paths_refuse(
    live: Live, path: str, body: dict[str, Any] | None, status: int, words: str
) -> None:
    verb, _, place = path.rpartition(" ")
    answer = live.http.request(verb, place) if body is None else live.post(path, **body)
    assert code(answer)[0] == status
    assert words in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def closed() -> Iterator[Live]:
    """A server that takes small bodies only."""
    with serving(limits=patient(body=5000)) as server:
        yield server


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b" " * 5001, (413, "body_too_large")),
        ((b" " * 1000 for _ in range(10)), (413, "body_too_large")),  # no length is announced
        *((text, (400, "invalid_json")) for text in (b"{", b'{"a"', b"\xff\xfe")),
        *(
            (text, (400, None))
            for text in (b"", b"[" * 4000, b"[]", b"null", b'"x"', b'{"a":1e999}')
        ),
    ],
)
def test_a_body_that_is_no_request(closed: Live, content: Any, expected: Any) -> None:
    answer = closed.http.post("/v1/completions", content=content, headers=JSON)
    assert code(answer) == expected
    assert len(answer.text) < 1000
    error = answer.json()["error"]
    if expected[1] == "invalid_json":
        assert error["message"].startswith("the body is not JSON")
        assert error["param"] is None


def test_a_body_of_another_kind(closed: Live) -> None:
    plain = {"content-type": "text/plain"}
    assert closed.http.post("/v1/completions", content=b"{}", headers=plain).status_code == 415
