"""What a reply may have beyond its text: probabilities, another name; and the pages about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import unescape

import openai
import pytest

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.server import service
from s3dlm.server.app import create_app
from tests.fakes import fake_model
from tests.server.live import ASK, QUESTION, SMALL, Live, alone, serving

OBJECTS = ('{"a": 1}', '{"b": 2}', "no json.")  # their mixtures are JSON now and then
ALIASES = {"greedy": {"method": "baseline", "temperature": 0.0}, "wide": {"particles": 3}}


@pytest.fixture(scope="module")
def writer() -> Iterator[Live]:
    """A model that writes JSON now and then, under three names."""
    with serving(
        fake_model(OBJECTS, push=8.0), defaults={"method": "s3", **SMALL}, aliases=ALIASES
    ) as server:
        yield server


@pytest.mark.parametrize("method", ["s3", "revise", "baseline"])
def test_logprobs_are_the_results_own(live: Live, method: str) -> None:
    choice = live.chat(logprobs=True, seed=3, method=method).choices[0]
    expected, content = alone(QUESTION, method=method, seed=3), choice.logprobs.content
    assert "".join(token.token for token in content) == choice.message.content == expected.text
    logprobs = [token.logprob for token in content]
    assert logprobs == pytest.approx(expected.token_logprobs, abs=1e-6)
    assert all(0 < math.exp(logprob) <= 1 for logprob in logprobs)
    assert live.chat(seed=3, method=method).choices[0].logprobs is None


def test_logprobs_of_completions_have_offsets_and_end_at_a_stop(live: Live) -> None:
    create = live.client().completions.create
    whole = create(model="fake", prompt=QUESTION, logprobs=0).choices[0]
    assert whole.logprobs is not None
    offsets, tokens = whole.logprobs.text_offset or [], whole.logprobs.tokens or []
    assert [
        whole.text[at : at + len(token)] for at, token in zip(offsets, tokens, strict=True)
    ] == tokens
    stop = whole.text[3]
    cut = create(model="fake", prompt=QUESTION, logprobs=0, stop=stop).choices[0]
    assert cut.logprobs is not None
    assert "".join(cut.logprobs.tokens or []) == cut.text
    with pytest.raises(openai.BadRequestError, match="only the probability of the chosen token"):
        create(model="fake", prompt=QUESTION, logprobs=2)


def test_a_stream_has_its_logprobs_at_the_end(live: Live) -> None:
    whole = live.chat(logprobs=True).choices[0]
    *_, last = live.chat(logprobs=True, stream=True)
    assert last.choices[0].finish_reason == whole.finish_reason
    assert last.choices[0].logprobs.model_dump() == whole.logprobs.model_dump()


def test_the_model_answers_to_every_alias(writer: Live) -> None:
    client = writer.client()
    assert [one.id for one in client.models.list()] == ["fake", "greedy", "wide"]
    assert client.models.retrieve("wide").id == "wide"
    wide, greedy = writer.chat(model="wide"), writer.chat(model="greedy")
    assert (wide.model, greedy.model) == ("wide", "greedy")
    assert wide.choices[0].search["particles"] == 3
    # What a method does not use is not reported.
    assert not {"particles", "branching"} & set(greedy.choices[0].search)
    expected = writer.chat(temperature=0).choices[0].message.content
    assert greedy.choices[0].message.content == expected
    assert writer.chat(model="wide", particles=2).choices[0].search["particles"] == 2
    with pytest.raises(openai.NotFoundError, match="'fake', 'greedy', 'wide'"):
        writer.chat(model="gpt-4")


def test_clients_do_not_read_the_address_of_a_judge() -> None:
    judges = {"judge:https://me:secret@example.org/v1#wise": lambda *_: 0.5}
    with serving(verifiers=judges) as live:
        assert "judge:wise" in live.http.get("/v1/options").json()["verifiers"]
        for answer in (live.http.get("/v1/options"), live.ask("x", verifier="none")):
            assert "secret" not in answer.text
        assert live.ask("x", verifier="judge:wise").status_code == 200


def test_a_wrong_alias_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"is not a setting of method=.best_of_k"):
        create_app(fake_model(), aliases={"x": {"method": "best_of_k", "lam": 3.0}})


def test_version_and_docs(writer: Live) -> None:
    version, page = writer.http.get("/version").json(), writer.http.get("/docs")
    assert version["version"] == s3dlm.__version__
    assert version["models"] == ["fake", "greedy", "wide"]
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for words in ("/v1/chat/completions", "ess_threshold", "response_format", "/version"):
        assert words in page.text
    assert "<script" not in page.text
    assert f"curl -s {writer.url}/v1/chat/completions" in page.text
    assert unescape(page.text).count('"model": "fake"') == 1
    assert "http://" not in page.text.replace(writer.url, "")


def test_the_published_schema_has_every_field_of_a_reply(live: Live) -> None:
    schemas = live.http.get("/openapi.json").json()["components"]["schemas"]
    chat, text = live.post("/v1/chat/completions", **ASK).json(), live.ask("x").json()
    for reply, name in ((chat, "ChatChoice"), (text, "TextChoice")):
        (choice,) = reply["choices"]
        assert set(choice) == set(schemas[name]["properties"])
        told = {*choice["search"], "checkable"}  # of which the paper's verifier says nothing
        assert told == set(schemas["SearchReport"]["properties"])
        assert set(reply["usage"]) == set(schemas["Usage"]["properties"])


def test_what_an_operator_sets_counts_where_the_method_uses_it() -> None:
    made = service.Service(fake_model(), defaults={**SMALL, "particles": 3})
    try:
        assert made.settings("revise").to_json()["particles"] == 3
        assert "particles" not in made.settings("baseline").to_json()
        used = made.options()["settings_of"]
        assert "particles" in used["revise"]
        assert "particles" not in used["baseline"]
    finally:
        made.scheduler.stop()
