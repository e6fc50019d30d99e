"""The official client against the real server: plain, streamed, and with the search's settings."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from s3dlm.search.methods import METHODS, find_method
from s3dlm.settings import has
from tests.server.live import ASK, QUESTION, Live, alone, code

LONG = {"gen_length": 60, "steps": 15, "block_length": 20}


def long(method: str) -> dict[str, Any]:
    """As many of the settings of a long answer as the method has."""
    own = {name: value for name, value in LONG.items() if has(find_method(method), name)}
    return {**own, "method": method, "task": "countdown"}


def joined(stream: Any) -> str:
    """The text of a streamed chat."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_models(live: Live) -> None:
    client = live.client()
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("../../etc/passwd")
    with pytest.raises(openai.NotFoundError) as caught:
        live.chat(model="gpt-4")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("method", ["s3", "best_of_k", "baseline"])
def test_chat_is_what_the_library_says(live: Live, method: str) -> None:
    reply = live.chat(seed=3, **long(method))
    expected = alone(QUESTION, seed=3, **long(method))
    choice, usage = reply.choices[0], reply.usage
    assert choice.message.content == expected.text
    assert choice.search["answer"] == expected.answer
    assert choice.finish_reason == "stop"
    assert (usage.nfe, usage.nfe_logical) == (expected.nfe, expected.nfe_logical)
    assert usage.prompt_tokens == len(f"{QUESTION}\n")
    assert usage.completion_tokens == len(expected.text)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.parametrize("method", METHODS)
def test_streamed_pieces_add_up_to_the_whole(live: Live, method: str) -> None:
    whole = live.chat(**long(method))
    chunks = list(live.chat(**long(method), stream=True, stream_options={"include_usage": True}))
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert joined(chunks) == whole.choices[0].message.content
    assert choices[0].delta.role == "assistant"
    assert choices[-1].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage.nfe == whole.usage.nfe


@pytest.mark.parametrize(
    "own",
    [
        {"temperature": 0.2, "particles": 1},
        {"resampling": "systematic", "lam": 5.0},
        {
            "method": "revise",
            "rounds": 2,
            "remask": "from_doubt",
            "policy": "left_to_right",
            "particles": 1,
        },
        {"cadence": "block", "ess_threshold": 0.5},
        {"selection": "best_seen"},
    ],
)
@pytest.mark.parametrize("seed", range(1, 5))
def test_streamed_pieces_add_up_whatever_the_settings(
    live: Live, own: dict[str, object], seed: int
) -> None:
    settings = {**long("s3"), **own, "seed": seed}
    whole = live.chat(**settings).choices[0].message.content
    assert joined(live.chat(**settings, stream=True)) == whole


def test_text_is_streamed_before_the_end(live: Live) -> None:
    """Blocks settle from left to right, so certain text comes in several pieces."""
    settings = {**LONG, "block_length": 10, "particles": 1, "branching": 1}
    pieces = [chunk.choices[0].delta.content for chunk in live.chat(**settings, stream=True)]
    assert sum(bool(piece) for piece in pieces) >= 3


def test_n_choices_are_n_seeds(live: Live) -> None:
    reply = live.chat(n=3, seed=5, **LONG)
    each = [live.chat(seed=5 + i, **LONG) for i in range(3)]
    texts = [choice.message.content for choice in reply.choices]
    assert texts == [one.choices[0].message.content for one in each]
    assert reply.usage.nfe == sum(one.usage.nfe for one in each)
    assert reply.usage.prompt_tokens == each[0].usage.prompt_tokens
    chunks = list(live.chat(n=3, seed=5, **LONG, stream=True))
    assert texts == [
        joined(chunk for chunk in chunks if chunk.choices[0].index == i) for i in range(3)
    ]


