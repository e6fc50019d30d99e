"""Whatever a client sends is its own mistake: an answer or a short 4xx, never a 500."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from s3dlm.errors import short_repr
from tests.fuzz import counts
from tests.server.live import JSON, Live, code, patient, serving

LONGEST_ANSWER = 2000  # characters of an error
PATHS = {
    "/v1/chat/completions": {"messages": '[{"role": "user", "content": "x"}]'},
    "/v1/responses": {"input": '"x"'},
    **{path: {"prompt": '"x"'} for path in ("/v1/completions", "/v1/search", "/v1/settings")},
}
TINY = {"gen_length": 8, "steps": 2, "block_length": 8, "particles": 1, "branching": 1}
LIMITS = patient(length=32, steps=8, children=8, nfe=300)
EXACT = [  # written as text, since not all of it is a Python value
    "0", "-1", "1", "2", "3.5", "-0.0", "1e-320", "1e400", "-1e400", "NaN", "Infinity", "true",
    "false", "null", '""', '"x"', '"s3"', "[]", "{}", "[[]]", '[""]', '{"a": []}', '"\\ud800"',
    '"\\u0000"', f"1{'0' * 400}", f"-1{'0' * 4000}", f"1{'0' * 5000}", "9" * 19, str(2**63),
    f'"{"m" * 900_000}"', f'"{"é" * 1000}"', "[" * 900 + "]" * 900, '{"type": "text"}',
]  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Iterator[Live]:
    with serving(defaults={"method": "s3", **TINY}, limits=LIMITS) as live:
        yield live


def mutated(draw: random.Random, names: list[str]) -> tuple[str, str]:
    """A path and a body: a good one with up to four fields replaced by something else."""
    path = draw.choice([*PATHS])
    body = {"model": '"fake"', **PATHS[path]}
    for _ in range(draw.randint(1, 4)):
        body[draw.choice(names)] = draw.choice(EXACT)
    if path == "/v1/chat/completions" and draw.random() < 0.2:
        role, content = draw.choice(EXACT), draw.choice(EXACT)
        body["messages"] = f'[{{"role": {role}, "content": {content}}}]'
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in body.items()) + "}"
    if draw.random() < 0.05:  # a body that ends too early
        text = text[: draw.randrange(len(text))]
    return path, text


def send(live: Live, path: str, text: str) -> int:
    answer = live.http.post(path, content=text.encode(), headers=JSON)
    if answer.status_code != 200:
        assert len(answer.text) < LONGEST_ANSWER, (path, text[:300])
        code(answer)  # has OpenAI's shape
    return answer.status_code


@counts(200, 5000)
def test_mutated_bodies(small: Live, count: int) -> None:
    draw, statuses = random.Random(count), set()
    schemas = small.http.get("/openapi.json").json()["components"]["schemas"]
    fields = (schemas[f"{kind}Request"]["properties"] for kind in ("Chat", "Completion", "Search"))
    known = sorted({name for each in fields for name in each})
    names = [*known, "nothing", "", "m" * 5000, "\\ud800"]
    for _ in range(count):
        path, text = mutated(draw, names)
        status = send(small, path, text)
        assert status in (200, 400, 404, 413), (path, text[:300])
        statuses.add(status)
    assert statuses >= {200, 400}
    assert small.http.get("/health").status_code == 200


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, '{"a":' * 100_000, json.dumps({"model": "fake", "prompt": ["x"] * 200})],
    ids=["lists", "objects", "prompts"],
)
def test_what_is_nested_too_deeply(small: Live, text: str) -> None:
    assert send(small, "/v1/completions", text) == 400


def test_a_number_that_python_refuses_to_print_is_still_described() -> None:
    values = (10**5000, -(10**5000), "x" * 10**6, [1] * 10**6)
    assert all(len(short_repr(value)) < 200 for value in values)


def test_nothing_a_fuzzer_sends_is_a_server_error(small: Live) -> None:
    """Schemathesis over the whole OpenAPI document, bounded: every answer is one it announces."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as conformance

    checks = (
        not_a_server_error,
        conformance.status_code_conformance,
        conformance.content_type_conformance,
        conformance.response_schema_conformance,
    )
    statuses: list[int] = []
    schema = schemathesis.openapi.from_url(f"{small.url}/openapi.json")
    for operation in (result.ok() for result in schema.get_all_operations()):

        @settings(
            max_examples=5, deadline=None, database=None, derandomize=True,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def fuzz(case: Any) -> None:
            if isinstance(case.body, dict) and len(statuses) % 4:
                case.body["model"] = "fake"  # else most end at a wrong name
            answer = case.call_and_validate(checks=checks)
            statuses.append(answer.status_code)

        fuzz()
    assert {200, 400, 404} <= set(statuses)
    assert len(statuses) > 30
