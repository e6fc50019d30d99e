"""Multiple choice: how probable each of some given answers is."""

from __future__ import annotations

from typing import Any

import pytest

import s3dlm
from s3dlm.engine import Batcher, Job, Result
from s3dlm.integrations.likelihood import log_likelihood
from tests.fakes import fake_model
from tests.server.live import QUESTION, Live, code

LABELS = ["6", "4", "6*4", "12+4", "no answer"]


def bounds(prompt: str, labels: list[str]) -> dict[str, float]:
    """What lm-eval is told of them."""
    model = fake_model()
    encode = model.tokenizer.encode
    ids = model.tokenizer.chat(prompt)
    return {label: log_likelihood(model, ids, encode(label)) for label in labels}


@pytest.mark.parametrize("stream", [False, True])
def test_the_likeliest_label_and_the_probabilities_of_all(live: Live, stream: bool) -> None:
    expected = bounds(QUESTION, LABELS)
    ask = {"labels": LABELS, "logprobs": True, "top_logprobs": 5, "stream": stream}
    reply = live.chat(**ask)
    chunks = list(reply) if stream else []
    last = chunks[-1].choices[0] if stream else reply.choices[0]
    (told,) = last.logprobs.content
    assert {top.token: top.logprob for top in told.top_logprobs} == pytest.approx(
        expected, abs=1e-4
    )
    best = max(expected, key=lambda label: expected[label])
    assert (told.token, last.search["answer"]) == (best, best)
    logprobs = [top.logprob for top in told.top_logprobs]
    assert logprobs == sorted(logprobs, reverse=True)
    if not stream:
        assert last.message.content == best
        assert (last.finish_reason, last.search["survivors"]) == ("stop", len(LABELS))


def test_labels_of_one_token_share_one_pass(live: Live) -> None:
    create = live.client().completions.create
    reply = create(
        model="fake", prompt=QUESTION, logprobs=2, extra_body={"labels": ["A", "B", "C"]}
    )
    assert (reply.usage.nfe, reply.usage.completion_tokens) == (1, 1)  # type: ignore[union-attr]
    told = reply.choices[0].logprobs
    assert told is not None
    assert told.tokens == [reply.choices[0].text]
    assert told.top_logprobs == [pytest.approx(bounds(QUESTION, ["A", "B", "C"]), abs=1e-4)]


def test_the_budget_bounds_the_passes(live: Live) -> None:
    whole, some = (live.chat(labels=LABELS, **own) for own in ({}, {"budget": 20}))
    assert some.usage.nfe <= 20 < whole.usage.nfe
    again = live.chat(labels=LABELS, seed=0)
    assert again.choices[0].logprobs == whole.choices[0].logprobs


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"labels": []}, "labels"),
        ({"labels": [""]}, "0 tokens"),
        ({"labels": ["x" * 600]}, "600 tokens"),
        ({"labels": ["x"] * 65}, "labels"),
        ({"labels": ["\ud800"]}, "Unicode"),
        ({"labels": ["A", "B"], "n": 2}, "one prompt"),
        ({"labels": ["A", "B"], "infill": "[[2]]"}, "without n, infill"),
        ({"labels": ["A", "B", "C"], "budget": 2}, "too small for 3 labels"),
    ],
)
def test_what_is_refused(live: Live, own: dict[str, Any], words: str) -> None:
    answer = live.ask(QUESTION, **own)
    assert code(answer)[0] == 400
    assert words in answer.json()["error"]["message"]


def test_labels_of_the_bundled_model() -> None:
    """A real network, by the engine alone: values are those of the harness's integration."""
    model, labels = s3dlm.load("tiny"), ("A", "B", "4", "24")
    settings = s3dlm.Settings.for_model(model)
    batcher = Batcher(model)
    batcher.add(Job(QUESTION, None, settings, labels=labels))
    events = [event for _ in range(9) if batcher.running for _, event in batcher.step()]
    (result,) = events
    assert isinstance(result, Result)
    prompt = model.tokenizer.chat(QUESTION)
    for survivor in result.survivors:
        ids = model.tokenizer.encode(survivor.text)
        assert survivor.logp == pytest.approx(log_likelihood(model, prompt, ids), abs=1e-3)
    assert result.timings["forward"] > 0
