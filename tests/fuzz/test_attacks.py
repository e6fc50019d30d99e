"""A live server under attack: it answers `/health` within a second of its own work, and it recovers.

Each attack comes from one address and goes on while `/health` is asked from another. What counts is the
processor time that the server spends until it answers: waiting for other programs is not its own. What is
measured is printed (`pytest -m slow -s tests/fuzz/test_attacks.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fuzz import counts
from tests.server.live import (
    JSON,
    LARGE,
    SMALL,
    head,
    new_client,
    raw_connection,
    serve_process,
    wait_for,
)

pytestmark = pytest.mark.timeout(3600)
SHORT = {"gen_length": 8, "steps": 2, "block_length": 8}
DEEP = ("[" * 200_000, '{"a":' * 100_000, "9" * 900_000, "\x00" * 900_000)
LOOPING = "```python\ndef f(x):\n    while True: pass\n```"
CODE = {"task": "mbpp", "prompt": "Loop.\nYour code should pass this test:\nassert f(1) == 2"}
# As many texts as a step may verify.
WIDE = {"particles": 8, "branching": 8, "look_aheads": 32, "temperature": 1.0, "gen_length": 256, "steps": 64, "block_length": 256}  # fmt: skip


Post = tuple[dict[str, Any] | str, dict[str, str]]  # a body, and headers


def cubic_text(rng: random.Random) -> Post:
    text = rng.choice(("numbers", "Target: 24 Numbers: ", "(", "1=", "\\boxed{", "def f():\n"))
    pad = rng.choice((" ", text, "\t", "(", "9", "="))
    task = rng.choice(("countdown", "gsm8k", "sudoku", "mbpp"))
    return {**SHORT, "prompt": text + pad * (2000 // len(pad)), "task": task}, {}


def address(rng: random.Random) -> str:
    return ".".join(str(rng.randrange(256)) for _ in range(4))


# Requests whose answers are waited for.
POSTS: dict[str, Callable[[random.Random], Post]] = {
    "cubic_texts": cubic_text,
    "many_look_aheads": lambda rng: ({**WIDE, "look_aheads": rng.choice((32, 1000))}, {}),
    "many_choices": lambda rng: ({**WIDE, "n": 16, "look_aheads": 2}, {}),
    "a_full_queue": lambda rng: ({**LARGE, "particles": 8}, {}),
    "looping_code": lambda rng: ({**CODE, "gen_length": 64, "steps": 8, "block_length": 64}, {}),
    "large_bodies": lambda rng: (
        {"prompt": "a" * rng.choice((900_000, 1_100_000, 200_000)), "n": 16}, {}
    ),
    "deep_bodies": lambda rng: (rng.choice(DEEP), {}),
    "texts_that_judge_themselves": lambda rng: ({**WIDE, "verifier": "self", "look_aheads": 8}, {}),
    "many_addresses": lambda rng: ({**LARGE, "particles": 8}, {"x-forwarded-for": address(rng)}),
    "large_memos": lambda rng: (
        {"method": "revise", "budget": 4000, "memo": rng.choice((512, 1_048_576))}, {}
    ),
}  # fmt: skip
UNREAD = json.dumps({"prompt": "x", **LARGE}).encode()
# What is sent on sockets that then do nothing, and how many there are before it goes on slowly.
SOCKETS: dict[str, tuple[bytes, int]] = {
    "unfinished_bodies": (head("/health", 1000) + b"{", 530),
    "large_unfinished_bodies": (head("/v1/completions", 1 << 20) + b" " * 900_000, 200),
    "half_headers": (b"GET /health HTTP/1.1\r\nHost: local", 600),
    "clients_that_never_read": (head("/v1/search", len(UNREAD)) + UNREAD, 40),
    "pipelined_requests": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100, 30),
}


class Attacker:
    """Sends until it is told to stop; what it opens is closed at the end."""

    def __init__(self, address: str, stack: contextlib.ExitStack) -> None:
        self.address, self.stack, self.stopped = address, stack, threading.Event()
        self.sent = 0

    def turn(self, name: str, rng: random.Random) -> None:
        """One turn of an attack; whatever the answer is, it is taken."""
        self.sent += 1
        if name in POSTS:
            body, headers = POSTS[name](rng)
            if not isinstance(body, str):
                body = json.dumps(
                    {"model": "fake", "prompt": "x", "seed": rng.randrange(99), **body}
                )
            with contextlib.suppress(httpx.HTTPError), new_client(self.address, timeout=5) as http:
                http.post("/v1/completions", content=body, headers={**JSON, **headers})
            return
        data, limit = SOCKETS[name]
        with contextlib.suppress(OSError):
            self.stack.enter_context(raw_connection(self.address)).sendall(data)
        if self.sent > limit:
            self.stopped.wait(0.1)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, str, str]]:
    """The process and the address of a server whose model writes programs that never end, and what it
    answers when nobody attacks it. It ends cleanly, and its log has no prompt and nothing unexpected."""
    with serve_process(usual=True, text=LOOPING) as (process, address):
        log: list[str] = []
        reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        reader.start()  # else its log would fill the pipe
        yield process.pid, address, good(address)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=900) == 0, log[-5:]
        reader.join(900)
    assert "secret" not in "".join(log)
    assert not [line for line in map(json.loads, log) if line.get("status") == 500]


def get(url: str, path: str, method: str = "GET", **own: Any) -> str:
    """An answer to another address than the attackers'."""
    other = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=url, transport=other, timeout=900) as http:
        answer = http.request(method, path, **own)
    assert answer.status_code == 200, answer.text[:200]
    return answer.text


