"""One request's prompt, failure or slowness stays its own."""

from __future__ import annotations

import concurrent.futures
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from s3dlm.diffusion.masked import MaskedDiffusion
from s3dlm.models.base import Model
from s3dlm.search import score
from s3dlm.server import batching
from s3dlm.server.limits import Limits, share
from tests.fakes import ByteTokenizer, fake_model
from tests.server.live import (
    SMALL,
    Gate,
    Live,
    alone,
    changed_model,
    code,
    held_model,
    logged,
    raw_post,
    serving,
    wait_for,
)

POISON = "\x01"
SECRET = f"the secret {POISON} question"
WIDE = {"temperature": 1.0, "particles": 8, "branching": 8, "look_aheads": 4}
# More than asyncio and the kernel take unread.
LONG = {"gen_length": 200, "steps": 100, "block_length": 200, "particles": 8, "branching": 2}


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="s3dlm.server")
    return caplog


def poisoned(how: str) -> tuple[Model, Gate]:
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
    how: str, lines: pytest.LogCaptureFixture
) -> None:
    model, gate = poisoned(how)
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
    log = json.dumps(logged(lines))
    assert "forward pass failed" in log
    assert "secret" not in log
    assert "question" not in log


def test_a_model_that_fails_is_told_without_a_traceback() -> None:
    def broken(tokens: Any) -> None:
        raise RuntimeError("secret detail")

    with serving(changed_model(broken)) as live:
        answer = live.ask("x")
        assert code(answer) == (500, "internal_error")
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        live.wait_until_idle()


class Panic(BaseException):
    """As a library that is not written in Python raises: no `Exception`."""


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


@pytest.fixture
def watched() -> tuple[Model, WatchedTokenizer]:
    tokenizer = WatchedTokenizer()
    return replace(fake_model(), tokenizer=tokenizer), tokenizer


Watched = tuple[Model, WatchedTokenizer]


def test_a_prompt_is_tokenised_once_for_all_its_choices(watched: Watched) -> None:
    model, tokenizer = watched
    with serving(model) as live:
        assert len(live.ask("question", n=16).json()["choices"]) == 16
    assert tokenizer.seen == ["question"]


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_tokenised(watched: Watched) -> None:
    model, tokenizer = watched
    with serving(model) as live:
        answer = live.ask("a" * 1_000_000, n=16)
        assert code(answer) == (400, "invalid_prompt")
        assert "at most 8192 characters" in answer.json()["error"]["message"]
        messages = [{"role": "user", "content": "a" * 5000} for _ in range(3)]
        chat = live.post("/v1/chat/completions", model="fake", messages=messages)
        assert code(chat) == (400, "invalid_prompt")
    assert tokenizer.seen == []


def test_a_slow_tokenizer_holds_nobody_up(watched: Watched) -> None:
    model, tokenizer = watched
    with serving(model) as live:
        slow = live.later("slow")
        wait_for(lambda: tokenizer.seen == ["slow"])
        assert live.ask("other").status_code == 200
        assert not slow.done()
        tokenizer.released.set()
        assert slow.result().status_code == 200


def test_a_client_that_left_is_not_tokenised(watched: Watched) -> None:
    model, tokenizer = watched
    with serving(model) as live:
        slow = [live.later(f"slow {name}") for name in "ab"]
        wait_for(lambda: len(tokenizer.seen) == 2)  # both threads are busy
        with raw_post(live, "/v1/completions", model="fake", prompt="left"):
            wait_for(lambda: live.scheduler.load["waiting"] == 3)
        wait_for(lambda: live.scheduler.load["waiting"] == 2)
        tokenizer.released.set()
        assert [future.result().status_code for future in slow] == [200, 200]
    assert "left" not in tokenizer.seen


def test_a_panic_of_the_tokenizer_ends_one_request_only(watched: Watched) -> None:
    with serving(watched[0]) as live:
        assert code(live.ask("panic")) == (500, "internal_error")
        assert live.ask("calm").status_code == 200
        assert live.http.get("/health").status_code == 200


def test_a_client_that_never_reads_pauses_its_search() -> None:
    """What the server computes and keeps for it is bounded, and others are served."""
    limits = Limits(send_seconds=1000, unread=4)
    with serving(limits=limits, send_buffer=4096) as live:
        with raw_post(live, "/v1/search", prompt="x", **LONG):
            wait_for(lambda: live.scheduler.load["running"] == 1)
            (ticket,) = live.scheduler._running.values()
            wait_for(lambda: ticket.told - ticket.read >= limits.unread)
            # Many passes for others, in which this search could take part.
            assert live.ask("other", **LONG).status_code == 200
            # It steps at most once more: `advance` may report two steps in one pass.
            assert ticket.told - ticket.read <= limits.unread + 1
            assert live.scheduler.load["running"] == 1
        live.wait_until_idle()


def test_a_client_that_never_reads_is_cut() -> None:
    with serving(limits=Limits(send_seconds=0.5), send_buffer=4096) as live:
        with raw_post(live, "/v1/search", prompt="x", **LONG):
            wait_for(lambda: 'outcome="cancelled"} 1.0' in live.http.get("/metrics").text)
        assert live.scheduler.idle


def test_a_reader_that_is_slow_gets_everything() -> None:
    """Pausing a search changes nothing but its time."""
    with serving(limits=Limits(unread=1)) as live:
        lines = live.lines("x")
    assert len(lines) == SMALL["steps"] + 2
    assert json.loads(lines[-1])["text"] == alone("x").text


