"""Whatever a client sends is its own mistake: an answer or a short 4xx, never a 500."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from s3dlm.server import declared
from s3dlm.server.limits import Limits
from tests.fakes import fake_model
from tests.server.live import Live, serving

HEADERS = {"content-type": "application/json"}
LONGEST_ANSWER = 2000  # characters of an error
PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/search", "/v1/settings")
TINY = {"gen_length": 8, "steps": 2, "block_length": 8, "particles": 1, "branching": 1}
EXACT = [  # written as text, since not all of it is a Python value
    "0", "-1", "1", "2", "3.5", "-0.0", "1e-320", "1e400", "-1e400", "NaN", "Infinity", "true",
    "false", "null", '""', '"x"', '"s3"', "[]", "{}", "[[]]", '[""]', '{"a": []}', '"\\ud800"',
    '"\\u0000"', f"1{'0' * 400}", f"-1{'0' * 4000}", f"1{'0' * 5000}", "9" * 19, str(2**63),
    f'"{"m" * 900_000}"', f'"{"é" * 1000}"', "[" * 900 + "]" * 900, '{"type": "text"}',
]  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Iterator[Live]:
    limits = Limits(length=32, steps=8, children=8, nfe=300)
    with serving(fake_model(), defaults=TINY, limits=limits) as live:
        yield live


def names() -> list[str]:
    declared_names = [one.name for one in declared.declarations()]
    return [
        *declared_names, "model", "prompt", "messages", "n", "stop", "stream", "stream_options",
        "max_tokens", "max_completion_tokens", "budget", "task", "verifier", "format", "top_p", "tools",
        "logit_bias", "user", "nothing", "", "m" * 5000, "\\ud800",
    ]  # fmt: skip


def mutated(draw: random.Random) -> tuple[str, str]:
    """A path and a body: a good one with up to four fields replaced by something else."""
    path = draw.choice(PATHS)
    body = {"model": '"fake"'}
    if path == "/v1/chat/completions":
        body["messages"] = '[{"role": "user", "content": "x"}]'
    else:
        body["prompt"] = '"x"'
    for _ in range(draw.randint(1, 4)):
        body[draw.choice(names())] = draw.choice(EXACT)
    if path == "/v1/chat/completions" and draw.random() < 0.2:
        role, content = draw.choice(EXACT), draw.choice(EXACT)
        body["messages"] = f'[{{"role": {role}, "content": {content}}}]'
    text = ", ".join(f'"{name}": {value}' for name, value in body.items())
    text = f"{{{text}}}"
    if draw.random() < 0.05:  # a body that ends too early
        text = text[: draw.randrange(len(text))]
    return path, text


def fuzz(live: Live, count: int, seed: int) -> set[int]:
    draw, statuses = random.Random(seed), set()
    with live.http() as http:
        for _ in range(count):
            path, text = mutated(draw)
            answer = http.post(path, content=text.encode(), headers=HEADERS)
            told = (path, text[:300], answer.text[:300])
            assert answer.status_code in (200, 400, 404, 413), told
            if answer.status_code != 200:
                assert len(answer.text) < LONGEST_ANSWER, told
                assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
            statuses.add(answer.status_code)
        assert http.get("/health").status_code == 200
    return statuses


def test_300_mutated_bodies(small: Live) -> None:
    assert fuzz(small, 300, seed=0) >= {200, 400}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_10000_mutated_bodies(small: Live) -> None:
    assert fuzz(small, 10_000, seed=1) >= {200, 400, 404}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, value) for name in ("block_length", "steps", "gen_length") for value in ("0", '"x"', "[]")),
        ("lam", f"1{'0' * 400}"),
        ("lam", f"1{'0' * 5000}"),
        ("seed", f"1{'0' * 4000}"),
        ("particles", f"1{'0' * 4000}"),
        ("method", f'"{"m" * 900_000}"'),
        ("method", "[]"),
        ("task", f'"{"m" * 900_000}"'),
        ("verifier", f'"{"m" * 900_000}"'),
        ("model", f'"{"m" * 900_000}"'),
        ("stop", f'"{"m" * 900_000}"'),
        ("m" * 900_000, "1"),
        ("temperature", "NaN"),
    ],
    ids=lambda one: one[:20],
)  # fmt: skip
@pytest.mark.parametrize("max_tokens", ["4", "null"])
def test_a_mistake_of_the_client_is_a_short_400(
    small: Live, field: str, value: str, max_tokens: str
) -> None:
    own = {"model": '"fake"', "prompt": '"x"', "max_tokens": max_tokens, field: value}
    text = ", ".join(f'"{name}": {one}' for name, one in own.items())
    with small.http() as http:
        answer = http.post("/v1/completions", content=f"{{{text}}}".encode(), headers=HEADERS)
    assert answer.status_code == (404 if field == "model" else 400)
    assert len(answer.text) < LONGEST_ANSWER


def test_what_is_nested_too_deeply(small: Live) -> None:
    with small.http() as http:
        for text in (
            "[" * 200_000,
            '{"a":' * 100_000,
            json.dumps({"model": "fake", "prompt": ["x"] * 200}),
        ):
            answer = http.post("/v1/completions", content=text.encode(), headers=HEADERS)
            assert answer.status_code == 400
            assert len(answer.text) < LONGEST_ANSWER


def test_a_number_that_python_refuses_to_print_is_still_described() -> None:
    shown: list[Any] = [
        declared.shown(value) for value in (10**5000, -(10**5000), "x" * 10**6, [1] * 10**6)
    ]
    assert all(len(one) < 200 for one in shown)
