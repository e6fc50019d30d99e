"""One request's prompt, failure or slowness stays its own."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

import s3dlm
from s3dlm.models.base import Model
from s3dlm.server.limits import Limits
from s3dlm.server.reporting import JsonLines
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer, fake_model
from tests.server.held import held_model
from tests.server.live import SMALL, Live, raw_post, serving, wait_for

POISON = "\x01"
SECRET = f"the secret {POISON} question"


def body(question: str, **extra: object) -> dict[str, object]:
    return {"model": "fake", "prompt": question, **extra}


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def poisoned(how: str) -> tuple[Model, threading.Event]:
    """A held model that fails on every batch with a poisoned token."""
    model, gate = held_model()
    original = model.denoiser.encode

    def encode(tokens: Any, *others: Any) -> Any:
        logits = original(tokens, *others)
        bad = (tokens == ord(POISON)).any(1)
        if bad.any() and how == "raises":
            raise RuntimeError("out of memory")
        logits[bad] = float("nan")
        return logits

    model.denoiser.encode = encode  # type: ignore[method-assign]
    return model, gate


@pytest.mark.parametrize("how", ["nan", "raises"])
def test_a_failing_prompt_harms_nobody_and_is_told_to_nobody(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")
    model, gate = poisoned(how)
    prompts = ["question 1", SECRET, "question 2", "question 3"]
    with (
        serving(model) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(5) as pool,
    ):
        first = pool.submit(http.post, "/v1/completions", json=body("question 0"))
        assert model.denoiser.entered.wait(60)  # type: ignore[attr-defined]
        asked = [pool.submit(http.post, "/v1/completions", json=body(one)) for one in prompts]
        live.wait_for_queue(4)  # so that all share a pass
        gate.set()
        answers = [one.result() for one in (first, *asked)]
    failed = answers.pop(2)
    assert failed.status_code == 500
    for prompt, answer in zip(["question 0", *prompts[:1], *prompts[2:]], answers, strict=True):
        assert "secret" not in answer.text
        alone = s3dlm.generate(fake_model(), prompt, settings=Settings(**SMALL))
        assert answer.json()["choices"][0]["text"] == alone.text
    log = "\n".join(JsonLines().format(one) for one in caplog.records)
    assert "forward pass failed" in log
    assert "secret" not in log
    assert "question" not in log


class CountingTokenizer(ByteTokenizer):
    """Counts prompts, and holds back those that begin with "slow" until it is released."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.released = threading.Event()

    def chat(self, user: str, prefill: str = "") -> list[int]:
        self.seen.append(user)
        if user.startswith("slow"):
            self.released.wait(60)
        return super().chat(user, prefill)


@pytest.fixture
def counting() -> tuple[Model, CountingTokenizer]:
    tokenizer = CountingTokenizer()
    return replace(fake_model(), tokenizer=tokenizer), tokenizer


def test_a_prompt_is_tokenised_once_for_all_its_choices(
    counting: tuple[Model, CountingTokenizer],
) -> None:
    model, tokenizer = counting
    with serving(model) as live, live.http() as http:
        answer = http.post("/v1/completions", json=body("question", n=16)).json()
    assert len(answer["choices"]) == 16
    assert tokenizer.seen == ["question"]


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(
    counting: tuple[Model, CountingTokenizer],
) -> None:
    model, tokenizer = counting
    with serving(model) as live, live.http() as http:
        answer = http.post("/v1/completions", json=body("a" * 1_000_000, n=16))
        assert code(answer) == (400, "invalid_prompt")
        assert "at most 8192 characters" in answer.json()["error"]["message"]
        said = [{"role": "user", "content": "a" * 5000} for _ in range(3)]
        chat = http.post("/v1/chat/completions", json={"model": "fake", "messages": said})
        assert code(chat) == (400, "invalid_prompt")
    assert tokenizer.seen == []