def verifier_threads() -> int:
    return sum(thread.name.startswith("verifier-") for thread in threading.enumerate())


def test_hung_verifiers_are_bounded_while_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "ENDING_SECONDS", 0.0)
    released, most = threading.Event(), 0

    def hangs(prompt: str, text: str, confidence: float | None) -> float:
        released.wait(900)
        return 0.5

    limits = Limits(verifier_seconds=2, verifier_calls=4)
    with serving(limits=limits, verifiers={"hangs": hangs}) as live:
        asked = [live.later("x", verifier="hangs") for _ in range(18)]
        while not all(future.done() for future in asked):
            most = max(most, verifier_threads())
            concurrent.futures.wait(asked, timeout=0.02)
        codes = [code(future.result()) for future in asked]
        assert codes.count((504, "verifier_timeout")) == share(
            4
        )  # one client leaves some to others
        assert codes.count((503, "verifier_stuck")) == 18 - share(4)
        assert live.ask("plain").status_code == 200
        released.set()
        wait_for(lambda: verifier_threads() == 0)
        assert live.ask("x", verifier="hangs").status_code == 200
    assert most <= 4


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], threading.Event]]:
    """What a server is built with whose verifier "judge" hangs for the prompt "hang", and the end of it.
    A call that nobody waits for counts as hung at once."""
    monkeypatch.setattr(batching, "ENDING_SECONDS", -3000.0)
    released = threading.Event()

    def judge(prompt: str, text: str, confidence: float | None) -> float:
        if prompt == "hang":
            assert released.wait(900)
        return 0.5

    yield {"limits": Limits(verifier_seconds=3000), "verifiers": {"judge": judge}}, released
    released.set()


def leave_hanging(live: Live, count: int) -> None:
    """Clients of one address that leave calls which do not end."""
    for more in range(1, count + 1):
        with raw_post(live, "/v1/search", prompt="hang", verifier="judge"):
            wait_for(lambda: verifier_threads() == more)  # noqa: B023
        wait_for(lambda: live.scheduler._batcher.stuck == more)  # noqa: B023


def test_a_hung_verifier_leaves_the_places_of_others(hung: Any) -> None:
    options, _ = hung
    limits = replace(options["limits"], verifier_calls=1)
    with serving(**{**options, "limits": limits}) as live:
        leave_hanging(live, 1)
        assert code(live.ask("x", verifier="judge")) == (503, "verifier_stuck")
        assert live.ask("x").status_code == 200
        assert live.scheduler._batcher.stuck == 1


def test_one_client_leaves_places_of_a_verifier_to_others(hung: Any) -> None:
    options, released = hung
    with serving(**options) as live:
        leave_hanging(live, share(4))
        assert code(live.ask("x", verifier="judge")) == (503, "verifier_stuck")
        transport = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(base_url=live.url, transport=transport, timeout=900) as other:
            body = {"model": "fake", "prompt": "x", "verifier": "judge"}
            assert other.post("/v1/completions", json=body).status_code == 200
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

    limits = Limits(verifier_seconds=3000, verifier_calls=1)
    with serving(limits=limits, verifiers={"judge": judge}) as live:
        with raw_post(live, "/v1/search", prompt="slow", verifier="judge", **WIDE):
            wait_for(lambda: len(slow) == 2)
        wait_for(lambda: live.scheduler._batcher.stuck == 1)
        waits = live.later("fast", verifier="judge")
        wait_for(lambda: live.scheduler._batcher._waiting())
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
            asked = [each.request for each in [*live.scheduler._batcher.running.values()]]
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
    assert made == [
        8,
        64,
    ]  # the first look-ahead of all, and of the step that is cut the first portion


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ZeroDivisionError("zebra")])
def test_what_a_verifier_raises_is_an_error_at_once(
    error: BaseException, lines: pytest.LogCaptureFixture
) -> None:
    def raises(prompt: str, text: str, confidence: float | None) -> float:
        raise error

    # Nobody waits for the time limit of verifiers: the test would fail by its own time limit.
    limits = Limits(verifier_seconds=3000, seconds=3000)
    with serving(limits=limits, verifiers={"raises": raises}) as live:
        answer = live.ask("question", verifier="raises")
    assert code(answer) == (500, "verifier_failed")
    assert "zebra" not in answer.text
    assert f"{type(error).__name__}: {error}".rstrip(": ") in json.dumps(logged(lines))


@pytest.mark.parametrize("log_prompts", [False, True])
def test_the_reason_of_a_verifier_is_logged_without_the_prompt(
    log_prompts: bool, lines: pytest.LogCaptureFixture
) -> None:
    def quotes(prompt: str, text: str, confidence: float | None) -> float:
        raise ValueError(f"cannot judge {prompt!r}")

    def absurd(prompt: str, text: str, confidence: float | None) -> float:
        return 7.0

    judges = {"quotes": quotes, "absurd": absurd}
    with serving(verifiers=judges, log_prompts=log_prompts) as live:
        assert all("hush" not in live.ask("hush hush", verifier=name).text for name in judges)
    reasons = json.dumps([line for line in logged(lines) if line["event"] == "verifier failed"])
    assert "cannot judge" in reasons
    assert "7.0" in reasons
    assert ("hush hush" in reasons) == log_prompts


def test_deadlines_hold_when_the_engine_does_not_answer() -> None:
    model, gate = held_model()
    with serving(model, limits=Limits(seconds=1.0, stall_seconds=0.2)) as live:
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
