"""Infilling over HTTP: the same text as in Python, the holes beside it, and clear refusals."""

from __future__ import annotations

import json

import pytest

import s3dlm
from s3dlm.settings import Settings
from tests.fakes import MASK, fake_model
from tests.server.live import ASK, QUESTION, SMALL, Live, serving

TEXT = "12 - 6 = [[1]]. <answer>[[5]]</answer>"


def filled(text: str = TEXT, prompt: str = QUESTION) -> s3dlm.Result:
    return s3dlm.infill(
        fake_model(), text, prompt=prompt, settings=Settings.from_json({"method": "s3", **SMALL})
    )


def test_a_chat_is_answered_by_the_filled_text(live: Live) -> None:
    choice, expected = live.chat(infill=TEXT).choices[0], filled()
    assert choice.message.content == expected.text
    assert choice.search["holes"] == list(expected.holes)
    assert choice.finish_reason == "stop"
    assert live.chat().choices[0].search["holes"] == []


@pytest.mark.parametrize("text", [TEXT, "12 - 6 = [[1]]. <answer>[[4]]</answer>"])
def test_a_stream_adds_up_to_the_same_text(live: Live, text: str) -> None:
    pieces = [chunk.choices[0].delta.content or "" for chunk in live.chat(stream=True, infill=text)]
    assert "".join(pieces) == filled(text).text


def test_a_completion_without_a_prompt_is_the_text_alone(live: Live) -> None:
    reply = live.ask("", infill="ab[[4]]cd").json()
    assert reply["choices"][0]["text"] == filled("ab[[4]]cd", "").text


def test_a_watched_search_says_what_was_given(live: Live) -> None:
    header, *steps, result = map(json.loads, live.lines(infill="a[[2]]b"))
    assert header["given"] == [[97, -1, -1, 98]]
    assert all(row[0] == 97 and row[3] == 98 for step in steps for row in step["tokens"])
    assert result["holes"] == list(filled("a[[2]]b").holes)
    assert MASK not in [token for step in steps for row in step["tokens"] for token in row]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no hole", "has no hole"),
        ("a [[x]]", "not a number of tokens"),
        ("a [[5000]]", "holes of infill have 5000 tokens, more than this server's limit of 4096"),
        ("a [[600]]", "reads at most"),
        ("", "has no hole"),
    ],
)
def test_a_mistake_is_refused(live: Live, text: str, words: str) -> None:
    answer = live.post("/v1/chat/completions", **ASK, infill=text)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_a_puzzle_is_solved_over_http_and_a_wrong_one_is_refused() -> None:
    model = s3dlm.load("sudoku9")
    puzzle = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    with serving(model, defaults={}) as server:
        reply = server.post("/v1/completions", model="sudoku9", prompt=puzzle).json()
        assert reply["choices"][0]["text"] == s3dlm.generate(model, puzzle).text
        refused = server.post("/v1/search", prompt=puzzle[:-1], task="sudoku9")
        assert refused.status_code == 400
        assert "has 80 cells, not 81" in refused.json()["error"]["message"]
