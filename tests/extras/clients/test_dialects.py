"""The official clients of OpenAI's Responses and Anthropic's Messages against the real server and `tiny`."""

from __future__ import annotations

from functools import partial
from typing import Any

import anthropic
import openai
import pytest

import s3dlm
from s3dlm.extras.clients.dialects import anthropic_error
from s3dlm.server.reporting import ApiError
from tests import test_docs
from tests.server.live import QUESTION, Live, PlainClient, alone, changed_model, serving

PAGE = test_docs.ROOT / "docs" / "server.md"
LONG = {"gen_length": 60, "steps": 15, "block_length": 10, "particles": 1}
TURNS: list[Any] = [
    {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": QUESTION},
]
ASK: dict[str, Any] = {"model": "fake", "max_tokens": 24, "messages": TURNS[2:]}


def messages(live: Live) -> Any:
    client = PlainClient()  # of both packages: they build on the same one
    options = {"api_key": "none", "max_retries": 0, "http_client": client}
    return anthropic.Anthropic(base_url=live.url, **options).messages  # type: ignore[arg-type]


def test_the_example_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs as it stands but for the port, and prints what it shows."""
    for package, name in ((openai, "OpenAI"), (anthropic, "Anthropic")):
        plain = partial(getattr(package, name), http_client=PlainClient())
        monkeypatch.setattr(package, name, plain)
    block = next(b for b in test_docs.blocks(PAGE) if b.language == "python")
    names: dict[str, Any] = {"print": test_docs.print_as_shown(block)}
    with serving(s3dlm.load("tiny"), defaults={}) as live:
        exec(block.text.replace("http://127.0.0.1:8000", live.url), names)
    assert names["message"].usage.nfe == 5


def test_responses(live: Live) -> None:
    ask: Any = {"model": "fake", "input": QUESTION, "extra_body": {"task": "countdown", **LONG}}
    client, expected = live.client().responses, alone(QUESTION, task="countdown", **LONG)
    whole = client.create(**ask)
    assert (whole.output_text, whole.usage.nfe) == (expected.text, expected.nfe)
    assert (whole.status, whole.incomplete_details, whole.error) == ("completed", None, None)
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
    assert (final.output_text, final.usage) == (expected.text, whole.usage)


def test_messages(live: Live) -> None:
    expected = alone(QUESTION, task="countdown", **LONG)
    ask = {**ASK, "max_tokens": 60, "extra_body": {"task": "countdown", **LONG}}
    whole = messages(live).create(**ask)
    assert ([block.text for block in whole.content], whole.usage.nfe) == (
        [expected.text],
        expected.nfe,
    )
    assert (whole.role, whole.stop_reason, whole.stop_sequence) == ("assistant", "end_turn", None)
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
        ("/v1/completions", {"prompt": QUESTION}, ": step 2 of 6"),
        ("/v1/responses", {"input": QUESTION}, ": step 2 of 6"),
        ("/v1/messages", {"messages": TURNS[2:], "max_tokens": 24}, "event: ping"),
    ],
)
def test_no_stream_is_silent(live: Live, path: str, own: dict[str, Any], sign: str) -> None:
    body = {"model": "fake", "method": "revise", "steps": 6, **own, "stream": True}
    assert f"\n\n{sign}" in live.post(path, **body).text


@pytest.mark.parametrize("effort", ["low", None])
def test_a_conversation_is_the_same_in_every_dialect(live: Live, effort: str | None) -> None:
    system, own = {"role": "system", "content": "Be brief."}, {"effort": effort}
    chat = live.chat(messages=[system, *TURNS], max_tokens=30, reasoning_effort=effort)
    response = live.client().responses.create(
        model="fake", instructions="Be brief.", input=TURNS, max_output_tokens=30, reasoning=own,  # type: ignore[arg-type]
    )  # fmt: skip
    message = messages(live).create(
        model="fake", system="Be brief.", messages=TURNS, max_tokens=30, metadata={"user_id": "x"},
        thinking={"type": "enabled", "budget_tokens": 1024}, extra_body={"output_config": own},
    )  # fmt: skip
    text = chat.choices[0].message.content
    assert text == response.output_text == message.content[0].text
    assert chat.usage.nfe == response.usage.nfe == message.usage.nfe  # type: ignore[union-attr]
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
        ask = {**ASK, "max_tokens": length, "stop_sequences": stops, "stream": stream}
        told = messages(live).create(**ask)
        if stream:
            told = next(event.delta for event in told if event.type == "message_delta")
        assert told.stop_reason == reason
        assert told.stop_sequence == (text[5] if stops else None)


PICTURE = [{"role": "user", "content": [{"type": "image", "source": {}}]}]
EFFORT = {"effort": "max"}


@pytest.mark.parametrize(
    ("own", "error", "words"),
    [
        ({"model": "other"}, "NotFoundError", "this server has 'fake'"),
        ({"particles": 500}, "BadRequestError", "this server's limit of 64"),
        ({"n": 2}, "BadRequestError", "field='n' is unknown"),
        ({"tools": [{"name": "x"}]}, "BadRequestError", "tools is supported by"),
        ({"previous_response_id": "x"}, "BadRequestError", "not supported"),
        ({"reasoning": EFFORT, "output_config": EFFORT}, "BadRequestError", "effort"),
        ({"turns": PICTURE}, "BadRequestError", r"0\.content\.0\.type: Input should be .*text"),
        ({"turns": TURNS[:2]}, "BadRequestError", "last message must"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_mistakes_have_the_shape_of_the_api(
    live: Live, own: dict[str, Any], error: str, words: str, stream: bool
) -> None:
    turns = own.get("turns", TURNS[2:])
    more: Any = {"stream": stream, "extra_body": {n: v for n, v in own.items() if n != "turns"}}
    with pytest.raises(getattr(openai, error), match=words) as caught:
        live.client().responses.create(model="fake", input=turns, **more)
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(getattr(anthropic, error), match=words) as told:
        messages(live).create(**{**ASK, "messages": turns}, **more)
    shown: Any = told.value.body
    wanted = anthropic_error(ApiError(told.value.status_code, "x"))
    assert (shown["type"], shown["error"]["type"]) == ("error", wanted["error"]["type"])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"), (401, "authentication_error"), (404, "not_found_error"),
        (413, "request_too_large"), (500, "api_error"), (503, "overloaded_error"),
    ],
)  # fmt: skip
def test_every_status_has_its_kind_of_error(status: int, kind: str) -> None:
    assert anthropic_error(ApiError(status, "x"))["error"] == {"type": kind, "message": "x"}


def test_an_error_ends_a_stream_by_an_event_of_the_api() -> None:
    def fail(tokens: Any) -> None:
        raise RuntimeError("out of order")

    with serving(changed_model(fail)) as live:
        *_, last = live.client().responses.create(model="fake", input=QUESTION, stream=True)
        with pytest.raises(anthropic.APIStatusError) as caught:
            list(messages(live).create(**ASK, stream=True))
    assert (last.type, last.code) == ("error", "internal_error")  # type: ignore[union-attr]
    assert caught.value.body["error"]["type"] == "api_error"  # type: ignore[index]
    assert "out of order" not in str(caught.value)
