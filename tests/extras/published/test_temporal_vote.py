"""The vote over the steps of one decoding, against a literal version that reads the steps from outside."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

import s3dlm
from s3dlm import answers
from s3dlm.server.parse import keeps_revealed_tokens
from s3dlm.settings import Settings
from tests.fakes import END, QUESTION, ByteTokenizer, fake_model, search

TEXTS = [f"<answer>{e}</answer>" for e in ("6+4+12", "6*4+12", "6+4*12", "6*4*12")]
SHAPE = {"gen_length": 24, "steps": 24, "block_length": 24, "temperature": 1.0}
SEEDS = 20


def answer_of(text: str) -> str | None:
    found = answers.extract("countdown", text, QUESTION)
    return None if found is None else answers.normalise("countdown", found)


def literal_vote(steps: list[s3dlm.Step]) -> dict[str, float]:
    """Every step's argmax fill names an answer; its vote grows as exp(5·t/T)."""
    votes: dict[str, float] = defaultdict(float)
    for number, step in enumerate(steps, 1):
        tokens = step.clean[0].tolist()
        text = ByteTokenizer().decode(tokens[: tokens.index(END)] if END in tokens else tokens)
        answer = answer_of(text)
        if answer is not None:
            votes[answer] += math.exp(5 * number / len(steps))
    return votes


def test_the_vote_is_the_literal_one_and_sometimes_overrules_the_last_step() -> None:
    overruled = 0
    for seed in range(SEEDS):
        settings = Settings("temporal_vote", seed=seed, **SHAPE)
        steps, result = search(settings, fake_model(TEXTS, push=5.0))
        votes = literal_vote(steps)
        assert (result.answer in votes) if votes else result.answer is None
        if votes:
            assert votes[result.answer] == pytest.approx(max(votes.values()))
            assert answer_of(result.text) == result.answer
        overruled += result.answer != result.survivors[0].answer
    assert 0 < overruled < SEEDS


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (Settings("baseline"), True),
        (Settings("temporal_vote"), False),  # the vote may choose another text
        (Settings("s3"), True),
        (Settings("s3", budget=60), False),  # of which a later search may be better
        (Settings("revise"), False),
        (Settings("hex"), False),
    ],
    ids=repr,
)
def test_the_server_streams_no_tokens_that_the_search_may_replace(
    settings: Settings, kept: bool
) -> None:
    assert keeps_revealed_tokens(settings) == kept
