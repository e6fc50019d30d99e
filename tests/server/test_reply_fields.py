"""What a reply may have beyond its text: probabilities, a form, another name; and the pages about it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html import unescape

import openai
import pytest

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.server import service
from s3dlm.server.app import create_app
from s3dlm.settings import Settings
from s3dlm.verifier.json_format import JsonFormat
from tests.fakes import fake_model
from tests.server.live import SMALL, Live, serving

QUESTION = "Target: 24 Numbers: 6, 4, 12"
ASK = {"model": "fake", "messages": [{"role": "user", "content": QUESTION}]}
OBJECTS = ('{"a": 1}', '{"b": 2}', "no json.")  # their mixtures are JSON now and then
ALIASES = {"greedy": {"method": "baseline", "temperature": 0.0}, "wide": {"particles": 3}}


@pytest.fixture(scope="module")
def writer() -> Iterator[Live]:
    """A model that writes JSON now and then, under three names."""
    with serving(fake_model(OBJECTS, push=8.0), defaults=SMALL, aliases=ALIASES) as server:
        yield server


@pytest.mark.parametrize("method", ["s3", "best", "baseline"])
def test_logprobs_are_the_results_own(live: Live, method: str) -> None:
    chat = live.client().chat.completions.create
    choice = chat(**ASK, logprobs=True, seed=3, extra_body={"method": method}).choices[0]
    used = {
        n: v
        for n, v in SMALL.items()
        if method != "baseline" or n not in ("particles", "branching")
    }
    alone = s3dlm.generate(fake_model(), QUESTION, settings=Settings(method, seed=3, **used))
    assert choice.logprobs is not None
    content = choice.logprobs.content or []
    assert "".join(one.token for one in content) == choice.message.content == alone.text
    assert [one.logprob for one in content] == pytest.approx(alone.token_logprobs, abs=1e-6)
    assert all(0 < math.exp(one.logprob) <= 1 for one in content)
    assert chat(**ASK, seed=3, extra_body={"method": method}).choices[0].logprobs is None


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
    chat = live.client().chat.completions.create
    whole = chat(**ASK, logprobs=True).choices[0]
    *_, last = chat(**ASK, logprobs=True, stream=True)
    assert last.choices[0].finish_reason == whole.finish_reason
    assert last.choices[0].logprobs == openai.types.chat.chat_completion_chunk.ChoiceLogprobs(
        **whole.logprobs.model_dump()
    )


def texts(server: Live, *, stream: bool, **body: object) -> list[str]:
    """The answers to some seeds that have one; the others must say that the form was not reached."""
    found, ask = [], server.client().chat.completions.create
    for seed in range(10):
        try:
            reply = ask(**ASK, seed=seed, stream=stream, **body)
            pieces = list(reply) if stream else []
        except openai.APIError as error:
            found.append(f"error {error.code}")
            continue
        joined = "".join(one.choices[0].delta.content or "" for one in pieces)
        found.append(joined if stream else reply.choices[0].message.content)
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_a_wanted_form_is_reached_or_refused(writer: Live, stream: bool) -> None:
    """Whatever is answered has the form; what cannot be reached is an error, not another text."""
    wanted = {"type": "json_object"}
    found = texts(writer, stream=stream, response_format=wanted, temperature=1.0)
    reached = [text for text in found if text != "error format_not_reached"]
    assert reached
    assert all(isinstance(json.loads(text), dict) for text in reached)
    free = texts(writer, stream=stream, temperature=1.0)
    assert any(not JsonFormat({"type": "object"}).fits(text) for text in free)


def test_a_schema_is_enforced(writer: Live) -> None:
    schema = {"type": "object", "required": ["b"], "properties": {"b": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "b", "schema": schema}}
    found = texts(
        writer, stream=False, response_format=wanted, temperature=1.0, extra_body={"particles": 8}
    )
    reached = [text for text in found if text != "error format_not_reached"]
    assert reached
    assert all(isinstance(json.loads(text)["b"], int) for text in reached)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"method": "baseline"}, "never calls it"),
        ({"method": "best_of_k"}, "never calls it"),
        ({"temperature": 0}, "never calls it"),
        ({"logprobs": True}, "either logprobs or"),
        ({"response_format": {"type": "json_schema"}}, "json_schema is missing"),
        ({"response_format": {"type": "grammar"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"format": "date"}}}},
            "'format' cannot be enforced",
        ),
        ({"top_logprobs": 3, "response_format": None}, "top_logprobs"),
    ],
)  # fmt: skip
def test_what_cannot_be_enforced_is_refused(
    writer: Live, extra: dict[str, object], words: str
) -> None:
    body = {**ASK, "response_format": {"type": "json_object"}, **extra}
    with writer.http() as http:
        answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_the_model_answers_to_every_alias(writer: Live) -> None:
    client = writer.client()
    assert [one.id for one in client.models.list()] == ["fake", "greedy", "wide"]
    assert client.models.retrieve("wide").id == "wide"
    replies = {
        name: client.chat.completions.create(**{**ASK, "model": name})
        for name in ("greedy", "wide")
    }
    assert {name: reply.model for name, reply in replies.items()} == {
        "greedy": "greedy",
        "wide": "wide",
    }
    assert replies["wide"].choices[0].search["particles"] == 3
    # What a method does not use is not reported.
    assert not {"particles", "branching"} & set(replies["greedy"].choices[0].search)
    greedy = client.chat.completions.create(**ASK, temperature=0)
    assert replies["greedy"].choices[0].message.content == greedy.choices[0].message.content
    own = client.chat.completions.create(**{**ASK, "model": "wide"}, extra_body={"particles": 2})
    assert own.choices[0].search["particles"] == 2
    with pytest.raises(openai.NotFoundError, match="'fake', 'greedy', 'wide'"):
        client.chat.completions.create(**{**ASK, "model": "gpt-4"})


def test_a_wrong_alias_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="never calls the verifier"):
        create_app(fake_model(), aliases={"x": {"method": "best_of_k", "lam": 3.0}})


def test_version_and_docs(writer: Live) -> None:
    with writer.http() as http:
        version = http.get("/version").json()
        page = http.get("/docs")
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
    with live.http() as http:
        schemas = http.get("/openapi.json").json()["components"]["schemas"]
        for path, name, body in (
            ("/v1/chat/completions", "Chat", ASK),
            ("/v1/completions", "Text", {"model": "fake", "prompt": "x"}),
        ):
            reply = http.post(path, json=body).json()
            (choice,) = reply["choices"]
            assert set(choice) == set(schemas[f"{name}Choice"]["properties"])
            assert set(choice["search"]) == set(schemas["SearchReport"]["properties"])
            assert set(reply["usage"]) == set(schemas["Usage"]["properties"])


def test_docs_need_no_key_and_version_does() -> None:
    key = "a-key-of-16-letters"
    with serving(fake_model(), defaults=SMALL, api_key=key) as closed, closed.http() as http:
        page = http.get("/docs")
        assert page.status_code == 200
        assert "fake" not in page.text
        assert "authorization: Bearer KEY" in page.text
        assert http.get("/version").status_code == 401


def test_what_an_operator_sets_counts_where_the_method_uses_it() -> None:
    """With a budget `best` can stop; `baseline` has nobody to say when."""
    made = service.build(fake_model(), defaults={**SMALL, "budget": 64, "stop_when": "never"})
    try:
        assert made.settings("best").method.stop_when == "never"
        assert "stop_when" not in made.settings("baseline").to_json()
        used = made.options()["settings_of"]
        assert "stop_when" in used["best"]
        assert "stop_when" not in used["baseline"]
    finally:
        made.scheduler.stop()
