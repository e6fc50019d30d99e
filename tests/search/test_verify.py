"""One verifier call per step for all running searches, and nobody's result depends on the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest

from s3dlm.engine import Batcher, Job, Result, generate_batch, run
from s3dlm.job import prepare
from s3dlm.search import score
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.verifier import as_verifier
from s3dlm.verifier.base import Score, Verifier
from tests.fakes import fake_model

SETTINGS = Settings(
    method="s3", particles=2, branching=2, gen_length=24, steps=4, block_length=24, temperature=1.0
)
PROMPTS = [f"Question {n}" for n in range(4)]


class Counting(Verifier):
    """Scores by length; keeps the prompts of every call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.singles = 0

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        self.singles += 1
        return Score(len(text) % 7 / 7)

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        self.calls.append(list(prompts))
        assert len(set(zip(prompts, texts, confidences, strict=True))) == len(texts)
        return [Score(len(text) % 7 / 7) for text in texts]


class Comparing(Counting):
    """A text is good if others of its call are longer."""

    compares_texts: ClassVar[bool] = True

    def score_batch(
        self, prompts: Sequence[str], texts: Sequence[str], confidences: Sequence[float | None]
    ) -> list[Score]:
        super().score_batch(prompts, texts, confidences)
        return [Score(sum(len(o) > len(t) for o in texts) / len(texts)) for t in texts]


def jobs(verifier: object, prompts: Sequence[str] = PROMPTS) -> list[Job]:
    return [Job(prompt, None, SETTINGS, index, verifier) for index, prompt in enumerate(prompts)]


def outcome(result: Result) -> tuple[object, ...]:
    return result.text, result.nfe, [(one.text, one.score) for one in result.survivors]


@pytest.mark.parametrize("kind", [Counting, Comparing])
def test_batched_searches_equal_each_alone(kind: type[Counting]) -> None:
    same = ["Question"] * 4  # a verifier that compares must not compare across searches either
    for prompts in (PROMPTS, same):
        together = {
            i: e for i, e in run(fake_model(), jobs(kind(), prompts)) if isinstance(e, Result)
        }
        for index, job in enumerate(jobs(kind(), prompts)):
            (alone,) = [e for _, e in run(fake_model(), [job]) if isinstance(e, Result)]
            assert outcome(alone) == outcome(together[index])


def test_one_call_per_step_has_the_texts_of_all_searches() -> None:
    verifier = Counting()
    batcher = Batcher(fake_model())
    for job in jobs(verifier):
        batcher.add(job)
    steps = 0
    while batcher.running:
        before = len(verifier.calls) + verifier.singles
        steps += sum(isinstance(event, Step) for _, event in batcher.step())
        assert len(verifier.calls) + verifier.singles - before <= 1
    assert steps == 4 * SETTINGS.decoding.steps
    assert len(verifier.calls) <= SETTINGS.decoding.steps + 1
    assert set(verifier.calls[0]) == set(PROMPTS)


def test_forward_passes_of_other_searches_run_while_a_verifier_works() -> None:
    """The first call and the second forward pass wait for each other: they never meet in turn."""
    model = fake_model()
    denoiser = model.denoiser
    meeting, encode = threading.Barrier(2, timeout=900), denoiser.encode

    def counted(*arguments):  # type: ignore[no-untyped-def]
        if denoiser.calls == 1:
            meeting.wait()
        return encode(*arguments)

    denoiser.encode = counted  # type: ignore[method-assign]

    class Waiting(Counting):
        def score(self, prompt, text, confidence=None):  # type: ignore[no-untyped-def]
            if not self.singles:  # the first text of all: an empty canvas has one look-ahead
                self.singles += 1
                meeting.wait()
            return super().score(prompt, text, confidence)

    many = jobs(Waiting(), [f"Question {n}" for n in range(6)])
    results = [e for _, e in run(model, many, max_rows=1) if isinstance(e, Result)]
    assert len(results) == 6
    assert all(result.timings["verifier"] > 0 for result in results)


def test_equal_texts_of_several_searches_are_verified_once() -> None:
    verifier = Counting()
    generate_batch(
        fake_model(), ["Question"] * 3, settings=SETTINGS, verifier=verifier, sample_ids=[7, 7, 7]
    )
    alone = Counting()
    generate_batch(fake_model(), ["Question"], settings=SETTINGS, verifier=alone, sample_ids=[7])
    assert sum(map(len, verifier.calls)) == sum(map(len, alone.calls))


def test_a_search_remembers_the_better_of_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is forgotten, the answer is the same: the best text that was seen."""
    wide = SETTINGS.replace(selection="best_seen", look_aheads=16, steps=8)
    (expected,) = generate_batch(fake_model(), PROMPTS[:1], settings=wide)
    sizes, forget = list[int](), score.Scorer._forget

    def watched(scorer: score.Scorer, length: int) -> None:
        forget(scorer, length)
        sizes.append(max(map(len, (scorer.scores, scorer.looks, scorer.texts))))

    monkeypatch.setattr(score.Scorer, "_forget", watched)
    monkeypatch.setattr(score, "MOST_TEXTS", 100)
    (found,) = generate_batch(fake_model(), PROMPTS[:1], settings=wide)
    assert (found.text, found.nfe) == (expected.text, expected.nfe)
    assert 50 < max(sizes) <= 100  # without a bound there would be hundreds


@pytest.mark.parametrize(("given", "total"), [(1.0000000000000002, 1.0), (-1e-9, 0.0)])
def test_a_rounding_error_beyond_the_bounds_ends_no_search(given: float, total: float) -> None:
    (result,) = generate_batch(
        fake_model(["One."]), ["q"], method="verified_best_of_k", particles=1, branching=1,
        gen_length=8, steps=4, block_length=8, verifier=lambda *_: given,
    )  # fmt: skip
    assert result.score == total


def test_a_score_satisfies_from_its_threshold_on_and_only_without_a_doubt() -> None:
    process = prepare(fake_model(), Job("why?")).process
    totals, spans = np.array([0.74, 0.75, 0.9]), [(), (), ((0, 1),)]
    scorer = score.Scorer(as_verifier("paper"), "why?", "0", process, satisfied_at=0.75)
    assert scorer.satisfied(totals, spans).tolist() == [False, True, False]
    scorer.satisfied_at = None
    assert not scorer.satisfied(totals, spans).any()
