"""Bad models, prompts and verifiers end in one sentence that names step, prompt and culprit."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

import s3dlm
from s3dlm.errors import ModelError, VerifierError
from s3dlm.job import Job
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.verifier.base import Score, Verifier
from tests.fakes import FakeDenoiser, fake_model, plain

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


class Failing(Verifier):
    """Called for each text: good for a good question; else it does as it is told."""

    def __init__(self, fail: Callable[[], object]) -> None:
        self.fail, self.calls = fail, 0

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Any:
        self.calls += 1
        return Score(0.5) if prompt == "good" or self.calls < 4 else self.fail()


class FailingBatch(Failing):
    """Called for many texts at once."""

    def score_batch(self, prompts: list[str], texts: list[str], confidences: list[float]) -> Any:
        return [Score(0.5)] * len(texts) if set(prompts) == {"good"} else self.fail()


def no_idea() -> None:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("verifier", "words"),
    [
        (Failing(no_idea), "'Failing' raised RuntimeError: no idea at PLACE"),
        (Failing(lambda: None), "returned None at PLACE.* must return a s3dlm"),
        (Failing(lambda: 0.5), r"returned 0\.5 at PLACE.* must return a s3dlm"),
        (Failing(lambda: Score("high")), "returned 'high' at PLACE.* must be a number"),  # type: ignore[arg-type]
        (Failing(lambda: Score(None)), "returned None at PLACE.* must be a number"),  # type: ignore[arg-type]
        (Failing(lambda: Score(math.nan)), "returned nan at PLACE.* from 0 to 1"),
        (Failing(lambda: Score(math.inf)), "returned inf at PLACE"),
        (Failing(lambda: Score(-0.1)), r"returned -0\.1 at PLACE"),
        (Failing(lambda: Score(1.5)), r"returned 1\.5 at PLACE"),
        (FailingBatch(no_idea), "'FailingBatch' raised RuntimeError: no idea at PLACE"),
        (FailingBatch(list), r"returned 0 scores for \d+ texts at PLACE.* one per text"),
        (FailingBatch(lambda: None), "returned None at PLACE.* a list of them"),
        (
            FailingBatch(lambda: [0.5, 0.5]),
            "returned 2 scores|returned 0.5 at PLACE.* a list of them",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_verifier_that_fails_ends_its_own_search_and_says_where(
    verifier: Failing, words: str
) -> None:
    batcher = s3dlm.engine.Batcher(fake_model())
    for question in ("good", "bad"):
        batcher.add(Job(question, None, SMALL, None, verifier))
    ended = dict[int, Any]()
    while batcher.running:
        ended |= {key: event for key, event in batcher.step() if not isinstance(event, Step)}
    alone = s3dlm.generate(fake_model(), "good", settings=SMALL, verifier=type(verifier)(no_idea))
    assert plain(ended[0]) == plain(alone)
    assert isinstance(ended[1], VerifierError)
    place = r"(step \d of 8|the first look-ahead), prompt 'bad'; the text was "
    assert re.search(words.replace("PLACE", place), str(ended[1]))
