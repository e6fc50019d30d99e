"""A conversation reaches the model through its own chat template, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import s3dlm
from s3dlm.engine import Job, run
from s3dlm.models.base import Turn, quoted
from tests.fakes import ByteTokenizer, fake_model
from tests.server.live import QUESTION, Live, alone, serving

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
