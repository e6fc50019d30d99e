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
    alone,
    head,
    new_client,
    raw_connection,
    serve_process,
    text,
    wait_for,
)

pytestmark = pytest.mark.timeout(3600)
MIXED = {  # requests beside each other
    "good": 80, "streamed": 30, "given up": 40, "deep_bodies": 25, "large_bodies": 15,
    "clients_that_never_read": 10,
}  # fmt: skip
SHORT = {"gen_length": 8, "steps": 2, "block_length": 8}
DEEP = ("[" * 200_000, '{"a":' * 100_000, "9" * 900_000, "\x00" * 900_000)
MORE_MEMORY = 250  # MB at most, with ten clients that never read
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
def server() -> Iterator[tuple[int, str]]:
    """The process and the address of a server whose model writes programs that never end."""
    with serve_process("--usual", "--text", LOOPING) as (process, address):
        log: list[str] = []
        reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        reader.start()  # else its log would fill the pipe
        yield process.pid, address
        assert process.poll() is None, log[-5:]


def get(url: str, path: str) -> str:
    """An answer to another address than the attackers'."""
    other = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=url, transport=other, timeout=900) as http:
        answer = http.get(path)
    assert answer.status_code == 200, answer.text[:200]
    return answer.text


def memory(process: int) -> float:
    """Resident megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def processor_seconds(process: int) -> float:
    """What a process has spent, in the program and in the kernel."""
    spent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def under_attack(process: int, address: str, name: str, seconds: float) -> tuple[float, float, int]:
    """The longest that `/health` took, its most processor time, and how much was sent."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        attacker = Attacker(address, stack)

        def attack(seed: int) -> None:
            rng = random.Random(seed)
            while not attacker.stopped.is_set():
                attacker.turn(name, rng)

        for seed in range(4):
            pool.submit(attack, seed)
        try:
            wait_for(lambda: attacker.sent > 8)
            longest, most, end = 0.0, 0.0, time.monotonic() + seconds
            while (started := time.monotonic()) < end:
                before = processor_seconds(process)
                get(address, "/health")
                longest = max(longest, time.monotonic() - started)
                most = max(most, processor_seconds(process) - before)
            return longest, most, attacker.sent
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
def test_health_answers_within_a_second(server: tuple[int, str], name: str, count: int) -> None:
    process, address = server
    longest, most, sent = under_attack(process, address, name, seconds=count)
    size, health = memory(process), f"/health within {longest:.3f} s, {most:.2f} s of work"
    print(f"\n{name}: {sent} sent, {health}, {size:.0f} MB", flush=True)
    wait_for(lambda: idle(address))
    assert most < 1.0
    assert size < 1500


def good(http: httpx.Client, number: int, *, stream: bool) -> str:
    """The text of a good request."""
    body = {"model": "fake", "prompt": f"secret {number}", **SMALL, "seed": number}
    answer = http.post("/v1/completions", json={**body, "stream": stream})
    assert answer.status_code == 200, answer.text
    if not stream:
        return text(answer)
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


def give_up(address: str, number: int) -> None:
    """Half a body, or a whole one whose answer nobody waits for."""
    body = json.dumps({"model": "fake", "prompt": "secret", **LARGE}).encode()
    with raw_connection(address) as client:
        client.sendall(head("/v1/completions", len(body)) + body[: len(body) // (1 + number % 2)])


@pytest.mark.slow
def test_200_mixed_requests() -> None:
    """Good ones are answered as if they were alone, and nothing is left over."""
    kinds, log = [kind for kind, count in MIXED.items() for _ in range(count)], list[str]()
    random.Random(0).shuffle(kinds)
    with serve_process("--grace", "5", "--send-seconds", "3") as (process, address):
        reader = threading.Thread(target=log.extend, args=(process.stderr,))
        reader.start()
        with contextlib.ExitStack() as stack, new_client(address) as http:
            attacker, before = Attacker(address, stack), memory(process.pid)

            def send(number: int) -> str | None:
                kind = kinds[number]
                if kind in ("good", "streamed"):
                    return good(http, number, stream=kind == "streamed")
                if kind == "given up":
                    give_up(address, number)
                else:
                    attacker.turn(kind, random.Random(number))
                return None

            with ThreadPoolExecutor(24) as pool:
                texts = list(pool.map(send, range(len(kinds))))
            wait_for(lambda: idle(address))
            assert memory(process.pid) - before < MORE_MEMORY
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=900) == 0
        reader.join(900)
    for number, said in enumerate(texts):
        assert said in (None, alone(f"secret {number}", seed=number).text)
    assert not [line for line in map(json.loads, log) if line.get("status", 0) >= 500]
    assert "secret" not in "".join(log)
