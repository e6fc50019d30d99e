"""200 mixed requests at once: good ones are answered as if they were alone, and nothing is left over."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import random
import re
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

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

KINDS = {  # of 200 requests
    "good": 80, "streamed": 30, "disconnects": 25, "malformed": 25, "oversized": 15, "slow": 15,
    "never reads": 10,
}  # fmt: skip
MORE_MEMORY = 250  # MB at most, with ten clients that never read


class Chaos:
    """Sends one request of some kind; sockets that are never read stay open until the end."""

    def __init__(self, address: str, stack: contextlib.ExitStack) -> None:
        self.address, self.stack = address, stack
        self.http = stack.enter_context(new_client(address, timeout=900))

    def send(self, number: int, kind: str) -> tuple[int, str]:
        """Status and text of the answer; (0, "") if there is none to wait for."""
        prompt = f"secret question {number}"
        body = {"model": "fake", "prompt": prompt, **SMALL, "seed": number}
        if kind == "good":
            return self.post(json.dumps(body))
        if kind == "streamed":
            return self.post(json.dumps({**body, "stream": True}))
        if kind == "malformed":
            wrong = [json.dumps(body)[:-9], json.dumps({**body, "particles": -1}), "[]", "\x00"]
            return self.post(wrong[number % len(wrong)])
        if kind == "oversized":
            size = (900_000, 3_000_000)[number % 2]
            return self.post(json.dumps({**body, "prompt": "a" * size, "n": 16}))
        if kind == "disconnects":
            with raw_post(self.address, "/v1/completions", **{**body, **LARGE}):
                time.sleep(0.01 * (number % 5))
        elif kind == "slow":
            self.drip(json.dumps(body).encode())
        else:
            self.stack.enter_context(raw_post(self.address, "/v1/search", prompt=prompt, **LARGE))
        return 0, ""

    def post(self, text: str) -> tuple[int, str]:
        answer = self.http.post("/v1/completions", content=text.encode(), headers=JSON)
        return answer.status_code, answer.text

    def drip(self, content: bytes) -> None:
        """A body in small pieces, given up halfway."""
        with raw_connection(self.address) as client, contextlib.suppress(OSError):
            client.sendall(head("/v1/completions", len(content)))
            for byte in content[: len(content) // 2]:
                client.sendall(bytes([byte]))
                time.sleep(0.002)


def memory(process: int) -> float:
    """Resident megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) / 1024


def gauge(http: httpx.Client, name: str) -> float:
    return float(
        re.findall(rf'^{name}{{model="fake"}} (\S+)$', http.get("/metrics").text, re.MULTILINE)[0]
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_200_mixed_requests() -> None:
    kinds = [kind for kind, count in KINDS.items() for _ in range(count)]
    random.Random(0).shuffle(kinds)
    log: list[str] = []
    with serve_process("--grace", "5", "--send-seconds", "3") as (process, address):
        assert process.stderr is not None
        reader = threading.Thread(target=log.extend, args=(process.stderr,))
        reader.start()
        with contextlib.ExitStack() as stack:
            chaos = Chaos(address, stack)
            before = memory(process.pid)
            with concurrent.futures.ThreadPoolExecutor(24) as pool:
                answers = list(pool.map(chaos.send, range(len(kinds)), kinds))
            wait_for(lambda: gauge(chaos.http, "s3dlm_searches_running") == 0, 240)
            assert gauge(chaos.http, "s3dlm_queue_waiting") == 0
            assert chaos.http.get("/health").json() == {"status": "ok"}
            assert memory(process.pid) - before < MORE_MEMORY
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=900) == 0
        reader.join(900)
    check(kinds, answers)
    lines = [json.loads(line) for line in log]
    assert not [line for line in lines if line.get("status", 0) >= 500]
    assert "secret" not in "".join(log)


def check(kinds: list[str], answers: list[tuple[int, str]]) -> None:
    for number, (kind, (status, text)) in enumerate(zip(kinds, answers, strict=True)):
        if kind in ("good", "streamed"):
            assert status == 200, text
            assert received(kind, text) == alone(f"secret question {number}", seed=number).text
        elif kind == "malformed":
            assert status == 400
        elif kind == "oversized":
            assert status in (400, 413)
            assert len(text) < 2000


def received(kind: str, text: str) -> str:
    if kind == "good":
        return str(json.loads(text)["choices"][0]["text"])
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)
