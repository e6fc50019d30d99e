"""The official clients of OpenAI's Responses and Anthropic's Messages against the real server and `tiny`."""

from __future__ import annotations

from functools import partial
from typing import Any

import anthropic
import httpx
import openai
import pytest

import s3dlm
from tests import test_docs
from tests.server.live import (
    JSON,
    QUESTION,
    Live,
    PlainClient,
    alone,
    changed_model,
    code,
    patient,
    serving,
)
from tests.server.test_door import KEY

PAGE = test_docs.ROOT / "docs" / "server.md"
LONG = {"gen_length": 60, "steps": 15, "block_length": 10, "particles": 1}
TURNS: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": QUESTION},
]


class PlainAnthropic(anthropic.DefaultHttpxClient):
    """As `live.PlainClient`."""

    def __init__(self) -> None:
        super().__init__(verify=False, limits=httpx.Limits(max_keepalive_connections=0))

    def __del__(self) -> None:
        self.close()


def messages(live: Live, **options: Any) -> Any:
    options = {"api_key": "none", "max_retries": 0, "http_client": PlainAnthropic(), **options}
    return anthropic.Anthropic(base_url=live.url, **options).messages


@pytest.fixture(scope="module")
def expected() -> s3dlm.Result:
    """What the library answers."""
    return alone(QUESTION, task="countdown", **LONG)


