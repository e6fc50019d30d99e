"""The official client against the real server: plain, streamed, and with the search's settings."""

from __future__ import annotations

import openai
import pytest

import s3dlm
from s3dlm.settings import METHODS, Settings, only_used
from tests.fakes import fake_model
from tests.server.live import SMALL, Live

QUESTION = "Target: 24 Numbers: 6, 4, 12"
ASK = {"model": "fake", "messages": [{"role": "user", "content": QUESTION}]}
LONG = {"gen_length": 60, "steps": 15, "block_length": 20}


def test_models(live: Live) -> None:
    client = live.client()
    assert [one.id for one in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("../../etc/passwd")


@pytest.mark.parametrize("method", ["s3", "best_of_k", "baseline"])
def test_chat_is_what_the_library_says(live: Live, method: str) -> None:
    used = only_used(METHODS[method], LONG)
    extra = {**used, "task": "countdown", "method": method}
    reply = live.client().chat.completions.create(**ASK, seed=3, extra_body=extra)
    small = only_used(METHODS[method], SMALL)
    settings = Settings.from_json({**small, **used, "method": method, "seed": 3})
    alone = s3dlm.generate(fake_model(), QUESTION, task="countdown", settings=settings)
    choice = reply.choices[0]
    assert choice.message.content == alone.text
    assert choice.search["answer"] == alone.answer
    assert choice.finish_reason == "stop"
    usage = reply.usage
    assert usage is not None
    assert (usage.nfe, usage.nfe_logical) == (alone.nfe, alone.nfe_logical)
    assert usage.prompt_tokens == len(f"{QUESTION}\n")
    assert usage.completion_tokens == len(alone.text)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


@pytest.mark.parametrize("method", METHODS)
def test_streamed_pieces_add_up_to_the_whole(live: Live, method: str) -> None:
    extra = {**only_used(METHODS[method], LONG), "method": method, "task": "countdown"}
    client = live.client()
    whole = client.chat.completions.create(**ASK, extra_body=extra)
    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(**ASK, extra_body=extra, stream=True, stream_options=options)
    )
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(one.delta.content or "" for one in told) == whole.choices[0].message.content
    assert told[0].delta.role == "assistant"
    assert told[-1].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage.nfe == whole.usage.nfe


