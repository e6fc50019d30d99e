"""Requests that stop when the vote is decided, choose by agreement, or let the model judge itself: the
reply, the stream and the search are what the library says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

import s3dlm
from s3dlm.server.app import create_app
from s3dlm.settings import Settings
from tests.fakes import COUNTDOWN, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 8, "block_length": 64, "temperature": 0.5, "seed": 3}
VOTE = {**SMALL, "method": "adaptive_vote", "particles": 12, "branching": 1}
JUDGED = {**SMALL, "method": "verified_best_of_k", "particles": 2, "branching": 2}
ASKED: dict[str, dict[str, Any]] = {
    "decided": VOTE,
    "decided later": {**VOTE, "decided_at": 0.999},
    "agreement": {**JUDGED, "verifier": "checker", "selection": "agreement"},
    "self": {**JUDGED, "verifier": "self"},
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(fake_model(COUNTDOWN, context=1024, noise=0.5))) as made:
        yield made


def alone(asked: dict[str, Any]) -> s3dlm.Result:
    model = fake_model(COUNTDOWN, context=1024, noise=0.5)
    return s3dlm.generate(model, QUESTION, task="countdown", settings=Settings.from_json(asked))


def chat(client: TestClient, **asked: Any) -> Any:
    turns = [{"role": "user", "content": QUESTION}]
    body = {"model": "fake", "messages": turns, "task": "countdown", **asked}
    return client.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("name", ASKED)
def test_every_reply_is_what_the_library_says(client: TestClient, name: str) -> None:
    asked, expected = ASKED[name], alone(ASKED[name])
    reply = chat(client, **asked).json()
    found = reply["choices"][0]["search"]
    assert reply["choices"][0]["message"]["content"] == expected.text
    assert (found["answer"], found["stopped"]) == (expected.answer, expected.stopped)
    assert (found["votes"], found["survivors"]) == (expected.votes, len(expected.survivors))
    assert reply["usage"]["nfe"] == expected.nfe
    body = {"prompt": QUESTION, "task": "countdown", "format": "jsonl", **asked}
    told = json.loads(client.post("/v1/search", json=body).text.split("\n")[-2])
    assert [told[n] for n in ("text", "stopped", "nfe")] == [
        expected.text, expected.stopped, expected.nfe,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 3, 6])
def test_nothing_is_streamed_that_a_later_sample_outvotes(client: TestClient, seed: int) -> None:
    asked = {**VOTE, "temperature": 1.0, "seed": seed, "decided_at": 0.8}
    whole = chat(client, **asked).json()["choices"][0]["message"]["content"]
    lines = chat(client, **asked, stream=True).text.split("\n\n")
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    pieces = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]
    assert "".join(pieces) == whole


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({**VOTE, "decided_at": 2.0}, "decided_at=2.0 is not allowed"),
        ({"method": "s3", "decided_at": 0.9}, "methods that have it: adaptive_vote"),
        ({"method": "best_of_k", "selection": "agreement"}, "agreement"),
        ({"method": "s3", "verifier": "mine.py:length"}, "is unknown; choose"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    client: TestClient, asked: dict[str, Any], words: str
) -> None:
    reply = chat(client, **asked)
    assert reply.status_code == 400
    assert words in reply.json()["error"]["message"]


def test_a_reply_says_whether_there_was_anything_to_check(client: TestClient) -> None:
    reply = chat(client, **{**JUDGED, "verifier": "checker", "task": "gsm8k"}).json()
    assert reply["choices"][0]["search"]["checkable"] is True
    assert "checkable" not in chat(client, **ASKED["self"]).json()["choices"][0]["search"]
