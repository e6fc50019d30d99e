"""Bad models, prompts and verifiers end in one sentence that names step, prompt and culprit."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence

import pytest

import s3dlm
from s3dlm.errors import ModelError, PromptError, SettingsError, VerifierError
from s3dlm.job import Job, prepare
from s3dlm.models.base import Turn
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.verifier.base import Score
from tests.fakes import FakeDenoiser, fake_model

SMALL = Settings(gen_length=16, steps=8, block_length=16)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_broken_logits_name_step_and_prompt(value: float) -> None:
    class Broken(FakeDenoiser):
        def head(self, features):  # type: ignore[no-untyped-def]
            logits = features.clone()
            if self.calls > 3:
                logits[0, 5] = value
            return logits

    model = dataclasses.replace(fake_model(), denoiser=Broken(["hello"]))
    with pytest.raises(ModelError, match=r"NaN or infinite logits at step 4 of 8, prompt 'why\?'"):
        s3dlm.generate(model, "why?", settings=SMALL)


def test_a_prompt_longer_than_the_context() -> None:
    with pytest.raises(
        PromptError, match=r"the prompt has 601 tokens .* at most 512 .* 496 tokens"
    ):
        s3dlm.generate(fake_model(), "x" * 600, settings=SMALL)


def test_a_verifier_that_raises() -> None:
    def picky(prompt: str, text: str, confidence: float | None) -> float:
        raise RuntimeError("no idea")

    with pytest.raises(
        VerifierError, match=r"'picky' raised RuntimeError: no idea at .*prompt 'why\?'"
    ):
        s3dlm.generate(fake_model(), "why?", settings=SMALL, verifier=picky)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1.5])
def test_a_verifier_that_returns_no_score(value: float) -> None:
    calls = []

    def odd(prompt: str, text: str, confidence: float | None) -> float:
        calls.append(text)
        return 0.5 if len(calls) < 4 else value

    with pytest.raises(VerifierError, match=r"'odd' returned .* at step \d of 8, prompt 'why\?'"):
        s3dlm.generate(fake_model(), "why?", settings=SMALL, verifier=odd)


@pytest.mark.parametrize("value", [0.5, None, Score("high"), Score(None)])  # type: ignore[arg-type]
def test_an_object_whose_score_is_no_score_ends_its_own_search_alone(value: object) -> None:
    class Loose:
        def score(self, prompt: str, text: str, confidence: float | None = None) -> object:
            return value

    batcher = s3dlm.engine.Batcher(fake_model())
    for question, verifier in (("good", OneByOne()), ("bad", Loose())):
        batcher.add(s3dlm.Job(question, None, SMALL, None, verifier))
    ended = {}
    while batcher.running:
        ended |= {key: event for key, event in batcher.step() if not isinstance(event, Step)}
    assert isinstance(ended[0], s3dlm.Result)
    assert isinstance(ended[1], VerifierError)
    words = (
        r"'Loose' returned (0\.5|None|'high') at .*prompt 'bad'.* must (return a s3dlm|be a number)"
    )
    assert re.search(words, str(ended[1]))


def test_one_string_is_not_a_list_of_prompts() -> None:
    with pytest.raises(SettingsError, match="list of prompts"):
        s3dlm.generate_batch(fake_model(), "why?", settings=SMALL)


class Batched:
    """A verifier that is called with all texts of a step at once."""

    def __init__(self, lost: int = 0) -> None:
        self.lost = lost

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(min(len(text), 50) / 50)

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        scores = [self.score(*one) for one in zip(prompts, texts, confidences, strict=True)]
        return scores[self.lost :]


class OneByOne:
    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        return Score(min(len(text), 50) / 50)


def test_a_batch_verifier_that_loses_a_text() -> None:
    with pytest.raises(VerifierError, match=r"returned \d+ scores for \d+ texts .* one per text"):
        s3dlm.generate(fake_model(), "why?", settings=SMALL, verifier=Batched(lost=1))


def test_half_a_character_in_an_earlier_turn_is_refused_and_in_a_sample_id_is_not() -> None:
    model = fake_model()
    half = Job("q", earlier=(Turn("user", "\ud800"),))
    with pytest.raises(PromptError, match="half of a character"):
        prepare(model, half)
    assert s3dlm.generate(model, "q", sample_id="\ud800", gen_length=8, steps=2, block_length=8)


@pytest.mark.parametrize("each", [None, 0.5])
def test_a_batch_verifier_that_returns_no_list_of_scores(each: float | None) -> None:
    class Loose(OneByOne):
        def score_batch(
            self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
        ) -> object:
            return each and [each] * len(texts)

    with pytest.raises(VerifierError, match=rf"'Loose' returned {each} at .* a list of them"):
        s3dlm.generate(fake_model(), "why?", settings=SMALL, verifier=Loose())
