"""Infilling over HTTP: the same text as in Python, the holes beside it, and clear refusals."""

from __future__ import annotations

import json

import openai
import pytest

import s3dlm
from s3dlm.settings import Settings
from tests.fakes import MASK, fake_model
from tests.server.live import SMALL, Live

QUESTION = "Target: 24 Numbers: 6, 4, 12"
TEXT = "12 - 6 = [[1]]. <answer>[[4-6]]</answer>"
ASK = {"model": "fake", "messages": [{"role": "user", "content": QUESTION}]}


def alone(text: str = TEXT, prompt: str = QUESTION) -> s3dlm.Result:
    return s3dlm.infill(fake_model(), text, prompt=prompt, settings=Settings("s3", **SMALL))


def test_a_chat_is_answered_by_the_filled_text(live: Live) -> None:
    chat = live.client().chat.completions.create
    choice = chat(**ASK, extra_body={"infill": TEXT}).choices[0]
    expected = alone()
    assert choice.message.content == expected.text
    assert choice.model_dump()["search"]["holes"] == list(expected.holes)
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize("text", [TEXT, "12 - 6 = [[1]]. <answer>[[4]]</answer>"])
def test_a_stream_adds_up_to_the_same_text(live: Live, text: str) -> None:
    chunks = live.client().chat.completions.create(**ASK, stream=True, extra_body={"infill": text})
    pieces = [one.choices[0].delta.content or "" for one in chunks]
    assert "".join(pieces) == alone(text).text


def test_a_completion_without_a_prompt_is_the_text_alone(live: Live) -> None:
    create = live.client().completions.create
    reply = create(model="fake", prompt="", extra_body={"infill": "ab[[4]]cd"})
    assert reply.choices[0].text == alone("ab[[4]]cd", "").text


def test_a_watched_search_says_what_was_given(live: Live) -> None:
    body = {"prompt": QUESTION, "infill": "a[[2]]b", "format": "jsonl"}
    with live.http() as http:
        header, *steps, result = map(
            json.loads, http.post("/v1/search", json=body).text.split("\n")[:-1]
        )
    assert header["given"] == [[97, -1, -1, 98]]
    assert all(row[0] == 97 and row[3] == 98 for step in steps for row in step["tokens"])
    assert result["holes"] == list(alone("a[[2]]b").holes)
    assert MASK not in [token for step in steps for row in step["tokens"] for token in row]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no hole", "has no hole"),
        ("a [[x]]", "not a number of tokens"),
        ("a [[2000]]", "holes of infill have 2000 tokens, more than this server's limit of 1024"),
        ("a [[600]]", "reads at most"),
        ("", "has no hole"),
    ],
)
def test_a_mistake_is_a_refusal(live: Live, text: str, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        live.client().chat.completions.create(**ASK, extra_body={"infill": text})


def test_an_ordinary_reply_has_no_holes(live: Live) -> None:
    choice = live.client().chat.completions.create(**ASK).choices[0]
    assert choice.model_dump()["search"]["holes"] == []
