"""Sharing forwards: equal to alone, freed when the client leaves, bounded, cut off, ended in peace."""

from __future__ import annotations

import concurrent.futures
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx
import openai
import pytest

import s3dlm
from s3dlm.engine import Job
from s3dlm.search.methods import METHODS
from s3dlm.server.limits import Limits
from s3dlm.settings import Settings, only_used
from s3dlm.verifier.base import Score
from tests.fakes import FakeDenoiser, fake_model
from tests.server.held import held_model
from tests.server.live import SMALL, Live, raw_post, serve_process, serving, wait_for

SLOW = {"gen_length": 120, "steps": 120, "block_length": 120, "particles": 4, "branching": 4}


def body(question: str, **extra: object) -> dict[str, object]:
    return {"model": "fake", "prompt": question, **extra}


def test_64_concurrent_requests_equal_each_alone(live: Live) -> None:
    methods = ["s3", "best_of_k", "tilting", "look_ahead", "twisted", "baseline"]
    asked = [
        (
            f"question {i % 40}",
            {
                **only_used(METHODS[methods[i % 6]], SMALL),
                "method": methods[i % 6],
                "seed": i % 3,
                "steps": 3 + i % 5,
            },
        )
        for i in range(64)
    ]
    with live.http() as http, concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(
            pool.map(
                lambda one: http.post("/v1/completions", json=body(one[0], **one[1])).json(), asked
            )
        )
    model = fake_model()
    for (question, settings), answer in zip(asked, answers, strict=True):
        alone = s3dlm.generate(model, question, settings=Settings.from_json(settings))
        assert answer["choices"][0]["text"] == alone.text
        assert answer["usage"]["nfe"] == alone.nfe


def test_concurrent_requests_share_forwards() -> None:
    model, gate = held_model()
    with (
        serving(model) as live,
        concurrent.futures.ThreadPoolExecutor(9) as pool,
        live.http() as http,
    ):
        done = [pool.submit(http.post, "/v1/completions", json=body("question 0"))]
        # The first is held inside its forward, the other eight wait and then go together.
        assert model.denoiser.entered.wait(60)  # type: ignore[attr-defined]
        done += [
            pool.submit(http.post, "/v1/completions", json=body(f"question {i}"))
            for i in range(1, 9)
        ]
        live.wait_for_queue(8)
        gate.set()
        assert all(one.result().status_code == 200 for one in done)
    assert isinstance(model.denoiser, FakeDenoiser)
    assert model.denoiser.calls <= 9, "nine searches of seven passes should share nearly all"


def test_a_bad_request_beside_a_running_one_harms_nobody() -> None:
    model, gate = held_model()
    with (
        serving(model) as live,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        live.http() as http,
    ):
        good = pool.submit(http.post, "/v1/completions", json=body("question 0"))
        assert model.denoiser.entered.wait(60)  # type: ignore[attr-defined]
        bad = http.post("/v1/completions", json=body("x", method="best", ess_threshold=0.5))
        assert bad.status_code == 400
        gate.set()
        assert good.result().status_code == 200
        assert http.post("/v1/completions", json=body("question 1")).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_search(stream: bool) -> None:
    model, gate = held_model()
    with serving(model) as live:
        scheduler = live.service.scheduler
        with raw_post(live, "/v1/completions", body("long", **SLOW, stream=stream)):
            wait_for(lambda: scheduler.load["running"] == 1)
            (ticket,) = scheduler._running.values()
        wait_for(lambda: ticket.cancelled)
        gate.set()
        live.wait_until_idle()
        assert live.service.metrics.ended.labels("s3", "cancelled")._value.get() == 1


