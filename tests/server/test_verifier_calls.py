"""Verifiers in threads of their own: shared, bounded, abandoned when they hang, and never waited for."""

from __future__ import annotations

import concurrent.futures
import json
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.engine import Job
from s3dlm.job import prepare
from s3dlm.search import score
from s3dlm.search.score import Verify
from s3dlm.server import batching
from s3dlm.server.batching import ServerBatcher
from s3dlm.server.limits import share
from s3dlm.settings import Settings
from s3dlm.verifier.base import Score, Verifier
from tests.fakes import fake_model
from tests.server.live import (
    SMALL,
    Live,
    alone,
    code,
    logged,
    patient,
    raw_post,
    serving,
    text,
    wait_for,
)

WIDE = {"temperature": 1.0, "particles": 8, "branching": 8, "look_aheads": 4}


class Batched(Verifier):
    """A verifier that takes many texts at once and works only while its gate is open."""

    def __init__(self) -> None:
        self.gate, self.calls = threading.Event(), list[set[str]]()

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return self.score_batch([prompt], [text], [confidence])[0]

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        self.calls.append(set(prompts))
        assert self.gate.wait(900)
        if "bad" in prompts:
            raise ZeroDivisionError("secret")
        return [Score(1 / (1 + len(text))) for text in texts]


def test_searches_share_a_verifier_call_that_holds_nobody_else_up() -> None:
    judge = Batched()
    with serving(verifiers={"batched": judge}) as live:
        first = live.later("q0", verifier="batched")
        wait_for(lambda: len(judge.calls) == 1)  # it is at work, and waits
        others = [live.later(prompt, verifier="batched") for prompt in ("q1", "q2", "bad")]
        wait_for(lambda: unscored(live) == 4)
        assert live.ask("others").status_code == 200
        assert len(judge.calls) == 1
        judge.gate.set()
        answers = [future.result() for future in (first, *others)]
        live.wait_until_idle()
    assert {"q1", "q2", "bad"} <= judge.calls[1]  # those that came meanwhile shared the next call
    assert code(answers.pop()) == (500, "verifier_failed")
    for number, answer in enumerate(answers):
        assert text(answer) == alone(f"q{number}", verifier=judge).text


def unscored(live: Live) -> int:
    """Searches that wait for scores."""
    return sum(isinstance(each.request, Verify) for each in live.scheduler.batcher.running.values())


def test_who_leaves_a_shared_verifier_call_leaves_it_alone() -> None:
    judge, model, results = Batched(), fake_model(), list[Any]()
    batcher = ServerBatcher(model, lambda: None, patient())
    settings = Settings.from_json({"method": "s3", **SMALL})
    for prompt in ("stays", "leaves"):
        batcher.start(prepare(model, Job(prompt, None, settings, verifier=judge)))
    batcher.step()
    batcher.collect()
    wait_for(lambda: judge.calls == [{"stays", "leaves"}])
    batcher.remove(1)
    assert batcher.stuck == 0  # somebody still waits for it
    judge.gate.set()
    while batcher.running:
        results += [event for _, event in (batcher.step() if batcher.rows else batcher.collect())]
    assert results[-1].text == alone("stays", verifier=judge).text
    assert (batcher.stuck, batcher.calls) == (0, {})
    assert not any("leaves" in prompts for prompts in judge.calls[1:])


def verifier_threads() -> int:
    return sum(thread.name.startswith("verifier-") for thread in threading.enumerate())


def test_hung_verifiers_are_bounded_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "ENDING_SECONDS", 0.0)
    released, most = threading.Event(), 0

    def hangs(prompt: str, text: str, confidence: float | None) -> float:
        released.wait(900)
        return 0.5

    limits = patient(verifier_seconds=2, verifier_calls=4)
    with serving(limits=limits, verifiers={"hangs": hangs}) as live:
        asked = [live.later("x", verifier="hangs") for _ in range(18)]
        while not all(future.done() for future in asked):
            most = max(most, verifier_threads())
            concurrent.futures.wait(asked, timeout=0.02)
        codes = [code(future.result()) for future in asked]
        # One client leaves some to others.
        assert codes.count((504, "verifier_timeout")) == share(4)
        assert codes.count((503, "verifier_stuck")) == 18 - share(4)
        assert live.ask("plain").status_code == 200
        released.set()
        wait_for(lambda: verifier_threads() == 0)
    assert most <= 4