def good(url: str) -> str:
    """The text of a request that harms nobody."""
    body = {"model": "fake", "prompt": "secret", **SMALL}
    answer = json.loads(get(url, "/v1/completions", "POST", json=body))
    return str(answer["choices"][0]["text"])


def memory(process: int) -> float:
    """Resident megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def processor_seconds(process: int) -> float:
    """What a process has spent, in the program and in the kernel."""
    spent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def under_attack(
    process: int, address: str, name: str, seconds: float
) -> tuple[float, float, int, str]:
    """The longest that `/health` took, its most processor time, how much was sent, and what a good request got."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(5) as pool:
        attacker = Attacker(address, stack)

        def attack(seed: int) -> None:
            rng = random.Random(seed)
            while not attacker.stopped.is_set():
                attacker.turn(name, rng)

        for seed in range(4):
            pool.submit(attack, seed)
        try:
            wait_for(lambda: attacker.sent > 8)
            text = pool.submit(good, address)
            longest, most, end = 0.0, 0.0, time.monotonic() + seconds
            while (started := time.monotonic()) < end:
                before = processor_seconds(process)
                get(address, "/health")
                longest = max(longest, time.monotonic() - started)
                most = max(most, processor_seconds(process) - before)
            return longest, most, attacker.sent, text.result()
        finally:
            attacker.stopped.set()


def idle(address: str) -> bool:
    """Whether no search of the attack is left: within their time limits all end."""
    lines = get(address, "/metrics").splitlines()
    return {
        f's3dlm_{name}{{model="fake"}} 0.0' for name in ("searches_running", "queue_waiting")
    } <= set(lines)


@pytest.mark.parametrize("name", [*POSTS, *SOCKETS])
@counts(0, 5)
def test_health_answers_within_a_second(
    server: tuple[int, str, str], name: str, count: int
) -> None:
    """And others are answered as if nobody attacked."""
    process, address, alone = server
    longest, most, sent, text = under_attack(process, address, name, seconds=count)
    size, health = memory(process), f"/health within {longest:.3f} s, {most:.2f} s of work"
    print(f"\n{name}: {sent} sent, {health}, {size:.0f} MB", flush=True)
    wait_for(lambda: idle(address))
    assert most < 1.0
    assert size < 1500
    assert text == alone