def test_the_example_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs as it stands but for the port, and prints what it shows."""
    monkeypatch.setattr(openai, "OpenAI", partial(openai.OpenAI, http_client=PlainClient()))
    plain = partial(anthropic.Anthropic, http_client=PlainAnthropic())
    monkeypatch.setattr(anthropic, "Anthropic", plain)
    block = next(b for b in test_docs.blocks(PAGE) if b.language == "python")
    names: dict[str, Any] = {"print": test_docs.print_as_shown(block)}
    with serving(s3dlm.load("tiny"), defaults={}) as live:
        exec(block.text.replace("http://127.0.0.1:8000", live.url), names)
    assert names["message"].usage.nfe == 5


def test_responses(live: Live, expected: s3dlm.Result) -> None:
    ask: Any = {"model": "fake", "input": QUESTION, "extra_body": {"task": "countdown", **LONG}}
    client = live.client().responses
    whole = client.create(**ask)
    assert whole.output_text == expected.text
    assert (whole.status, whole.incomplete_details, whole.error) == ("completed", None, None)
    assert whole.usage.nfe == expected.nfe
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    with client.stream(**ask) as stream:  # the client puts the events together and checks them
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    last = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert kinds[-4:] == last
    assert final.output_text == expected.text
    assert final.usage == whole.usage


def test_messages(live: Live, expected: s3dlm.Result) -> None:
    ask: Any = {"model": "fake", "max_tokens": 60, "messages": TURNS[2:]}
    ask["extra_body"] = {"task": "countdown", **LONG}
    whole = messages(live).create(**ask)
    assert [block.text for block in whole.content] == [expected.text]
    assert (whole.role, whole.stop_reason, whole.stop_sequence) == ("assistant", "end_turn", None)
    assert whole.usage.nfe == expected.nfe
    with messages(live).stream(**ask) as stream:
        final = stream.get_final_message()
    assert final.content[0].text == expected.text
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens == whole.usage.input_tokens
    kinds = [event.type for event in messages(live).create(**ask, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


@pytest.mark.parametrize(
    ("path", "own", "sign"),
    [
        ("/v1/responses", {"input": QUESTION}, ": step 2 of 6"),
        ("/v1/messages", {"messages": TURNS[2:], "max_tokens": 24}, "event: ping"),
    ],
)
def test_no_stream_is_silent(live: Live, path: str, own: dict[str, Any], sign: str) -> None:
    body = {"model": "fake", "method": "revise", "steps": 6, **own, "stream": True}
    assert f"\n\n{sign}" in live.post(path, **body).text


def test_a_conversation_is_the_same_in_every_dialect(live: Live) -> None:
    system: Any = {"role": "system", "content": "Be brief."}
    chat = live.chat(messages=[system, *TURNS], max_tokens=30).choices[0].message.content
    response = live.client().responses.create(
        model="fake", instructions="Be brief.", input=TURNS, max_output_tokens=30
    )
    message = messages(live).create(
        model="fake", system="Be brief.", messages=TURNS, max_tokens=30, metadata={"user_id": "x"}
    )
    assert chat == response.output_text == message.content[0].text
    again = live.client().responses.create(  # an answer may be sent back as it came
        model="fake", input=[TURNS[0], *response.output, TURNS[2]]
    )
    assert again.output_text


@pytest.mark.parametrize("stream", [False, True])
def test_why_an_answer_ended(live: Live, stream: bool) -> None:
    short = live.client().responses.create(model="fake", input=QUESTION, max_output_tokens=7, stream=stream)  # fmt: skip
    if stream:
        *_, last = short
        assert last.type == "response.incomplete"
        short = last.response
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    text = live.chat(max_tokens=20).choices[0].message.content
    for length, stops, reason in ((7, [], "max_tokens"), (20, ["zz", text[5]], "stop_sequence")):
        ask: Any = {"model": "fake", "messages": TURNS[2:], "max_tokens": length}
        told = messages(live).create(**ask, stop_sequences=stops, stream=stream)
        if stream:
            told = next(event.delta for event in told if event.type == "message_delta")
        assert told.stop_reason == reason
        assert told.stop_sequence == (text[5] if stops else None)


@pytest.mark.parametrize(
    ("own", "effort"),
    [
        ({"output_config": {"effort": "low"}}, "low"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}, "high"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, None),
    ],
)
def test_efforts(live: Live, own: dict[str, Any], effort: str | None) -> None:
    chat = live.chat(max_tokens=24, **({} if effort is None else {"reasoning_effort": effort}))
    told = messages(live).create(model="fake", max_tokens=24, messages=TURNS[2:], extra_body=own)
    assert told.usage.nfe == chat.usage.nfe
    if effort is not None:
        response = live.client().responses.create(
            model="fake", input=QUESTION, max_output_tokens=24, reasoning={"effort": effort}
        )
        assert response.usage.nfe == chat.usage.nfe


@pytest.mark.parametrize(
    ("own", "error", "words"),
    [
        ({"model": "other"}, "NotFoundError", "this server has 'fake'"),
        ({"particles": 500}, "BadRequestError", "this server's limit of 64"),
        ({"n": 2}, "BadRequestError", "field='n' is unknown"),
        ({"tools": [{"name": "x"}]}, "BadRequestError", "tools is supported by"),
        ({"previous_response_id": "x"}, "BadRequestError", "not supported"),
        ({f: {"effort": "max"} for f in ("reasoning", "output_config")}, "BadRequestError", "effort"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_mistakes_have_the_shape_of_the_api(
    live: Live, own: dict[str, Any], error: str, words: str, stream: bool
) -> None:
    with pytest.raises(getattr(openai, error), match=words) as caught:
        live.client().responses.create(model="fake", input="x", stream=stream, extra_body=own)
    assert caught.value.type == "invalid_request_error"
    ask: dict[str, Any] = {"model": "fake", "max_tokens": 9, "messages": TURNS[2:]}
    with pytest.raises(getattr(anthropic, error), match=words) as told:
        messages(live).create(**ask, stream=stream, extra_body=own)
    kinds = {404: "not_found_error", 400: "invalid_request_error"}
    assert told.value.body["type"] == "error"
    assert told.value.body["error"]["type"] == kinds[told.value.status_code]


def test_images_last_answers_and_empty_stops_are_refused(live: Live) -> None:
    picture: Any = [{"role": "user", "content": [{"type": "image", "source": {}}]}]
    for turns in (picture, TURNS[:2]):
        with pytest.raises(anthropic.BadRequestError, match="message"):
            messages(live).create(model="fake", max_tokens=9, messages=turns)
    with pytest.raises(anthropic.BadRequestError, match="stop_sequences"):
        messages(live).create(model="fake", max_tokens=9, messages=TURNS[2:], stop_sequences=[""])


def test_an_error_ends_a_stream_by_an_event_of_the_api() -> None:
    def fail(tokens: Any) -> None:
        raise RuntimeError("out of order")

    with serving(changed_model(fail)) as live:
        events = live.client().responses.create(model="fake", input=QUESTION, stream=True)
        *_, last = events
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(
                messages(live).create(model="fake", max_tokens=20, messages=TURNS[2:], stream=True)
            )
    assert (last.type, last.code) == ("error", "internal_error")
    assert caught.value.body["error"]["type"] == "api_error"  # type: ignore[index]
    assert "out of order" not in str(caught.value)


def test_keys_and_drain_are_those_of_the_other_endpoints() -> None:
    with serving(api_key=KEY, limits=patient(body=5000)) as closed:
        ask: Any = {"model": "fake", "max_tokens": 9, "messages": TURNS[2:]}
        assert messages(closed, api_key=KEY).create(**ask).content  # x-api-key
        assert messages(closed, api_key=None, auth_token=KEY).create(**ask).content  # Bearer
        for wrong in ("wrong", KEY[:-1], "ключ".encode()):
            answer = closed.http.post("/v1/messages", json=ask, headers={"x-api-key": wrong})
            assert answer.json()["error"]["type"] == "authentication_error"
            assert code(closed.http.get("/v1/models", headers={"x-api-key": wrong}))[0] == 401
        big = closed.http.post(
            "/v1/messages", content=b" " * 5001, headers={**JSON, "x-api-key": KEY}
        )
        assert big.json()["error"]["type"] == "request_too_large"
        bad = {"x-api-key": KEY, "authorization": "Bearer wrong"}
        assert closed.http.get("/v1/models", headers=bad).status_code == 401
        assert closed.http.get("/v1/models", headers={"x-api-key": KEY}).status_code == 200
        closed.scheduler.draining = True
        with pytest.raises(anthropic.APIStatusError) as caught:
            messages(closed, api_key=KEY).create(**ask)
        assert caught.value.status_code == 503
        assert caught.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index]
