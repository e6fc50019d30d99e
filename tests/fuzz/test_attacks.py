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
import socket
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
    raw_post,
    serve_process,
    wait_for,
)

pytestmark = pytest.mark.timeout(3600)
MIXED = {  # requests beside each other
    "good": 80, "streamed": 30, "_leave": 25, "deep_bodies": 25, "large_bodies": 15, "_drip": 15,
    "clients_that_never_read": 10,
}  # fmt: skip
MORE_MEMORY = 250  # MB at most, with ten clients that never read
LOOPING = "```python\ndef f(x):\n    while True: pass\n```"
CODE = {"task": "mbpp", "prompt": "Loop.\nYour code should pass this test:\nassert f(1) == 2"}
# As many texts as a step may verify.
WIDE = {"particles": 8, "branching": 8, "look_aheads": 32, "temperature": 1.0, "gen_length": 256, "steps": 64, "block_length": 256}  # fmt: skip


class Attacker:
    """Sends until it is told to stop; what it opens is closed at the end."""

    def __init__(self, address: str, stack: contextlib.ExitStack) -> None:
        self.address, self.stack, self.stopped = address, stack, threading.Event()
        self.sent = 0

    def post(
        self, body: dict[str, Any] | str, path: str = "/v1/completions", **headers: str
    ) -> None:
        """A request, whose answer is waited for, and whatever it is, it is taken."""
        text = (
            body if isinstance(body, str) else json.dumps({"model": "fake", "prompt": "x", **body})
        )
        self.sent += 1
        with contextlib.suppress(httpx.HTTPError), new_client(self.address, timeout=5) as http:
            http.post(path, content=text.encode(errors="replace"), headers={**JSON, **headers})

    def open(self, data: bytes, limit: int = 400) -> None:
        """A socket that sends this much and then nothing."""
        self.sent += 1
        with contextlib.suppress(OSError):
            client = self.stack.enter_context(raw_connection(self.address))
            client.sendall(data)
        if self.sent > limit:
            self.stopped.wait(0.1)

    # --- the attacks, each one turn of it

    def unfinished_bodies(self, rng: random.Random) -> None:
        self.open(head("/health", 1000) + b"{", limit=530)

    def large_unfinished_bodies(self, rng: random.Random) -> None:
        self.open(head("/v1/completions", 1 << 20) + b" " * 900_000, limit=200)

    def half_headers(self, rng: random.Random) -> None:
        self.open(b"GET /health HTTP/1.1\r\nHost: local", limit=600)

    def clients_that_never_read(self, rng: random.Random) -> None:
        content = json.dumps({"prompt": "x", **LARGE}).encode()
        self.open(head("/v1/search", len(content)) + content, limit=40)

    def pipelined_requests(self, rng: random.Random) -> None:
        self.open(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100, limit=30)

    def cubic_texts(self, rng: random.Random) -> None:
        text = rng.choice(("numbers", "Target: 24 Numbers: ", "(", "1=", "\\boxed{", "def f():\n"))
        pad = rng.choice((" ", text, "\t", "(", "9", "="))
        prompt = text + pad * (2000 // len(pad))
        task = rng.choice(("countdown", "gsm8k", "sudoku", "mbpp"))
        self.post({"prompt": prompt, "task": task, "steps": 2, "gen_length": 8, "block_length": 8})

    def many_look_aheads(self, rng: random.Random) -> None:
        self.post({**WIDE, "look_aheads": rng.choice((32, 1000)), "seed": rng.randrange(99)})

    def many_choices(self, rng: random.Random) -> None:
        self.post({**WIDE, "n": 16, "look_aheads": 2, "seed": rng.randrange(99)})

    def a_full_queue(self, rng: random.Random) -> None:
        self.post({**LARGE, "particles": 8, "seed": rng.randrange(99)})

    def looping_code(self, rng: random.Random) -> None:
        self.post(
            {**CODE, "gen_length": 64, "steps": 8, "block_length": 64, "seed": rng.randrange(99)}
        )

    def large_bodies(self, rng: random.Random) -> None:
        self.post({"prompt": "a" * rng.choice((900_000, 1_100_000, 200_000)), "n": 16})

    def deep_bodies(self, rng: random.Random) -> None:
        self.post(rng.choice(("[" * 200_000, '{"a":' * 100_000, "9" * 900_000, "\x00" * 900_000)))

    def texts_that_judge_themselves(self, rng: random.Random) -> None:
        looks = rng.choice((8, 32))
        self.post({**WIDE, "verifier": "self", "look_aheads": looks, "seed": rng.randrange(99)})

    def many_addresses(self, rng: random.Random) -> None:
        pretended = ".".join(str(rng.randrange(256)) for _ in range(4))
        self.post({**LARGE, "particles": 8}, **{"x-forwarded-for": pretended})

    def large_memos(self, rng: random.Random) -> None:
        memo = rng.choice((512, 1_048_576))
        self.post({"method": "revise", "budget": 4000, "memo": memo, "seed": rng.randrange(99)})

    # --- and of those that give up

    def _leave(self, rng: random.Random) -> None:
        with raw_post(self.address, "/v1/completions", model="fake", prompt="secret", **LARGE):
            time.sleep(0.01 * rng.randrange(5))

    def _drip(self, rng: random.Random) -> None:
        """A body in small pieces, given up halfway."""
        content = json.dumps({"model": "fake", "prompt": "secret", **SMALL}).encode()
        with raw_connection(self.address) as client, contextlib.suppress(OSError):
            client.sendall(head("/v1/completions", len(content)))
            for byte in content[: len(content) // 2]:
                client.sendall(bytes([byte]))
                time.sleep(0.002)


ATTACKS = [name for name in vars(Attacker) if name[0] != "_" and name not in ("post", "open")]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, str]]:
    """The process and the address of a server whose model writes programs that never end."""
    with serve_process("--usual", "--text", LOOPING) as (process, address):
        log: list[str] = []
        reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
        reader.start()  # else its log would fill the pipe
        yield process.pid, address
        assert process.poll() is None, log[-5:]


