"""Schemas, regular expressions and Lark grammars that cost as much as they can: each is answered or refused
with a reason, and `/health` within a second of the server's work meanwhile (`python -m pytest -m slow -s` prints
the longest)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from benchmarks.structure.schemas import schema

from tests.fuzz import check_line, counts
from tests.fuzz.test_attacks import get, processor_seconds
from tests.server.live import JSON, new_client, serve_process

AT_ONCE = 4
DEEP = 90
KNOWN: tuple[dict[str, Any], ...] = (
    {"guided_json": {"anyOf": [{"type": "object", "properties": {f"a{i}": {}}} for i in range(400)]}},
    {"guided_json": {"anyOf": [{}] * 4900}},
    {"guided_json": {"type": "integer", "multipleOf": 999983}},
    {"guided_json": {"type": "string", "pattern": "^((a{1000}){1000}){1000}$"}},
    {"guided_json": {"enum": [[0] * 100 for _ in range(38)]}},
    {"guided_json": {"properties": {f"a{i}": {"enum": list(range(12))} for i in range(200)}}},
    {"guided_json": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}] * 9}}, "$ref": "#/$defs/a"}},
    {"guided_json": json.loads('{"items":' * DEEP + "{}" + "}" * DEEP)},
    {"guided_regex": "((a{1000}){1000}){1000}"},
    {"guided_regex": "(a?){1000}a{1000}"},
    {"guided_regex": "(a|b)*a" + "(a|b)" * 3000},
    {"guided_regex": "(.*a){60}"},
    {"guided_grammar": 'start: s\ns: s s | s s s | "a"'},
    {"guided_grammar": "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + '\nr60: "a"'},
    {"guided_grammar": "start: /((a{1000}){1000}){1000}/"},
    {"guided_grammar": 'start: %json {"type": "integer", "multipleOf": 999983}'},
)  # fmt: skip


def expression(rng: random.Random, depth: int = 4) -> str:
    """A regular expression of copies of copies and of choices that agree for long."""
    if depth == 0:
        return rng.choice(("a", ".", "[a-z]", r"\p{L}", "(a|ab|b)", "[^a]", r"\w", "é", "()"))
    inner = [expression(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    most = rng.choice((2, 9, 60, 999, 10**6))
    times = rng.choice(("*", "+", "?", f"{{{most}}}", f"{{0,{most}}}", f"{{{most // 2},}}", ""))
    return f"({rng.choice(('', '|')).join(inner)}){times}"


def form(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    """A schema of parts that are dear together."""
    inner: Callable[[], dict[str, Any]] = lambda: form(rng, depth - 1)  # noqa: E731
    many = rng.choice((2, 9, 60))
    leaves: list[dict[str, Any]] = [
        {"type": "string", "pattern": expression(rng, 2)},
        {"type": "string", "minLength": 10 ** rng.randrange(8), "maxLength": 10 ** rng.randrange(9)},
        {"type": rng.choice(("integer", "number")), "multipleOf": rng.choice((7, 0.001, 9973, 1e-9))},
        {"type": "integer", "minimum": -(10 ** rng.randrange(30)), "maximum": 10 ** rng.randrange(30)},
        {"enum": [rng.choice(("é", "x" * 50, i, None, [i])) for i in range(many)]},
        {"$ref": "#/$defs/again"},
        schema(rng),
    ]  # fmt: skip
    if depth == 0:
        return rng.choice(leaves)
    key = rng.choice(("anyOf", "allOf", "oneOf"))
    own = [
        {key: [inner() for _ in range(rng.randrange(1, 5))]},
        {key: [inner()] * many},
        {"type": "array", "items": inner(), "minItems": rng.choice((0, 3, 10**6))},
        {"type": "object", "properties": {f"p{i}": inner() for i in range(rng.randrange(1, 5))}},
        {"type": "object", "additionalProperties": inner(), "required": ["a"] * rng.randrange(2)},
    ]
    return rng.choice((*leaves, *own, *own)) | ({"$defs": {"again": inner()}} if depth == 3 else {})


def rules(rng: random.Random) -> str:
    """A Lark grammar that is ambiguous, or whose rules call each other in circles."""
    names = [f"r{i}" for i in range(rng.choice((1, 3, 30)))]
    lines = [f"start: {rng.choice(names)}"]
    for name in names:
        parts = [*names, '"a"', '""', f"/{expression(rng, 1)}/", f"({rng.choice(names)}){{0,99}}"]
        several = [" ".join(rng.choices(parts, k=rng.randrange(1, 5))) for _ in range(3)]
        lines.append(f"{name}: {' | '.join(several)}")
    return "\n".join(lines)


def hostile(rng: random.Random) -> dict[str, Any]:
    """A request's own field."""
    kinds: list[tuple[str, Callable[[random.Random], Any]]] = [
        ("guided_regex", expression), ("guided_json", form), ("guided_grammar", rules),
    ]  # fmt: skip
    name, make = rng.choice(kinds)
    return {name: make(rng)}


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, str]]:
    """The process and the address of a server with a real tokenizer."""
    with serve_process(model="tiny") as (process, address):
        yield process.pid, address


def ask(address: str, own: dict[str, Any], seed: int) -> tuple[int, str]:
    """The status, and what an error says."""
    body = {"model": "tiny", "prompt": "x", "max_tokens": 32, "seed": seed, "task": "none", **own}
    with new_client(address, timeout=900) as http:
        answer = http.post("/v1/completions", content=json.dumps(body), headers=JSON)
    told = answer.json()
    return answer.status_code, told["error"]["message"] if "error" in told else ""


@pytest.mark.timeout(3600)
@counts(16, 400)
def test_health_answers_within_a_second(server: tuple[int, str], count: int) -> None:
    (process, address), most = server, 0.0
    made = [*KNOWN, *(hostile(random.Random(seed)) for seed in range(count - len(KNOWN)))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = [pool.submit(ask, address, own, seed) for seed, own in enumerate(made)]
        while not all(answer.done() for answer in answers):
            before = processor_seconds(process)
            get(address, "/health")
            most = max(most, processor_seconds(process) - before)
    print(f"\n/health within {most:.2f} s of work, {len(made)} grammars", flush=True)
    for own, answer in zip(made, answers, strict=True):
        status, why = answer.result()
        assert status in (200, 400), (own, why)
        if status == 400:
            check_line(why, own)
    assert most < 1.0
