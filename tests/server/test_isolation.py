"""One request's prompt, failure or slowness stays its own."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.fakes import ByteTokenizer, fake_model
from tests.server.live import (
    LARGE,
    alone,
    changed_model,
    code,
    held_model,
    logged,
    patient,
    raw_post,
    serving,
    wait_for,
)
from tests.server.serve_fake import Panic

POISON = "\x01"
SECRET = f"the secret {POISON} question"
LONG = {**LARGE, "steps": 100, "particles": 8}


@pytest.mark.parametrize("how", ["nan", "raises"])
def test_a_failing_prompt_harms_nobody_and_is_told_to_nobody(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="s3dlm.server")
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
    prompts = ["question 0", "question 1", SECRET, "question 2", "question 3"]
    with serving(model) as live:
        first = live.later(prompts[0])
        gate.wait_until_reached()
        others = [live.later(prompt) for prompt in prompts[1:]]
        live.wait_for_queue(4)  # so that all share a pass
        gate.set()
        answers = [future.result() for future in (first, *others)]
    for prompt, answer in zip(prompts, answers, strict=True):
        assert answer.status_code == (500 if prompt == SECRET else 200)
        if prompt != SECRET:
            assert "secret" not in answer.text
            assert answer.json()["choices"][0]["text"] == alone(prompt).text
    log = json.dumps(logged(caplog))
    assert "forward pass failed" in log
    assert "secret" not in log
    assert "question" not in log


class WatchedTokenizer(ByteTokenizer):
    """Counts prompts, holds back those that begin with "slow" until it is released, and panics."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.released = threading.Event()

    def chat(self, user: str, prefill: str = "") -> list[int]:
        self.seen.append(user)
        if user.startswith("slow"):
            self.released.wait(900)
        if user == "panic":
            raise Panic
        return super().chat(user, prefill)


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised() -> None:
    """And one that fits is tokenised once for all its choices; a panic ends one request only."""
    tokenizer = WatchedTokenizer()
    with serving(replace(fake_model(), tokenizer=tokenizer)) as live:
        assert code(live.ask("panic")) == (500, "internal_error")
        assert len(live.ask("question", n=16).json()["choices"]) == 16
        answer = live.ask("a" * 1_000_000, n=16)
        assert code(answer) == (400, "invalid_prompt")
        assert "at most 8192 characters" in answer.json()["error"]["message"]
        messages = [{"role": "user", "content": "a" * 5000} for _ in range(3)]
        chat = live.post("/v1/chat/completions", model="fake", messages=messages)
        assert code(chat) == (400, "invalid_prompt")
    assert tokenizer.seen == ["panic", "question"]


def test_a_slow_tokenizer_holds_nobody_up_and_works_for_nobody_who_left() -> None:
    tokenizer = WatchedTokenizer()
    with serving(replace(fake_model(), tokenizer=tokenizer)) as live:
        slow = [live.later("slow a")]
        wait_for(lambda: tokenizer.seen == ["slow a"])
        assert live.ask("other").status_code == 200
        slow.append(live.later("slow b"))
        wait_for(lambda: len(tokenizer.seen) == 3)  # both threads are busy
        assert not any(each.done() for each in slow)
        with raw_post(live, "/v1/completions", model="fake", prompt="left"):
            wait_for(lambda: live.scheduler.load["waiting"] == 3)
        wait_for(lambda: live.scheduler.load["waiting"] == 2)
        tokenizer.released.set()
        assert [future.result().status_code for future in slow] == [200, 200]
    assert "left" not in tokenizer.seen


def test_a_client_that_never_reads_pauses_its_search() -> None:
    """What the server computes and keeps for it is bounded, and others are served."""
    limits = patient(unread=4)
    with serving(limits=limits, send_buffer=4096) as live:
        with raw_post(live, "/v1/search", prompt="x", **LONG):
            wait_for(lambda: live.scheduler.load["running"] == 1)
            (ticket,) = live.scheduler.running.values()
            wait_for(lambda: ticket.told - ticket.read >= limits.unread)
            # Many passes for others, in which this search could take part.
            assert live.ask("other", **LONG).status_code == 200
            # It steps at most once more: `advance` may report two steps in one pass.
            assert ticket.told - ticket.read <= limits.unread + 1
            assert live.scheduler.load["running"] == 1
        live.wait_until_idle()


def test_a_client_that_never_reads_is_cut() -> None:
    limits = patient(send_seconds=0.5, unread=1)
    with serving(limits=limits, send_buffer=4096) as live:
        # Who reads gets everything: pausing a search changes nothing but its time.
        assert json.loads(live.lines("x")[-1])["text"] == alone("x").text
        with raw_post(live, "/v1/search", prompt="x", **LONG):
            wait_for(lambda: 'outcome="cancelled"} 1.0' in live.http.get("/metrics").text)
        assert live.scheduler.idle


def test_deadlines_hold_when_the_engine_does_not_answer() -> None:
    model, gate = held_model()
    with serving(model, limits=patient(seconds=1.0, stall_seconds=0.2)) as live:
        answer = live.ask("x")
        assert code(answer) == (504, "time_limit")
        assert answer.headers["x-should-retry"] == "false"
        assert "longer than this server's limit of 1 s" in live.ask("x", stream=True).text
        health = live.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "engine stalled")
        gate.set()
        wait_for(lambda: live.http.get("/health").status_code == 200)
        live.wait_until_idle()


def test_a_dead_engine_is_told_to_everybody() -> None:
    def panics(tokens: Any) -> None:
        raise Panic

    with serving(changed_model(panics)) as live:
        assert live.http.get("/health").status_code == 200
        assert code(live.ask("x")) == (503, "engine_failed")
        health = live.http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "engine failed")
        assert code(live.ask("x")) == (503, "engine_failed")
