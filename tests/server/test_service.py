"""What one server offers: names, settings, its published schema, and conversations through the model's own template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import openai
import pytest

import s3dlm
from s3dlm.engine import Job, run
from s3dlm.errors import SettingsError
from s3dlm.models.base import Turn, quoted
from s3dlm.server.app import create_app
from tests.fakes import ByteTokenizer, fake_model
from tests.server.live import ASK, QUESTION, Live, alone, serving

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


USER = {"role": "user", "content": QUESTION}
SYSTEM = {"role": "system", "content": "Be brief."}


class TalkingTokenizer(ByteTokenizer):
    """Knows turns, and remembers what it was asked to write."""

    def __init__(self) -> None:
        self.seen: list[list[Turn]] = []

    def converse(self, turns: Sequence[Turn], prefill: str = "") -> list[int]:
        self.seen.append(list(turns))
        return self.encode("|".join(f"{one.role}:{one.text}" for one in turns) + f"\n{prefill}")


def test_a_conversation_reaches_the_template_turn_by_turn() -> None:
    tokenizer = TalkingTokenizer()
    said, seen = {"role": "assistant", "content": "(12 - 6) * 4"}, tokenizer.seen
    more = {"role": "user", "content": [{"type": "text", "text": "Another "}, {"type": "text", "text": "way?"}]}  # fmt: skip
    with serving(replace(fake_model(), tokenizer=tokenizer)) as live:
        first = live.chat(messages=[USER]).choices[0].message
        assert first.content == alone(QUESTION).text
        assert not seen  # one message is a plain prompt
        reply = live.chat(messages=[{**SYSTEM, "role": "developer"}, USER, said, more])
        earlier = (
            Turn("system", "Be brief."),
            Turn("user", QUESTION),
            Turn("assistant", "(12 - 6) * 4"),
        )
        assert seen == [[*earlier, Turn("user", "Another way?")]]
        written = "|".join(f"{turn.role}:{turn.text}" for turn in seen[0])
        assert reply.usage.prompt_tokens == len(f"{written}\n")
        job = Job("Another way?", None, alone("x").settings, earlier=earlier)
        *_, (_, result) = run(live.service.model, [job])
        assert reply.choices[0].message.content == result.text  # type: ignore[union-attr]
        # An answer can be sent back as it came, as an object or as JSON.
        for answer in (first, first.model_dump(exclude={"search"})):
            live.chat(messages=[USER, answer, {"role": "user", "content": "Sure?"}])
            assert seen[-1][1] == Turn("assistant", first.content)
        # The task's own words stand in the last turn.
        live.chat(messages=[SYSTEM, USER], task="countdown")
        worded = s3dlm.tasks.get("countdown").render(QUESTION, "tiny").user
        assert seen[-1] == [Turn("system", "Be brief."), Turn("user", worded)]


def test_a_model_that_knows_one_turn_gets_a_transcript(live: Live) -> None:
    joined = {"role": "user", "content": f"Be brief.\n\n{QUESTION}"}
    one, two = (live.chat(messages=each).usage.prompt_tokens for each in ([SYSTEM, USER], [joined]))
    assert one == two
    turns = [Turn("system", "S"), Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")]
    assert quoted(turns) == "S\n\nUser: a\n\nAssistant: b\n\nUser: c"
