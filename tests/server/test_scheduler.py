"""Sharing forwards: equal to alone, freed when the client leaves, bounded, ended in peace; and what fails or is slow
harms nobody else."""

from __future__ import annotations

import json
import logging
import signal
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
from prometheus_client import generate_latest

from s3dlm.engine import Job
from s3dlm.job import prepare
from s3dlm.server.reporting import ApiError, Metrics
from s3dlm.server.scheduler import Scheduler
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer, FakeDenoiser, fake_model
from tests.server.live import (
    LARGE,
    Live,
    alone,
    changed_model,
    code,
    held_model,
    logged,
    new_client,
    patient,
    raw_post,
    serve_process,
    serving,
    text,
    wait_for,
)
from tests.server.serve_fake import Panic

SLOW = {"gen_length": 120, "steps": 120, "block_length": 120, "particles": 4, "branching": 4}


def test_64_concurrent_requests_equal_each_alone(live: Live) -> None:
    methods = ["s3", "best_of_k", "tilting", "top_n", "twisted", "baseline"]
    asked = []
    for i in range(64):
        method = methods[i % 6]
        own = {"method": method, "seed": i % 3, "steps": 3 + i % 5}
        asked.append((f"question {i % 40}", own))
    futures = [live.later(question, **own) for question, own in asked]
    for (question, own), future in zip(asked, futures, strict=True):
        expected = alone(question, **own)
        assert text(future.result()) == expected.text
        assert future.result().json()["usage"]["nfe"] == expected.nfe


def test_concurrent_requests_share_forwards() -> None:
    model, gate = held_model()
    with serving(model) as live:
        done = [live.later("question 0")]
        # The first is held inside its forward, the other eight wait and then go together.
        gate.wait_until_reached()
        done += [live.later(f"question {i}") for i in range(1, 9)]
        live.wait_for_queue(8)
        gate.set()
        assert all(future.result().status_code == 200 for future in done)
    assert isinstance(model.denoiser, FakeDenoiser)
    assert model.denoiser.calls <= 9, "nine searches of seven passes should share nearly all"


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_search_and_is_never_started_from_the_queue(
    stream: bool,
) -> None:
    model, gate = held_model()
    own = {"model": "fake", "prompt": "x", **SLOW, "stream": stream}
    with serving(model, limits=patient(running=1)) as live:
        with raw_post(live, "/v1/completions", **own):
            wait_for(lambda: live.scheduler.load["running"] == 1)
            (ticket,) = live.scheduler.running.values()
            with raw_post(live, "/v1/completions", **own):
                live.wait_for_queue(1)
            wait_for(lambda: live.scheduler.load["waiting"] == 0)
        wait_for(lambda: ticket.cancelled)
        gate.set()
        live.wait_until_idle()
        assert live.service.metrics.ended.labels("s3", "cancelled")._value.get() == 1
        told = generate_latest(live.service.metrics)
        assert b's3dlm_queue_seconds_count{model="fake"} 1.0' in told


def test_a_full_queue_says_when_to_come_back_and_one_client_leaves_places_to_others() -> None:
    model, gate = held_model()
    job = Job("x", None, alone("x").settings)
    with serving(model, limits=patient(running=1, waiting=4)) as live:
        asked = [live.later("a")]
        gate.wait_until_reached()
        asked += [live.later(name) for name in "bcd"]
        live.wait_for_queue(3)
        with pytest.raises(
            openai.RateLimitError, match="your share of the queue is full: 3"
        ) as caught:
            live.client().completions.create(model="fake", prompt="e")
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.code == "queue_full"
        submit = partial(live.scheduler.submit, [job], lambda *_: None, watched=False)
        submit(client="other")
        with pytest.raises(ApiError, match="the queue is full: 4 searches wait"):
            submit(client="third")
        gate.set()
        assert [future.result().status_code for future in asked] == [200] * 4
        live.wait_until_idle()


@pytest.mark.parametrize(
    ("proxies", "clients"),
    [
        ([], {"127.0.0.1"}),
        (["127.0.0.1"], {"10.0.0.1", "10.0.0.2"}),  # whatever a client wrote before it
        (["10.0.0.0/8"], {"127.0.0.1"}),
    ],
)
def test_only_a_proxy_that_is_named_says_who_asks(proxies: list[str], clients: set[str]) -> None:
    model, gate = held_model()
    body = {"model": "fake", "prompt": "x"}
    with serving(model, proxies=proxies) as live:
        for place in (1, 2):
            told = {"X-Forwarded-For": f"1.2.3.{place}, 10.0.0.{place}"}
            live.pool.submit(live.http.post, "/v1/completions", json=body, headers=told)
        wait_for(lambda: sum(live.scheduler.load.values()) == 2)
        tickets = [*live.scheduler.waiting, *live.scheduler.running.values()]
        assert {ticket.client for ticket in tickets} == clients
        gate.set()
        live.wait_until_idle()


def test_the_memory_of_searches_is_bounded_for_each_and_for_all() -> None:
    """One whose memo finds no room waits; a search that keeps nothing does not wait for it."""
    limits = patient(memo=60, memos=200)
    with serving(limits=limits) as live:
        told = live.ask("x", method="revise", memo=1_048_576).json()["error"]["message"]
        assert told.startswith("memo=1048576 is more than this server's limit of 60")
        default = live.post("/v1/settings", prompt="x", method="revise").json()["settings"]
        assert default["memo"] == 60
    queue = Scheduler(model := fake_model(), limits, Metrics("fake"))
    asked = ("a revise", "a revise", "b revise", "c revise", "d revise", "e baseline")
    for client, method in map(str.split, asked):
        job = Job("x", None, Settings(method, **({"memo": 60} if method == "revise" else {})))
        (ticket,) = queue.submit([job], lambda *_: None, watched=False, client=client)
        ticket.prepared = prepare(model, job)
    queue._start_waiting()
    assert [ticket.client for ticket in queue.running.values()] == ["a", "b", "c", "e"]
    assert [ticket.client for ticket in queue.waiting] == ["a", "d"]


def test_sigterm_lets_running_requests_finish(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with serve_process(gate=str(gate)) as (process, address):
        with (
            new_client(address) as http,
            raw_post(address, "/v1/completions", model="fake", prompt="long") as running,
        ):
            wait_for(
                lambda: '\ns3dlm_searches_running{model="fake"} 1.0' in http.get("/metrics").text
            )
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: http.get("/health").status_code == 503)
            refused = http.post("/v1/completions", json={"model": "fake", "prompt": "new"})
            assert code(refused) == (503, "shutting_down")
            gate.touch()
            assert running.recv(12) == b"HTTP/1.1 200"
        _, log = process.communicate(timeout=900)
    assert process.returncode == 0
    assert '"event": "draining"' in log
    assert '"event": "stopped"' in log
    assert "long" not in log, "prompts are not logged unless asked"


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
    limits = patient(unread=1)
    with serving(limits=limits, send_buffer=4096) as live:
        # Who reads gets everything: pausing a search changes nothing but its time.
        assert json.loads(live.lines("x")[-1])["text"] == alone("x").text
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
    with serving(limits=patient(send_seconds=0.5), send_buffer=4096) as live:
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