@pytest.mark.parametrize(
    "own",
    [
        {"temperature": 0.2, "particles": 1},
        {"resampling": "systematic", "lam": 5.0},
        {"rounds": 2, "remask": "rest", "policy": "left_to_right", "particles": 1, "branching": 1},
        {"cadence": "block", "ess_threshold": 0.5},
        {"selection": "best_seen"},
    ],
)
@pytest.mark.parametrize("seed", range(1, 5))
def test_streamed_pieces_add_up_whatever_the_settings(
    live: Live, own: dict[str, object], seed: int
) -> None:
    extra = {**LONG, **own, "task": "countdown", "seed": seed}
    client = live.client()
    whole = client.chat.completions.create(**ASK, extra_body=extra).choices[0].message.content
    stream = client.chat.completions.create(**ASK, extra_body=extra, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole


def test_text_is_streamed_before_the_end(live: Live) -> None:
    """Blocks settle from left to right, so certain text comes in several pieces."""
    extra = {**LONG, "block_length": 10, "particles": 1, "branching": 1}
    stream = live.client().chat.completions.create(**ASK, extra_body=extra, stream=True)
    pieces = [chunk.choices[0].delta.content for chunk in stream]
    assert sum(bool(piece) for piece in pieces) >= 3


def test_n_choices_are_n_seeds(live: Live) -> None:
    client = live.client()
    reply = client.chat.completions.create(**ASK, n=3, seed=5, extra_body=LONG)
    alone = [client.chat.completions.create(**ASK, seed=5 + i, extra_body=LONG) for i in range(3)]
    assert [one.message.content for one in reply.choices] == [
        one.choices[0].message.content for one in alone
    ]
    assert reply.usage.nfe == sum(one.usage.nfe for one in alone)
    assert reply.usage.prompt_tokens == alone[0].usage.prompt_tokens
    streamed: dict[int, str] = {}
    for chunk in client.chat.completions.create(**ASK, n=3, seed=5, extra_body=LONG, stream=True):
        one = chunk.choices[0]
        streamed[one.index] = streamed.get(one.index, "") + (one.delta.content or "")
    assert [streamed[i] for i in range(3)] == [one.message.content for one in reply.choices]


def test_completions(live: Live) -> None:
    client = live.client()
    reply = client.completions.create(model="fake", prompt=[QUESTION, "another"], n=2)
    assert [one.index for one in reply.choices] == [0, 1, 2, 3]
    assert (
        reply.choices[0].text
        == client.completions.create(model="fake", prompt=QUESTION).choices[0].text
    )
    stream = client.completions.create(model="fake", prompt=QUESTION, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == reply.choices[0].text


@pytest.mark.parametrize("stream", [False, True])
def test_stop_cuts_the_text(live: Live, stream: bool) -> None:
    client = live.client()
    whole = (
        client.completions.create(model="fake", prompt=QUESTION, extra_body=LONG).choices[0].text
    )
    stop = whole[7:10]
    reply = client.completions.create(
        model="fake", prompt=QUESTION, stop=[stop, "never there"], extra_body=LONG, stream=stream
    )
    if stream:
        pieces = [chunk.choices[0] for chunk in reply]
        text, reason = "".join(one.text for one in pieces), pieces[-1].finish_reason
    else:
        text, reason = reply.choices[0].text, reply.choices[0].finish_reason
    assert (text, reason) == (whole[: whole.index(stop)], "stop")


def test_max_tokens_bounds_the_canvas(live: Live) -> None:
    short = live.client().chat.completions.create(**ASK, max_tokens=7)
    assert short.choices[0].finish_reason == "length"
    assert short.usage.completion_tokens == 7
    assert short.usage.nfe_logical == 1 + 2 * 4  # 6 steps for 24 tokens become 2 for 7
    large = live.client().chat.completions.create(**ASK, max_completion_tokens=5000)
    assert large.usage.nfe_logical == 1 + 6 * 4


def test_temperature_zero_is_greedy(live: Live) -> None:
    client = live.client()
    greedy = [
        client.chat.completions.create(**ASK, temperature=0, seed=seed).choices[0].message.content
        for seed in (0, 1)
    ]
    assert greedy[0] == greedy[1]
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(**ASK, temperature=0, extra_body={"method": "s3"})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [2, 9, 31, 130])
def test_budget_is_a_hard_limit_for_every_method(live: Live, method: str, budget: int) -> None:
    settings = {**only_used(METHODS[method], LONG), "method": method, "task": "countdown"}
    with live.http() as http:
        body = {"model": "fake", "prompt": QUESTION, "budget": budget, **settings}
        answer = http.post("/v1/completions", json=body).json()
    assert answer["usage"]["nfe"] <= budget
    assert answer["choices"][0]["search"]["stopped"] in ("finished", "satisfied", "budget")


def test_the_choices_of_a_request_share_its_budget(live: Live) -> None:
    reply = live.client().chat.completions.create(**ASK, n=3, extra_body={"budget": 40})
    assert 3 * 10 < reply.usage.nfe <= 40


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
        ({"method": "best", "ess_threshold": 0.5}, "ess_threshold"),
        ({"rounds": -1}, "rounds"),
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
    body = {**ASK, **extra, "stream": stream}
    import json

    with live.http() as http:
        answer = http.post(
            "/v1/chat/completions",
            content=json.dumps(body),
            headers={"content-type": "application/json"},
        )
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert words in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"


def test_neutral_values_of_openai_fields_are_accepted(live: Live) -> None:
    create = live.client().chat.completions.create
    reply = create(
        **ASK, top_p=1, presence_penalty=0, frequency_penalty=0, user="me", logprobs=False,
        response_format={"type": "text"},
    )  # fmt: skip
    assert reply.choices[0].message.content == create(**ASK).choices[0].message.content


def test_top_p_is_a_setting_of_decoding(live: Live) -> None:
    create = live.client().chat.completions.create
    alone = s3dlm.generate(fake_model(), QUESTION, settings=Settings(**SMALL, top_p=0.5))
    assert create(**ASK, top_p=0.5).choices[0].message.content == alone.text


def test_wrong_model(live: Live) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        live.client().chat.completions.create(**{**ASK, "model": "gpt-4"})
    assert caught.value.code == "model_not_found"