@pytest.mark.parametrize(("places", "others"), [(1, 503), (4, 200)])
def test_calls_that_hang_leave_places_to_other_verifiers_and_to_other_clients(
    places: int, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A call that nobody waits for counts as hung at once.
    monkeypatch.setattr(batching, "ENDING_SECONDS", -patient().verifier_seconds)
    released = threading.Event()

    def judge(prompt: str, text: str, confidence: float | None) -> float:
        if prompt == "hang":
            assert released.wait(900)
        return 0.5

    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    limits = patient(verifier_calls=places)
    with (
        serving(limits=limits, verifiers={"judge": judge}) as live,
        httpx.Client(base_url=live.url, transport=transport, timeout=900) as other,
    ):
        for more in range(1, share(places) + 1):  # clients of one address leave calls behind
            with raw_post(live, "/v1/search", prompt="hang", verifier="judge"):
                wait_for(lambda: verifier_threads() == more)  # noqa: B023
            wait_for(lambda: live.scheduler.batcher.stuck == more)  # noqa: B023
        assert code(live.ask("x", verifier="judge")) == (503, "verifier_stuck")
        assert live.ask("x").status_code == 200
        body = {"model": "fake", "prompt": "x", "verifier": "judge"}
        assert other.post("/v1/completions", json=body).status_code == others
        released.set()
        wait_for(lambda: verifier_threads() == 0)
        assert live.ask("x", verifier="judge").status_code == 200


def test_an_abandoned_call_ends_before_its_next_text_and_gives_up_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that is about to end is not hung: others wait for its place and are not refused."""
    monkeypatch.setattr(batching, "ENDING_SECONDS", 3000.0)
    may_score, slow = threading.Semaphore(1), list[str]()  # all particles begin with one text

    def judge(prompt: str, text: str, confidence: float | None) -> float:
        if prompt == "slow":
            slow.append(text)
            assert may_score.acquire(timeout=900)
        return 0.5

    limits = patient(verifier_calls=1)
    with serving(limits=limits, verifiers={"judge": judge}) as live:
        with raw_post(live, "/v1/search", prompt="slow", verifier="judge", **WIDE):
            wait_for(lambda: len(slow) == 2)
        wait_for(lambda: live.scheduler.batcher.stuck == 1)
        waits = live.later("fast", verifier="judge")
        wait_for(lambda: live.scheduler.batcher.pending())
        may_score.release()  # one text: the others of its step are not begun
        assert waits.result().status_code == 200
    assert len(slow) == 2


def test_many_look_aheads_hold_nobody_up_and_end_with_their_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_score, wide, sizes, made = threading.Semaphore(1), list[str](), set[int](), list[int]()
    original, look_aheads = score._checked_call, MaskedDiffusion.look_aheads

    def counted(process: MaskedDiffusion, *arguments: Any) -> Any:
        for clean in look_aheads(process, *arguments):
            if process.sampled_looks:
                made.append(len(clean.tokens))
            yield clean

    def held(request: score.Verify, rows: Any) -> Any:
        if rows[0][0] == "wide":
            asked = [each.request for each in [*live.scheduler.batcher.running.values()]]
            sizes.update(len(each.texts) for each in asked if isinstance(each, score.Verify))
            wide.append(rows[0][1])
            assert may_score.acquire(timeout=900)
        return original(request, rows)

    monkeypatch.setattr(score, "_checked_call", held)
    monkeypatch.setattr(MaskedDiffusion, "look_aheads", counted)
    with serving() as live:
        with raw_post(live, "/v1/search", prompt="wide", **WIDE):
            wait_for(lambda: len(wide) == 2)
            assert live.ask("other").status_code == 200  # within a step of the wide one
            assert live.http.get("/health").status_code == 200
        live.wait_until_idle()
        may_score.release(1000)
        wait_for(lambda: verifier_threads() == 0)
    assert len(wide) == 2
    assert max(sizes) <= score.PORTION
    # The first look-ahead of all, and of the step that is cut the first portion.
    assert made == [8, 64]


def test_what_a_verifier_raises_is_an_error_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, without the prompt, and the client is told nothing of it."""
    errors = (SystemExit(3), KeyboardInterrupt(), ValueError("cannot judge 'hush hush'"))

    def failing(error: BaseException) -> Any:
        def fails(prompt: str, text: str, confidence: float | None) -> float:
            raise error

        return fails

    judges = {type(error).__name__: failing(error) for error in errors}
    judges["absurd"] = lambda *_: 7.0
    # Nobody waits for the time limit of verifiers: the test would fail by its own time limit.
    with serving(verifiers=judges) as live:
        answers = [live.ask("hush hush", verifier=name) for name in judges]
    assert {code(answer) for answer in answers} == {(500, "verifier_failed")}
    assert not any("hush" in answer.text or "judge" in answer.text for answer in answers)
    reasons = json.dumps([line for line in logged(caplog) if line["event"] == "verifier failed"])
    for words in ("SystemExit: 3", "KeyboardInterrupt: ", "ValueError: cannot judge", "7.0"):
        assert words in reasons
    assert "hush hush" not in reasons