def test_a_slow_tokenizer_holds_nobody_up(counting: tuple[Model, CountingTokenizer]) -> None:
    model, tokenizer = counting
    with (
        serving(model) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(http.post, "/v1/completions", json=body("slow"))
        wait_for(lambda: tokenizer.seen == ["slow"])
        assert http.post("/v1/completions", json=body("other")).status_code == 200
        assert not slow.done()
        tokenizer.released.set()
        assert slow.result().status_code == 200


def test_a_client_that_left_is_not_tokenised(counting: tuple[Model, CountingTokenizer]) -> None:
    model, tokenizer = counting
    with (
        serving(model) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        slow = [pool.submit(http.post, "/v1/completions", json=body(f"slow {i}")) for i in "ab"]
        wait_for(lambda: len(tokenizer.seen) == 2)  # both threads are busy
        with raw_post(live, "/v1/completions", body("left")):
            wait_for(lambda: live.service.scheduler.load["waiting"] == 3)
        wait_for(lambda: live.service.scheduler.load["waiting"] == 2)
        tokenizer.released.set()
        assert [one.result().status_code for one in slow] == [200, 200]
    assert "left" not in tokenizer.seen


# More than asyncio and the kernel take unread.
LONG = {"gen_length": 200, "steps": 100, "block_length": 200, "particles": 8, "branching": 2}


def test_a_client_that_never_reads_pauses_its_search() -> None:
    """What the server computes and keeps for it is bounded, and others are served."""
    limits = Limits(send_seconds=1000, unread=4)
    with serving(fake_model(), limits=limits, send_buffer=4096) as live, live.http() as http:
        scheduler = live.service.scheduler
        with raw_post(live, "/v1/search", {"prompt": "x", **LONG}):
            wait_for(lambda: scheduler.load["running"] == 1)
            (ticket,) = scheduler._running.values()
            wait_for(lambda: ticket.told - ticket.read >= limits.unread)
            # Many passes for others, in which this search could take part.
            assert http.post("/v1/completions", json=body("other", **LONG)).status_code == 200
            # It steps at most once more: `advance` may report two steps in one pass.
            assert ticket.told - ticket.read <= limits.unread + 1
            assert scheduler.load["running"] == 1
        wait_for(lambda: scheduler.idle)


def test_a_client_that_never_reads_is_cut() -> None:
    limits = Limits(send_seconds=0.5)
    with serving(fake_model(), limits=limits, send_buffer=4096) as live, live.http() as http:
        with raw_post(live, "/v1/search", {"prompt": "x", **LONG}):
            wait_for(lambda: 'outcome="cancelled"} 1.0' in http.get("/metrics").text)
        assert live.service.scheduler.idle


def test_a_reader_that_is_slow_gets_everything() -> None:
    """Pausing a search changes nothing but its time."""
    with serving(fake_model(), limits=Limits(unread=1)) as live, live.http() as http:
        lines = [{"prompt": "x", "format": "jsonl", **SMALL}, {"prompt": "x", "format": "jsonl"}]
        texts = [http.post("/v1/search", json=one).text.splitlines() for one in lines]
    assert len(texts[0]) == SMALL["steps"] + 2
    for one in texts:
        assert json.loads(one[-1])["event"] == "result"


def hang(released: threading.Event) -> Callable[[str, str, float | None], float]:
    def hangs(prompt: str, text: str, confidence: float | None) -> float:
        released.wait(120)
        return 0.5

    return hangs


def verifier_threads() -> int:
    return sum(one.name.startswith("verifier-") for one in threading.enumerate())


def test_hung_verifiers_are_bounded_while_they_run() -> None:
    released = threading.Event()
    limits = Limits(verifier_seconds=0.5, verifier_calls=4)
    judges = {"hangs": hang(released)}
    most = 0
    with (
        serving(fake_model(), limits=limits, verifiers=judges) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(18) as pool,
    ):
        ask = body("x", verifier="hangs")
        asked = [pool.submit(http.post, "/v1/completions", json=ask) for _ in range(18)]
        while not all(one.done() for one in asked):
            most = max(most, verifier_threads())
            concurrent.futures.wait(asked, timeout=0.02)
        codes = [code(one.result()) for one in asked]
        assert codes.count((504, "verifier_timeout")) == 4
        assert codes.count((503, "verifier_stuck")) == 14
        assert http.post("/v1/completions", json=body("plain")).status_code == 200
        released.set()
        wait_for(lambda: verifier_threads() == 0)
        assert http.post("/v1/completions", json=ask).status_code == 200
    assert most <= 4


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ZeroDivisionError("zebra")])
def test_what_a_verifier_raises_is_an_error_at_once(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")

    def raises(prompt: str, text: str, confidence: float | None) -> float:
        raise error

    # Nobody waits for the time limit of verifiers: the test would fail by its own time limit.
    limits = Limits(verifier_seconds=3000, seconds=3000)
    judges = {"raises": raises}
    with serving(fake_model(), limits=limits, verifiers=judges) as live, live.http() as http:
        answer = http.post("/v1/completions", json=body("question", verifier="raises"))
    assert code(answer) == (500, "verifier_failed")
    assert "zebra" not in answer.text
    log = "\n".join(JsonLines().format(one) for one in caplog.records)
    assert f"{type(error).__name__}: {error}".rstrip(": ") in log


@pytest.mark.parametrize("log_prompts", [False, True])
def test_the_reason_of_a_verifier_is_logged_without_the_prompt(
    log_prompts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")

    def quotes(prompt: str, text: str, confidence: float | None) -> float:
        raise ValueError(f"cannot judge {prompt!r}")

    def absurd(prompt: str, text: str, confidence: float | None) -> float:
        return 7.0

    judges = {"quotes": quotes, "absurd": absurd}
    server = serving(fake_model(), verifiers=judges, log_prompts=log_prompts)
    with server as live, live.http() as http:
        for name in judges:
            answer = http.post("/v1/completions", json=body("hush hush", verifier=name))
            assert "hush" not in answer.text
    log = "\n".join(
        JsonLines().format(one) for one in caplog.records if one.getMessage() == "verifier failed"
    )
    assert "cannot judge" in log
    assert "7.0" in log
    assert ("hush hush" in log) == log_prompts


def test_deadlines_hold_when_the_engine_does_not_answer() -> None:
    model, gate = held_model()
    limits = Limits(seconds=1.0, stall_seconds=0.2)
    with serving(model, limits=limits) as live, live.http() as http:
        answer = http.post("/v1/completions", json=body("x"))
        assert code(answer) == (504, "time_limit")
        health = http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "engine stalled")
        gate.set()
        wait_for(lambda: http.get("/health").status_code == 200)
        live.wait_until_idle()


class Panic(BaseException):
    """As a library that is not written in Python raises: no `Exception`."""


def broken_engine() -> Model:
    model = fake_model()

    def encode(*arguments: Any) -> Any:
        raise Panic

    model.denoiser.encode = encode  # type: ignore[method-assign]
    return model


def test_a_dead_engine_is_told_to_everybody() -> None:
    with serving(broken_engine()) as live, live.http() as http:
        assert http.get("/health").status_code == 200
        assert code(http.post("/v1/completions", json=body("x"))) == (503, "engine_failed")
        health = http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "engine failed")
        assert code(http.post("/v1/completions", json=body("x"))) == (503, "engine_failed")


def test_a_panic_of_the_tokenizer_ends_one_request_only(live: Live) -> None:
    class Panicking(ByteTokenizer):
        def chat(self, user: str, prefill: str = "") -> list[int]:
            if "panic" in user:
                raise Panic
            return super().chat(user, prefill)

    with serving(replace(fake_model(), tokenizer=Panicking())) as own, own.http() as http:
        assert code(http.post("/v1/completions", json=body("panic"))) == (500, "internal_error")
        assert http.post("/v1/completions", json=body("calm")).status_code == 200
        assert http.get("/health").status_code == 200