def test_a_client_that_leaves_the_queue_is_never_started() -> None:
    model, gate = held_model()
    with (
        serving(model, limits=Limits(running=1)) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        scheduler = live.service.scheduler
        first = pool.submit(http.post, "/v1/completions", json=body("first"))
        assert model.denoiser.entered.wait(60)  # type: ignore[attr-defined]
        with raw_post(live, "/v1/completions", body("second")):
            live.wait_for_queue(1)
        wait_for(lambda: any(ticket.cancelled for ticket in scheduler._waiting))
        gate.set()
        assert first.result().status_code == 200
        live.wait_until_idle()
        assert b"s3dlm_queue_seconds_count 1.0" in live.service.metrics.text()


def test_a_full_queue_says_when_to_come_back() -> None:
    model, gate = held_model()
    with (
        serving(model, limits=Limits(running=1, waiting=2)) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(3) as pool,
    ):
        running = pool.submit(http.post, "/v1/completions", json=body("a"))
        wait_for(lambda: live.service.scheduler.load["running"] == 1)
        waiting = [pool.submit(http.post, "/v1/completions", json=body(q)) for q in "bc"]
        wait_for(lambda: live.service.scheduler.load["waiting"] == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            live.client().completions.create(model="fake", prompt="d")
        assert int(caught.value.response.headers["retry-after"]) >= 1
        assert caught.value.code == "queue_full"
        gate.set()
        assert [one.result().status_code for one in (running, *waiting)] == [200] * 3
        assert http.post("/v1/completions", json=body("d")).status_code == 200


def test_time_limit() -> None:
    model, gate = held_model()
    with serving(model, limits=Limits(seconds=0.2)) as live, live.http() as http:
        answer = http.post("/v1/completions", json=body("long"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "time_limit")
        assert answer.headers["x-should-retry"] == "false"
        lines = http.post("/v1/completions", json=body("long", stream=True)).text
        assert "longer than this server's limit of 0.2 s" in lines
        gate.set()
        live.wait_until_idle()


def test_a_verifier_that_hangs_is_cut_off_and_holds_nobody_up() -> None:
    release = threading.Event()

    def hangs(prompt: str, text: str, confidence: float | None) -> float:
        if "hang" in prompt:
            release.wait(120)
        return 0.5

    def breaks(prompt: str, text: str, confidence: float | None) -> float:
        raise ZeroDivisionError("secret")

    limits = Limits(verifier_seconds=1, verifier_calls=2)
    judges = {"hangs": hangs, "breaks": breaks}
    with serving(fake_model(), limits=limits, verifiers=judges) as live, live.http() as http:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            hung = pool.submit(http.post, "/v1/completions", json=body("hang", verifier="hangs"))
            wait_for(lambda: live.service.scheduler.load["running"] == 1)
            assert http.post("/v1/completions", json=body("others")).status_code == 200
            answer = hung.result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "verifier_timeout")
        live.wait_until_idle()
        fine = http.post("/v1/completions", json=body("fine", verifier="hangs"))
        assert fine.json()["choices"][0]["search"]["score"] == 0.5
        assert http.post("/v1/completions", json=body("hang", verifier="hangs")).status_code == 504
        refused = http.post("/v1/completions", json=body("fine", verifier="hangs"))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "verifier_stuck")
        assert http.post("/v1/completions", json=body("others")).status_code == 200
        release.set()
        wait_for(lambda: live.service.scheduler._batcher.stuck == 0)
        assert http.post("/v1/completions", json=body("fine", verifier="hangs")).status_code == 200
        broken = http.post("/v1/completions", json=body("x", verifier="breaks"))
        assert broken.status_code == 500
        assert broken.json()["error"]["code"] == "verifier_failed"


def test_a_foreign_verifier_changes_nothing_but_the_thread(live: Live) -> None:
    """A search whose verifier works in a thread of its own answers what it would have alone."""

    def short(prompt: str, text: str, confidence: float | None) -> float:
        return 1 / (1 + len(text))

    with (
        serving(fake_model(), verifiers={"short": short}) as own,
        own.http() as http,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        answers = list(
            pool.map(
                lambda i: http.post(
                    "/v1/completions", json=body(f"q{i}", verifier="short" if i % 2 else None)
                ).json(),
                range(8),
            )
        )
    for i, answer in enumerate(answers):
        alone = s3dlm.generate(
            fake_model(), f"q{i}", settings=Settings(**SMALL), verifier=short if i % 2 else None
        )
        assert answer["choices"][0]["text"] == alone.text


class Batched:
    """A verifier that takes many texts at once and works only while its gate is open."""

    def __init__(self) -> None:
        self.gate, self.calls = threading.Event(), list[set[str]]()

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return self.score_batch([prompt], [text], [confidence])[0]

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        self.calls.append(set(prompts))
        assert self.gate.wait(60)
        if "bad" in prompts:
            raise ZeroDivisionError("secret")
        return [Score(1 / (1 + len(text))) for text in texts]


def test_searches_share_a_verifier_call_that_holds_nobody_else_up() -> None:
    judge = Batched()
    with (
        serving(fake_model(), verifiers={"batched": judge}) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):

        def ask(question: str) -> concurrent.futures.Future[httpx.Response]:
            given = body(question, verifier="batched")
            return pool.submit(http.post, "/v1/completions", json=given)

        first = ask("q0")
        wait_for(lambda: len(judge.calls) == 1)  # it is at work, and waits
        later = [ask("q1"), ask("q2"), ask("bad")]
        scheduler = live.service.scheduler
        wait_for(lambda: sum(bool(o.unscored) for o in scheduler._batcher.running.values()) == 4)
        assert http.post("/v1/completions", json=body("others")).status_code == 200
        assert len(judge.calls) == 1
        judge.gate.set()
        answers = [one.result() for one in (first, *later)]
        live.wait_until_idle()
    assert {"q1", "q2", "bad"} <= judge.calls[1]  # those that came meanwhile shared the next call
    assert answers[-1].json()["error"]["code"] == "verifier_failed"
    for number, answer in enumerate(answers[:-1]):
        alone = s3dlm.generate(
            fake_model(), f"q{number}", settings=Settings(**SMALL), verifier=judge
        )
        assert answer.json()["choices"][0]["text"] == alone.text


def test_who_leaves_a_shared_verifier_call_leaves_it_alone() -> None:
    judge = Batched()
    limits = Limits(verifier_seconds=120, seconds=120)
    with (
        serving(fake_model(), limits=limits, verifiers={"batched": judge}) as live,
        live.http() as http,
        concurrent.futures.ThreadPoolExecutor(2) as pool,
    ):
        batcher = live.service.scheduler._batcher
        stays = pool.submit(http.post, "/v1/completions", json=body("q", verifier="batched"))
        wait_for(lambda: len(judge.calls) == 1)
        leaves = live.service.scheduler.submit(
            [Job("left", None, Settings(**SMALL), verifier=judge)], lambda *_: None, watched=False
        )
        wait_for(lambda: sum(bool(one.unscored) for one in batcher.running.values()) == 2)
        live.service.scheduler.cancel(leaves)
        wait_for(lambda: len(batcher.running) == 1)
        judge.gate.set()
        assert stays.result().status_code == 200
        live.wait_until_idle()
        assert (batcher.stuck, batcher.calls) == (0, {})
    assert not any("left" in prompts for prompts in judge.calls)


def test_a_model_that_fails_is_told_without_a_traceback() -> None:
    model = fake_model()

    def broken(*arguments: object) -> object:
        raise RuntimeError("secret detail")

    model.denoiser.encode = broken  # type: ignore[method-assign,assignment]
    with serving(model) as live, live.http() as http:
        answer = http.post("/v1/completions", json=body("x"))
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        live.wait_until_idle()


def test_sigterm_lets_running_requests_finish(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with serve_process("--gate", str(gate)) as (process, address):
        with (
            httpx.Client(base_url=address, timeout=120, verify=False) as http,
            concurrent.futures.ThreadPoolExecutor(1) as pool,
        ):
            running = pool.submit(http.post, "/v1/completions", json=body("long"))
            wait_for(lambda: _running(http) == 1)
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: http.get("/health").status_code == 503)
            refused = http.post("/v1/completions", json=body("new"))
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "shutting_down"
            gate.touch()
            assert running.result().status_code == 200
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert '"event": "draining"' in log
    assert '"event": "stopped"' in log
    assert "long" not in log, "prompts are not logged unless asked"


def _running(http: httpx.Client) -> int:
    for line in http.get("/metrics").text.splitlines():
        if line.startswith("s3dlm_searches_running "):
            return int(float(line.split()[1]))
    return 0
