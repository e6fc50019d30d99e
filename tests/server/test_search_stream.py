"""The step stream is a trace: what the server sends is what the library records, and can be viewed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from s3dlm.errors import RecordError
from s3dlm.settings import Settings
from s3dlm.trace import TraceEncoder, read_trace
from s3dlm.verifier.base import Score, Verifier
from s3dlm.viewer.page import joined, standalone
from tests.fakes import events_of, fake_model
from tests.server.live import QUESTION, SMALL, Live, serving

ASK = {"prompt": QUESTION, "task": "countdown", "seed": 2}
CHAT = {"model": "fake", "messages": [{"role": "user", "content": QUESTION}]}


@pytest.mark.parametrize("rule", [{}, {"reveal": "threshold", "reveal_threshold": 0.12}])
def test_the_stream_is_what_the_library_records(live: Live, rule: dict[str, object]) -> None:
    answer = live.post("/v1/search", **ASK, **rule)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert done == "[DONE]"
    settings = Settings.from_json({"method": "s3", **SMALL, "seed": 2}).replace(**rule)
    model = fake_model()
    encoder = TraceEncoder(model)
    expected = [encoder.header("fake", QUESTION, "countdown", settings)]
    for event in events_of(model, QUESTION, task="countdown", settings=settings):
        expected.append(encoder.event(event))
    told = [json.loads(event) for event in events]
    for line in (*told, *expected):
        line.pop("seconds", None)
        line.pop("timings", None)
    assert told == expected


def test_lines_can_be_saved_read_and_viewed(live: Live, tmp_path: Path) -> None:
    path, other = tmp_path / "saved.jsonl", tmp_path / "other.jsonl"
    evil = "</script><script>alert(1)</script>"  # a trace cannot break out of its page
    path.write_text("\n".join(live.lines(evil)) + "\n")
    assert len(list(read_trace(path))) == SMALL["steps"] + 1
    page = standalone([path])
    assert page.count("<script") == 2
    for words in ('"/viewer/style', '"/viewer/main', "import {", "alert(1)</script>"):
        assert words not in page
    other.write_text("{}\n")
    with pytest.raises(RecordError, match="not a trace"):
        standalone([other])


def test_every_module_of_the_page_is_joined_once() -> None:
    lines = joined("main.js").splitlines()
    assert not [line for line in lines if line.startswith(("import", "export"))]


def test_what_cannot_be_sent_is_an_error_of_the_stream() -> None:
    class Odd(Verifier):
        def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
            return Score(0.5, {"remark": "a text"})  # type: ignore[dict-item]

    with serving(verifiers={"odd": Odd()}) as live:
        answer = live.post("/v1/search", prompt="x", format="jsonl", verifier="odd")
    assert "error" in json.loads(answer.text.splitlines()[-1])


@pytest.mark.parametrize("wrong", [{"prompt": ""}, {"budget": 1}, {"nope": 1}])
def test_errors_come_before_the_stream(live: Live, wrong: dict[str, object]) -> None:
    answer = live.post("/v1/search", **{"prompt": "x", **wrong})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_options_offer_only_what_is_accepted(live: Live) -> None:
    offered = live.http.get("/v1/options").json()
    for example in offered["examples"][:2]:
        assert live.post("/v1/search", **example, gen_length=24).status_code == 200
    for method in offered["methods"]:
        assert json.loads(live.lines("x", method=method)[-1])["event"] == "result"


@pytest.mark.parametrize(
    "own",
    [
        {"method": "revise", "rounds": 3},
        {"method": "revise", "rounds": 2, "remask": "from_doubt"},
        {"guidance": 0.5},
        {"budget": 40},
        {"budget": 2},
        {"method": "hex"},
        {"method": "particle_gibbs"},
        {"infill": "6 * [[1]] = [[2]]"},
    ],
    ids=str,
)
def test_the_steps_add_up_to_the_nfe_of_the_result(live: Live, own: dict[str, object]) -> None:
    """It is what the viewer shows while a search runs."""
    _, *steps, result = map(json.loads, live.lines(**own))
    assert sum(step["nfe"] + step["start_nfe"] for step in steps) == result["nfe"]


def test_a_chat_that_sends_its_text_at_the_end_is_never_silent(live: Live) -> None:
    """Each step is a thought, if it has a new best draft, or a comment; both come before the text."""
    own = {"method": "revise", "rounds": 2, "gen_length": 24, "steps": 6, "block_length": 24}
    answer = live.post("/v1/chat/completions", **CHAT, **own, stream=True)
    lines = [line for line in answer.text.split("\n\n") if line]
    deltas = [
        json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith("data: {")
    ]
    thoughts = [each["reasoning_content"] for each in deltas if "reasoning_content" in each]
    steps = len(live.lines(QUESTION, **own)) - 2
    assert len(thoughts) + sum(line.startswith(": step ") for line in lines) == steps
    assert thoughts[0].startswith("Draft 1, score 0.")
    assert all(a != b for a, b in itertools.pairwise(thoughts))
    first = next(place for place, each in enumerate(deltas) if each.get("content"))
    assert all("reasoning_content" not in each for each in deltas[first:])
    whole = live.post("/v1/chat/completions", **CHAT, **own).json()["choices"][0]["message"]
    assert "".join(each.get("content") or "" for each in deltas) == whole["content"]
    assert "reasoning_content" not in whole
    plain = live.post(
        "/v1/chat/completions", **CHAT, **own, stream=True, include_reasoning=False
    ).text
    assert "reasoning_content" not in plain
    assert plain.count("\n\n: step ") + plain.startswith(": step ") == steps


@pytest.mark.parametrize(
    ("path", "own", "sign"),
    [
        ("/v1/completions", {"prompt": QUESTION}, ": step 2 of 6"),
        ("/v1/responses", {"input": QUESTION}, ": step 2 of 6"),
        ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24}, "event: ping"),
    ],
)  # fmt: skip
def test_no_other_door_is_silent(live: Live, path: str, own: dict[str, Any], sign: str) -> None:
    body = {"model": "fake", "method": "revise", "steps": 6, **own, "stream": True}
    assert live.post(path, **body).text.count(f"\n\n{sign}") >= 1
