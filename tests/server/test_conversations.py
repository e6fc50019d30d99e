"""A conversation reaches the model through its own chat template, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm.engine import Job, run
from s3dlm.errors import PromptError
from s3dlm.models.base import Turn, quoted
from s3dlm.models.tokenizer import load_tokenizer
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer, fake_model
from tests.models.checkpoints import write_tokenizer
from tests.server.live import QUESTION, SMALL, Live, alone, serving

USER = {"role": "user", "content": QUESTION}
SYSTEM = {"role": "system", "content": "Be brief."}


class TalkingTokenizer(ByteTokenizer):
    """Knows turns, and remembers what it was asked to write."""

    def __init__(self) -> None:
        self.seen: list[list[Turn]] = []

    def converse(self, turns: Sequence[Turn], prefill: str = "") -> list[int]:
        self.seen.append(list(turns))
        return self.encode("|".join(f"{one.role}:{one.text}" for one in turns) + f"\n{prefill}")


Talking = tuple[Live, list[list[Turn]]]


@pytest.fixture(scope="module")
def talking() -> Iterator[Talking]:
    tokenizer = TalkingTokenizer()
    with serving(replace(fake_model(), tokenizer=tokenizer)) as live:
        yield live, tokenizer.seen


def ask(live: Live, *messages: object, **extra: object) -> Any:
    return live.chat(messages=list(messages), **extra)


def test_turns_keep_their_roles_and_order(talking: Talking) -> None:
    live, seen = talking
    said = {"role": "assistant", "content": "(12 - 6) * 4"}
    more = {"role": "user", "content": [{"type": "text", "text": "Another "}, {"type": "text", "text": "way?"}]}  # fmt: skip
    reply = ask(live, {**SYSTEM, "role": "developer"}, USER, said, more)
    assert seen[-1] == [
        Turn("system", "Be brief."),
        Turn("user", QUESTION),
        Turn("assistant", "(12 - 6) * 4"),
        Turn("user", "Another way?"),
    ]
    assert reply.usage is not None
    written = f"system:Be brief.|user:{QUESTION}|assistant:(12 - 6) * 4|user:Another way?\n"
    assert reply.usage.prompt_tokens == len(written)
    settings = Settings.from_json({"method": "s3", **SMALL})
    job = Job("Another way?", None, settings, earlier=tuple(seen[-1][:-1]))
    *_, (_, result) = run(live.service.model, [job])
    assert isinstance(result, s3dlm.Result)
    assert reply.choices[0].message.content == result.text


def test_an_answer_can_be_sent_back_as_it_came(talking: Talking) -> None:
    live, seen = talking
    first = ask(live, USER).choices[0].message
    ask(live, USER, first, {"role": "user", "content": "Sure?"})
    assert seen[-1][1] == Turn("assistant", str(first.content))
    ask(live, USER, first.model_dump(exclude={"search"}), {"role": "user", "content": "Sure?"})
    assert seen[-1] == seen[-2]


def test_instructions_and_earlier_turns_stand_before_a_task(talking: Talking) -> None:
    live, seen = talking
    ask(live, SYSTEM, USER, task="countdown")
    worded = s3dlm.tasks.get("countdown").render(QUESTION, "tiny").user
    assert seen[-1] == [Turn("system", "Be brief."), Turn("user", worded)]


def test_one_message_is_a_plain_prompt(talking: Talking) -> None:
    live, seen = talking
    before = len(seen)
    text = ask(live, USER).choices[0].message.content
    assert text == alone(QUESTION).text
    assert len(seen) == before


def test_a_model_that_knows_one_turn_gets_a_transcript(live: Live) -> None:
    joined = {"role": "user", "content": f"Be brief.\n\n{QUESTION}"}
    usage = [ask(live, *messages).usage for messages in ((SYSTEM, USER), (joined,))]
    assert usage[0].prompt_tokens == usage[1].prompt_tokens
    turns = [Turn("system", "S"), Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")]
    assert quoted(turns) == "S\n\nUser: a\n\nAssistant: b\n\nUser: c"


def test_a_template_that_refuses_is_a_refused_prompt(tmp_path: Path) -> None:
    refuses = "System role not supported"
    write_tokenizer(tmp_path, f"{{{{ raise_exception('{refuses}') }}}}")
    tokenizer = load_tokenizer(tmp_path)
    with pytest.raises(PromptError, match=rf"{refuses}; ask in one"):
        tokenizer.converse([Turn("system", "S"), Turn("user", "a")])
