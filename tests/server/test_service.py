"""What one server offers: names, settings and its published schema."""

from __future__ import annotations

import openai
import pytest

from s3dlm.errors import SettingsError
from s3dlm.server.app import create_app
from tests.fakes import fake_model
from tests.server.live import ASK, Live, serving

ALIASES = {"greedy": {"method": "baseline", "temperature": 0.0}, "wide": {"particles": 3}}


def test_the_model_answers_to_every_alias() -> None:
    with serving(aliases=ALIASES) as named:
        client = named.client()
        assert [one.id for one in client.models.list()] == ["fake", "greedy", "wide"]
        assert client.models.retrieve("wide").id == "wide"
        wide, greedy = named.chat(model="wide"), named.chat(model="greedy")
        assert (wide.model, greedy.model) == ("wide", "greedy")
        assert wide.choices[0].search["particles"] == 3
        # What a method does not use is not reported, whatever the operator set.
        assert not {"particles", "branching"} & set(greedy.choices[0].search)
        expected = named.chat(temperature=0).choices[0].message.content
        assert greedy.choices[0].message.content == expected
        assert named.chat(model="wide", particles=2).choices[0].search["particles"] == 2
        with pytest.raises(openai.NotFoundError, match="'fake', 'greedy', 'wide'"):
            named.chat(model="gpt-4")


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


def test_the_published_schema_has_every_setting_and_what_a_reply_says_of_its_search(
    live: Live,
) -> None:
    schemas = live.http.get("/openapi.json").json()["components"]["schemas"]
    for name in ("ChatRequest", "CompletionRequest", "SearchRequest"):
        assert {"ess_threshold", "reasoning_effort", "user"} <= set(schemas[name]["properties"])
    for reply in (live.post("/v1/chat/completions", **ASK).json(), live.ask("x").json()):
        assert set(reply) == set(schemas["Answer"]["properties"])
        told = {*reply["choices"][0]["search"], "checkable"}  # the paper's verifier does not say
        assert told == set(schemas["SearchReport"]["properties"])
        assert set(reply["usage"]) == set(schemas["Usage"]["properties"])


def test_options_offer_only_what_is_accepted(live: Live) -> None:
    offered = live.http.get("/v1/options").json()
    for example in offered["examples"][:2]:
        assert live.post("/v1/search", **example, gen_length=24).status_code == 200
    for method in offered["methods"]:
        assert live.post("/v1/settings", prompt="x", method=method).status_code == 200
    used = offered["settings_of"]
    assert "particles" in used["revise"]
    assert "particles" not in used["baseline"]
