"""What the server answers is what the library says: whole, streamed, and step by step."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest

import s3dlm
from s3dlm.search.methods import METHODS, find_method
from s3dlm.server import streaming
from s3dlm.settings import Settings, has
from s3dlm.trace import TraceEncoder
from s3dlm.verifier.base import Score, Verifier
from tests.fakes import COUNTDOWN, events_of, fake_model
from tests.server.live import (
    ASK,
    PUZZLE,
    QUESTION,
    SMALL,
    Live,
    alone,
    held_model,
    patient,
    raw_post,
    serving,
)

LONG = {"gen_length": 60, "steps": 15, "block_length": 20}
SHORT = {"gen_length": 24, "steps": 6, "block_length": 8}  # certain text comes block by block
INFILL = "12 - 6 = [[1]]. <answer>[[5]]</answer>"
SETTINGS: dict[str, dict[str, Any]] = {
    **{method: {"method": method, **SHORT} for method in METHODS},
    "vgb": {"method": "vgb", "gen_length": 10, "steps": 5, "block_length": 10},
    "one particle": {**LONG, "temperature": 0.2, "particles": 1},
    "another resampling": {**LONG, "resampling": "systematic", "lam": 5.0, "top_p": 0.5},
    "block by block": {**LONG, "cadence": "block", "ess_threshold": 0.5},
    "the best seen": {**LONG, "selection": "best_seen"},
    "two rounds": {
        **LONG, "method": "revise", "rounds": 2, "remask": "from_doubt", "policy": "left_to_right",
        "particles": 1,
    },
    "guided": {"guidance": 0.5},
    "by a threshold": {"reveal": "threshold", "reveal_threshold": 0.12},
    "a budget": {**LONG, "budget": 40},
    "the least budget": {"budget": 2},
    "holes": {"infill": INFILL},
    "a hole at the end": {"infill": "12 - 6 = [[4]]", "task": None},
    "its own judge": {"verifier": "self"},
}  # fmt: skip
# Of a model that is surer of itself: a vote that is decided early, or by agreement.
CALM = {"gen_length": 64, "steps": 8, "block_length": 64, "temperature": 0.5}
VOTE = {**CALM, "method": "adaptive_vote", "particles": 12, "branching": 1}
JUDGED = {**CALM, "method": "verified_best_of_k", "particles": 2, "verifier": "checker"}
DECIDED: tuple[dict[str, Any], ...] = (
    VOTE,
    {**VOTE, "decided_at": 0.999, "seed": 3},
    {**VOTE, "temperature": 1.0, "decided_at": 0.8},
    {**JUDGED, "branching": 2, "selection": "agreement", "seed": 3},
    {**JUDGED, "branching": 2, "task": "gsm8k"},  # has a step to check
)
# Of a model of uniform noise, which takes tokens back.
NOISY: tuple[dict[str, Any], ...] = (
    {"method": "greedy"},
    {"method": "s3", "particles": 2, "budget": 20, "seed": 1},
    {"method": "revise", "budget": 30, "seed": 3},
)


def usable(own: dict[str, Any], method: str) -> dict[str, Any]:
    return {name: value for name, value in own.items() if has(find_method(method), name)}


def joined(chunks: Any, index: int = 0) -> str:
    """The text of a streamed chat."""
    choices = (choice for chunk in chunks for choice in chunk.choices if choice.index == index)
    return "".join(choice.delta.content or "" for choice in choices)


def check_every_door(
    live: Live, question: str = QUESTION, usual: dict[str, Any] = SMALL, **own: Any
) -> list[dict[str, Any]]:
    """A chat, its stream and the watched search are what the library says; returns the trace."""
    method = own.pop("method", "s3")
    task, infill = own.pop("task", "countdown"), own.pop("infill", None)
    own = {"method": method, **usable(own, method)}
    asked = {**own, "task": task, **({} if infill is None else {"infill": infill})}
    model = live.service.model
    settings = Settings.for_model(model, task=task, **{**usable(usual, method), **own})
    *steps, result = events_of(model, question, task=task, settings=settings, infill=infill)
    assert isinstance(result, s3dlm.Result)

    ask: dict[str, Any] = {**asked, "model": model.name, "logprobs": True}
    ask["messages"] = [{"role": "user", "content": question}]
    whole = live.chat(**ask)
    (choice,), usage = whole.choices, whole.usage
    assert choice.message.content == result.text
    found = {name: choice.search[name] for name in ("answer", "stopped", "holes", "seed")}
    assert found == {
        "answer": result.answer, "stopped": result.stopped, "holes": list(result.holes),
        "seed": settings.decoding.seed,
    }  # fmt: skip
    assert choice.search["votes"] == (0 if result.answer is None else result.votes)
    assert choice.search["survivors"] == len(result.survivors)
    assert choice.search.get("checkable") == result.checkable
    assert (usage.nfe, usage.nfe_logical) == (result.nfe, result.nfe_logical)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    logprobs = [token.logprob for token in choice.logprobs.content]
    assert all(0 < math.exp(logprob) <= 1 for logprob in logprobs)
    if infill is None and result.token_ids:  # an earlier text has none
        assert "".join(token.token for token in choice.logprobs.content) == result.text
        assert logprobs == pytest.approx(result.token_logprobs[: len(logprobs)], abs=1e-6)

    chunks = list(live.chat(**ask, stream=True, stream_options={"include_usage": True}))
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert joined(chunks) == result.text
    assert told[0].delta.role == "assistant"
    assert told[-1].finish_reason == choice.finish_reason
    assert told[-1].logprobs.model_dump() == choice.logprobs.model_dump()
    assert chunks[-1].usage == usage

    encoder = TraceEncoder(model)
    header = encoder.header(model.name, question, task, settings, infill)
    expected = [header, *(encoder.event(event) for event in (*steps, result))]
    trace: list[dict[str, Any]] = [json.loads(line) for line in live.lines(question, **asked)]
    for line in (*trace, *expected):
        line.pop("seconds", None)
        line.pop("timings", None)
    assert trace == json.loads(json.dumps(expected))
    # It is what the viewer shows while a search runs.
    assert sum(step["nfe"] + step["start_nfe"] for step in trace[1:-1]) == result.nfe
    return trace


@pytest.mark.parametrize("name", SETTINGS)
def test_every_door_says_what_the_library_says(live: Live, name: str) -> None:
    check_every_door(live, **SETTINGS[name])


def test_votes_that_are_decided_and_steps_that_are_checked() -> None:
    with serving(fake_model(COUNTDOWN, context=1024, noise=0.5)) as calm:
        for own in DECIDED:
            check_every_door(calm, **own)


def test_a_model_that_takes_tokens_back_streams_none_of_them() -> None:
    with serving(s3dlm.load("noisy9", device="cpu"), defaults={}) as noisy:
        for own in NOISY:
            _, *steps, _ = check_every_door(noisy, PUZZLE, {}, task="sudoku9", **own)
            rows = [step["tokens"][0] for step in steps]
            pairs = [pair for two in itertools.pairwise(rows) for pair in zip(*two, strict=True)]
            assert any(old >= 0 > new for old, new in pairs)
        refused = noisy.ask(PUZZLE, model="noisy9", task="sudoku9", guided_regex="a")
        assert "its answers follow no grammar" in refused.json()["error"]["message"]


def test_settings_are_built_once_for_a_request(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for every seed, however many prompts there are."""
    made, original = list[str](), Settings.__init__

    def counted(self: Settings, *arguments: Any, **values: Any) -> None:
        made.append("once")
        original(self, *arguments, **values)

    monkeypatch.setattr(Settings, "__init__", counted)
    live.chat(max_tokens=12, temperature=0.5, particles=2)
    assert len(made) == 1
    live.post("/v1/search", prompt=QUESTION)
    assert len(made) == 2
    assert len(live.ask(["x", "y"], n=3, seed=4).json()["choices"]) == 6
    assert len(made) == 5


