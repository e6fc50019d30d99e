"""A model of uniform noise behind the server: `noisy9` answers over HTTP as it does in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import s3dlm
from tests.server.live import Live, code, serving

PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
SEARCHES: list[dict[str, Any]] = [
    {"method": "greedy"},
    {"method": "s3", "particles": 2, "budget": 20},
    {"method": "restarts", "budget": 30},
    {"method": "revise", "budget": 30},
]


@pytest.fixture(scope="module")
def model() -> s3dlm.Model:
    return s3dlm.load("noisy9", device="cpu")


@pytest.fixture(scope="module")
def noisy(model: s3dlm.Model) -> Iterator[Live]:
    with serving(model, defaults={}) as live:
        yield live


def ask(live: Live, **own: Any) -> Any:
    return live.ask(PUZZLE, model="noisy9", task="sudoku9", **own)


@pytest.mark.parametrize("own", SEARCHES, ids=lambda own: str(own["method"]))
def test_an_answer_is_pythons_and_a_stream_ends_with_it(
    noisy: Live, model: s3dlm.Model, own: dict[str, Any]
) -> None:
    expected = s3dlm.generate(model, PUZZLE, task="sudoku9", seed=1, **own)
    reply = ask(noisy, seed=1, **own).json()
    assert (reply["choices"][0]["text"], reply["usage"]["nfe"]) == (expected.text, expected.nfe)
    assert expected.nfe <= own.get("budget", 24)
    lines = ask(noisy, seed=1, stream=True, **own).text.splitlines()
    *pieces, end = [line[6:] for line in lines if line.startswith("data: ")]
    assert "".join(json.loads(one)["choices"][0]["text"] for one in pieces) == expected.text
    assert end == "[DONE]"


def test_concurrent_requests_answer_as_each_alone(noisy: Live) -> None:
    wanted = [{**SEARCHES[seed % 4], "seed": seed} for seed in range(16)]
    together = [noisy.pool.submit(ask, noisy, **one) for one in wanted]
    alone = [ask(noisy, **one).json() for one in wanted]
    for one, other in zip(together, alone, strict=True):
        reply = one.result().json()
        assert reply["choices"][0]["text"] == other["choices"][0]["text"]
        assert reply["usage"] == other["usage"]


def test_a_grammar_is_refused(noisy: Live) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}
    answer = noisy.post(
        "/v1/chat/completions", model="noisy9", response_format=form,
        messages=[{"role": "user", "content": PUZZLE}],
    )  # fmt: skip
    assert code(answer)[0] == 400
    assert "its answers follow no grammar" in answer.json()["error"]["message"]


def test_a_trace_tells_what_was_taken_back(noisy: Live) -> None:
    _, *steps, _ = map(json.loads, noisy.lines(PUZZLE, task="sudoku9", **SEARCHES[3]))
    rows = [step["tokens"][0] for step in steps]
    pairs = [pair for two in pairwise(rows) for pair in zip(*two, strict=True)]
    assert any(old >= 0 > new for old, new in pairs)