def get(address: str, path: str) -> str:
    """An answer to another address than the attackers', on a connection of its own."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 900, ("127.0.0.2", 0)) as client:
        client.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return answer.decode()


def memory(process: int) -> float:
    """Resident megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def processor_seconds(process: int) -> float:
    """What a process has spent, in the program and in the kernel."""
    spent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def worst_health(process: int, address: str, seconds: float) -> tuple[float, float]:
    """The longest that `/health` took during this time, by the clock and in the server's own work."""
    longest, most, end = 0.0, 0.0, time.monotonic() + seconds
    while time.monotonic() < end:
        started, before = time.monotonic(), processor_seconds(process)
        get(address, "/health")
        longest = max(longest, time.monotonic() - started)
        most = max(most, processor_seconds(process) - before)
        time.sleep(0.02)
    return longest, most


def under_attack(process: int, address: str, name: str, seconds: float) -> tuple[float, float, int]:
    """The longest that `/health` took, its most processor time, and how much was sent."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        attacker = Attacker(address, stack)
        turn: Callable[[random.Random], None] = getattr(attacker, name)

        def attack(seed: int) -> None:
            rng = random.Random(seed)
            while not attacker.stopped.is_set():
                turn(rng)

        for seed in range(4):
            pool.submit(attack, seed)
        try:
            wait_for(lambda: attacker.sent > 8)
            return *worst_health(process, address, seconds), attacker.sent
        finally:
            attacker.stopped.set()


def idle(address: str) -> bool:
    """Whether no search of the attack is left: within their time limits all end."""
    lines = get(address, "/metrics").splitlines()
    return {
        f's3dlm_{name}{{model="fake"}} 0.0' for name in ("searches_running", "queue_waiting")
    } <= set(lines)


@pytest.mark.parametrize("name", ATTACKS)
@counts(0, 5)
def test_health_answers_within_a_second(server: tuple[int, str], name: str, count: int) -> None:
    process, address = server
    longest, most, sent = under_attack(process, address, name, seconds=count)
    size, health = memory(process), f"/health within {longest:.3f} s, {most:.2f} s of work"
    print(f"\n{name}: {sent} sent, {health}, {size:.0f} MB", flush=True)
    wait_for(lambda: idle(address))
    assert most < 1.0
    assert size < 1500


def answered(http: httpx.Client, number: int, *, stream: bool) -> str:
    """The text of a good request."""
    body = {"model": "fake", "prompt": f"secret {number}", **SMALL, "seed": number}
    answer = http.post("/v1/completions", json={**body, "stream": stream})
    assert answer.status_code == 200, answer.text
    if not stream:
        return str(answer.json()["choices"][0]["text"])
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


@pytest.mark.slow
def test_200_mixed_requests() -> None:
    """Good ones are answered as if they were alone, and nothing is left over."""
    kinds = [kind for kind, count in MIXED.items() for _ in range(count)]
    random.Random(0).shuffle(kinds)
    log: list[str] = []
    with serve_process("--grace", "5", "--send-seconds", "3") as (process, address):
        reader = threading.Thread(target=log.extend, args=(process.stderr,))
        reader.start()
        with contextlib.ExitStack() as stack, new_client(address) as http:
            attacker, before = Attacker(address, stack), memory(process.pid)

            def send(number: int) -> str | None:
                if (kind := kinds[number]) in ("good", "streamed"):
                    return answered(http, number, stream=kind == "streamed")
                getattr(attacker, kind)(random.Random(number))
                return None

            with ThreadPoolExecutor(24) as pool:
                texts = list(pool.map(send, range(len(kinds))))
            wait_for(lambda: idle(address))
            assert memory(process.pid) - before < MORE_MEMORY
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=900) == 0
        reader.join(900)
    for number, text in enumerate(texts):
        assert text in (None, alone(f"secret {number}", seed=number).text)
    assert not [line for line in map(json.loads, log) if line.get("status", 0) >= 500]
    assert "secret" not in "".join(log)