def test_text_is_streamed_before_the_end(live: Live) -> None:
    """Blocks settle from left to right, so certain text comes in several pieces."""
    settings = {**LONG, "block_length": 10, "particles": 1, "branching": 1}
    pieces = [chunk.choices[0].delta.content for chunk in live.chat(**settings, stream=True)]
    assert sum(bool(piece) for piece in pieces) >= 3


def test_n_choices_are_n_seeds(live: Live) -> None:
    neutral = {"top_p": 1, "presence_penalty": 0, "user": "me", "logprobs": False, "functions": []}
    reply = live.chat(n=3, seed=5, **LONG, **neutral)
    each = [live.chat(seed=5 + i, **LONG) for i in range(3)]
    texts = [choice.message.content for choice in reply.choices]
    assert texts == [one.choices[0].message.content for one in each]
    assert reply.usage.nfe == sum(one.usage.nfe for one in each)
    assert reply.usage.prompt_tokens == each[0].usage.prompt_tokens
    chunks = list(live.chat(n=3, seed=5, **LONG, stream=True))
    assert texts == [joined(chunks, index) for index in range(3)]


def test_completions_answer_prompt_by_prompt(live: Live) -> None:
    create = live.client().completions.create
    reply = create(model="fake", prompt=[QUESTION, "another"], n=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert reply.choices[0].text == create(model="fake", prompt=QUESTION).choices[0].text
    stream = create(model="fake", prompt=QUESTION, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == reply.choices[0].text
    alone_it_stands = live.ask("", infill="ab[[4]]cd").json()["choices"][0]["text"]
    settings = Settings.from_json({"method": "s3", **SMALL})
    assert alone_it_stands == s3dlm.infill(fake_model(), "ab[[4]]cd", settings=settings).text


def test_max_tokens_is_the_length_of_the_canvas(live: Live) -> None:
    short = live.chat(max_tokens=7)
    assert (short.choices[0].finish_reason, short.usage.completion_tokens) == ("length", 7)
    assert short.usage.nfe_logical == 1 + 2 * 4  # 6 steps for 24 tokens become 2 for 7
    long = live.chat(max_completion_tokens=60, temperature=1.5)
    assert 24 < long.usage.completion_tokens <= 60
    assert long.usage.nfe_logical == 1 + 15 * 4  # and 15 for 60
    expected = alone(QUESTION, gen_length=60, steps=15, block_length=24, temperature=1.5)
    assert long.choices[0].message.content == expected.text
    assert live.chat(max_tokens=60, gen_length=24).usage.nfe_logical == 1 + 6 * 4
    assert live.chat(max_tokens=60, steps=30).usage.nfe_logical == 1 + 30 * 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_cuts_the_text_and_its_logprobs(live: Live, stream: bool) -> None:
    whole = live.chat(**LONG).choices[0].message.content
    stop = whole[7:10]
    reply = live.chat(stop=[stop, "never there"], logprobs=True, stream=stream, **LONG)
    chunks = list(reply) if stream else [reply]
    text, last = (
        joined(chunks) if stream else reply.choices[0].message.content,
        chunks[-1].choices[0],
    )
    assert (text, last.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert "".join(token.token for token in last.logprobs.content) == text


@pytest.mark.parametrize("method", ["s3", "revise", "best_of_k"])
def test_an_effort_is_a_share_of_what_the_method_may_use(live: Live, method: str) -> None:
    """Medium is what it does without one; none is one greedy answer."""

    def settings(**own: Any) -> Any:
        return live.post("/v1/settings", prompt="x", method=method, **own).json()

    most, plain = settings()["most_nfe"], settings()["settings"]
    shares = {"minimal": 0.25, "low": 0.5, "medium": 1, "high": 4, "xhigh": 16}
    found = {name: settings(reasoning_effort=name) for name in shares}
    for name, share in shares.items():
        assert found[name]["most_nfe"] == pytest.approx(share * most, abs=1)
    assert found["medium"]["settings"] == plain
    none = settings(reasoning_effort="none", particles=8)["settings"]
    assert (none["method"], "particles" in none) == ("greedy", False)
    # As long as the budget lasts, also where the number of rounds is usually fixed.
    assert found["high"]["settings"].get("rounds") == (0 if method == "revise" else None)


def test_every_choice_has_the_whole_effort_and_a_share_of_the_budget(live: Live) -> None:
    budget = live.post("/v1/settings", prompt=QUESTION, reasoning_effort="high").json()["most_nfe"]
    twice, one = live.chat(reasoning_effort="high", n=2), live.chat(budget=budget)
    assert twice.choices[0].message.content == one.choices[0].message.content
    assert 3 * 10 < live.chat(n=3, budget=40).usage.nfe <= 40
    greedy = live.chat(temperature=0, seed=1)  # whose seed changes nothing
    for effort in ("none", "minimal"):  # a single answer is never cut
        short = live.chat(method="baseline", temperature=0, reasoning_effort=effort)
        assert short.usage.nfe == greedy.usage.nfe
        assert short.choices[0].message.content == greedy.choices[0].message.content


def test_a_chat_that_sends_its_text_at_the_end_is_never_silent(live: Live) -> None:
    """Each step is a thought, if it has a new best draft, or a comment; both come before the text."""
    own = {**ASK, "method": "revise", "rounds": 2, **LONG}

    def told(**more: Any) -> tuple[list[dict[str, Any]], int]:
        """The deltas, and the number of comments."""
        lines = live.post("/v1/chat/completions", **own, **more, stream=True).text.split("\n\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        comments = sum(line.startswith(": step ") for line in lines)
        return [chunk["choices"][0]["delta"] for chunk in chunks], comments

    (deltas, comments), whole = told(), live.post("/v1/chat/completions", **own).json()
    thoughts = [each["reasoning_content"] for each in deltas if "reasoning_content" in each]
    steps = len(live.lines(method="revise", rounds=2, **LONG)) - 2
    assert len(thoughts) + comments == steps
    assert thoughts[0].startswith("Draft 1, score 0.")
    assert all(a != b for a, b in itertools.pairwise(thoughts))
    first = next(place for place, each in enumerate(deltas) if each.get("content"))
    assert all("reasoning_content" not in each for each in deltas[first:])
    assert "reasoning_content" not in whole["choices"][0]["message"]
    plain, comments = told(include_reasoning=False)
    assert comments == steps
    assert not any("reasoning_content" in each for each in plain)


def test_a_stream_that_waits_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the queue as during a step."""
    monkeypatch.setattr(streaming, "SILENT_SECONDS", 0.01)
    model, gate = held_model()
    asked = ("/v1/chat/completions", {**ASK, "stream": True})
    with (
        serving(model, limits=patient(running=1)) as live,
        raw_post(live, asked[0], **asked[1]) as runs,
        raw_post(live, asked[0], **asked[1]) as waits,
    ):
        told = {runs: b"", waits: b""}
        for sign in (b": waiting", b"[DONE]"):
            for client in told:
                while sign not in told[client]:
                    more = client.recv(65536)
                    assert more, told[client]
                    told[client] += more
            gate.set()
    assert all(text.startswith(b"HTTP/1.1 200") for text in told.values())


def test_what_cannot_be_sent_is_an_error_of_the_stream() -> None:
    class Odd(Verifier):
        def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
            return Score(0.5, {"remark": "a text"})  # type: ignore[dict-item]

    with serving(verifiers={"odd": Odd()}) as live:
        *_, last = live.lines("x", verifier="odd")
    assert "error" in json.loads(last)