def test_completions(live: Live) -> None:
    create = live.client().completions.create
    reply = create(model="fake", prompt=[QUESTION, "another"], n=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert reply.choices[0].text == create(model="fake", prompt=QUESTION).choices[0].text
    stream = create(model="fake", prompt=QUESTION, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == reply.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_stop_cuts_the_text(live: Live, stream: bool) -> None:
    whole = live.chat(**LONG).choices[0].message.content
    stop = whole[7:10]
    reply = live.chat(stop=[stop, "never there"], stream=stream, **LONG)
    chunks = list(reply) if stream else [reply]
    text = joined(chunks) if stream else reply.choices[0].message.content
    assert (text, chunks[-1].choices[0].finish_reason) == (whole[: whole.index(stop)], "stop")


def test_max_tokens_bounds_the_canvas(live: Live) -> None:
    short = live.chat(max_tokens=7)
    assert short.choices[0].finish_reason == "length"
    assert short.usage.completion_tokens == 7
    assert short.usage.nfe_logical == 1 + 2 * 4  # 6 steps for 24 tokens become 2 for 7


def test_max_tokens_lengthens_the_answer(live: Live) -> None:
    long = live.chat(max_completion_tokens=60, temperature=1.5)
    assert 24 < long.usage.completion_tokens <= 60
    assert long.usage.nfe_logical == 1 + 15 * 4  # 6 steps for 24 tokens become 15 for 60
    expected = alone(QUESTION, gen_length=60, steps=15, block_length=24, temperature=1.5)
    assert long.choices[0].message.content == expected.text
    assert live.chat(max_tokens=60, gen_length=24).usage.nfe_logical == 1 + 6 * 4
    assert live.chat(max_tokens=60, steps=30).usage.nfe_logical == 1 + 30 * 4
    with pytest.raises(openai.BadRequestError, match="reads 512 tokens") as caught:
        live.chat(max_tokens=512)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")
    with pytest.raises(openai.BadRequestError, match=r"smaller gen_length \(max_tokens\)"):
        live.chat(max_tokens=500)


@pytest.mark.parametrize("method", ["s3", "revise", "best_of_k"])
def test_an_effort_is_a_share_of_what_the_method_may_use(live: Live, method: str) -> None:
    """Medium is what it does without one; none is one greedy answer."""

    def settings(**own: Any) -> Any:
        return live.post("/v1/settings", prompt="x", method=method, **own).json()

    most, plain = settings()["most_nfe"], settings()["settings"]
    found = {
        name: settings(reasoning_effort=name)
        for name in ("minimal", "low", "medium", "high", "xhigh")
    }
    assert [each["most_nfe"] for each in found.values()] == [
        pytest.approx(share * most, abs=1) for share in (0.25, 0.5, 1, 4, 16)
    ]
    assert found["medium"]["settings"] == plain
    none = settings(reasoning_effort="none", particles=8)["settings"]
    assert (none["method"], "particles" in none) == ("greedy", False)
    if (
        method == "revise"
    ):  # rounds as long as the budget lasts, also where their number is usually fixed
        assert found["high"]["settings"]["rounds"] == 0


def test_every_choice_has_the_whole_effort_and_a_single_answer_is_never_cut(live: Live) -> None:
    budget = live.post("/v1/settings", prompt=QUESTION, reasoning_effort="high").json()["most_nfe"]
    twice, one = live.chat(reasoning_effort="high", n=2), live.chat(budget=budget)
    assert twice.choices[0].message.content == one.choices[0].message.content
    for effort in ("none", "minimal"):
        short = live.chat(method="baseline", temperature=0, reasoning_effort=effort)
        assert short.usage.nfe == live.chat(temperature=0).usage.nfe


def test_temperature_zero_is_greedy(live: Live) -> None:
    greedy = {live.chat(temperature=0, seed=seed).choices[0].message.content for seed in (0, 1)}
    assert len(greedy) == 1
    with pytest.raises(openai.BadRequestError, match="temperature"):
        live.chat(temperature=0, method="s3")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [2, 9, 31, 130])
def test_budget_is_a_hard_limit_for_every_method(live: Live, method: str, budget: int) -> None:
    answer = live.ask(QUESTION, budget=budget, **long(method)).json()
    assert answer["usage"]["nfe"] <= budget
    assert answer["choices"][0]["search"]["stopped"] in ("finished", "satisfied", "budget")


def test_the_model_may_be_its_own_judge(live: Live) -> None:
    judged, plain = (live.chat(verifier=name).usage for name in ("self", "paper"))
    assert judged.nfe > plain.nfe


def test_the_choices_of_a_request_share_its_budget(live: Live) -> None:
    assert 3 * 10 < live.chat(n=3, budget=40).usage.nfe <= 40


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"partickles": 3}, "did you mean 'particles'"),
        ({"particles": "3"}, "whole number"),
        ({"particles": 0}, "whole number"),
        ({"particles": 500}, "this server's limit of 64"),
        ({"steps": 25}, "steps"),
        ({"gen_length": 10**9, "steps": 10}, "gen_length"),
        ({"method": "s4"}, "choose one of"),
        ({"lam": float("inf")}, "lam"),
        ({"task": "/etc/passwd.jsonl:math"}, "task"),
        ({"verifier": "profile.toml"}, "verifier"),
        ({"budget": 1}, "budget"),
        ({"budget": 10**6}, "this server's limit of 100000"),
        ({"budget": 10, "n": 8}, "budget"),
        ({"budget": 10, "reasoning_effort": "low"}, "leave one out"),
        ({"reasoning_effort": "extreme"}, "'none', 'minimal', 'low'"),
        ({"method": "revise", "ess_threshold": 0.5}, "ess_threshold"),
        ({"rounds": -1}, "rounds"),
        ({"look_aheads": 1000}, "n × texts per step=4000 is more than this server's limit"),
        ({"top_p": 1.5}, "top_p"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"temperature": 2.5}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"n": 17}, "at most 16"),
        ({"stop": [""]}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: Input should be a"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "Unicode"),
        ({"messages": [{"role": "user", "content": "  "}]}, "empty"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "reads at most 512"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_refused(live: Live, extra: dict[str, object], words: str, stream: bool) -> None:
    answer = live.post("/v1/chat/completions", **{**ASK, **extra, "stream": stream})
    assert code(answer)[0] == 400
    error = answer.json()["error"]
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"


def test_neutral_values_of_openai_fields_are_accepted(live: Live) -> None:
    reply = live.chat(
        top_p=1, presence_penalty=0, frequency_penalty=0, user="me", logprobs=False,
        response_format={"type": "text"},
    )  # fmt: skip
    assert reply.choices[0].message.content == live.chat().choices[0].message.content


def test_top_p_is_a_setting_of_decoding(live: Live) -> None:
    assert live.chat(top_p=0.5).choices[0].message.content == alone(QUESTION, top_p=0.5).text
