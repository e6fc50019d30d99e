"""Sharing forwards: equal to alone, freed when the client leaves, bounded, cut off, ended in peace."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import openai
import pytest
from prometheus_client import generate_latest

from s3dlm.engine import Job
from s3dlm.job import prepare
from s3dlm.server.reporting import ApiError, Metrics
from s3dlm.server.scheduler import Scheduler
from s3dlm.settings import Settings
from tests.fakes import FakeDenoiser, fake_model
from tests.server.live import (
    Live,
    alone,
    code,
    held_model,
    new_client,
    patient,
    raw_post,
    serve_process,
    serving,
    text,
    wait_for,
)

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
    with serve_process("--gate", str(gate)) as (process, address):
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
