"""The model as judge of its own texts: what it is asked, what it answers, and that it pays for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import s3dlm
from s3dlm.errors import PromptError, SettingsError
from s3dlm.models.base import Model
from s3dlm.models.self_judge import LONGEST_SHOWN, SelfJudge
from s3dlm.settings import Settings
from s3dlm.verifier import for_task
from tests.fakes import COUNTDOWN, ByteTokenizer, FakeDenoiser, events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SMALL = {"gen_length": 64, "steps": 8, "block_length": 32, "temperature": 1.0, "verifier": "self"}
JUDGING = b"Proposed solution"


class Opinionated(FakeDenoiser):
    """Says Yes to what has `(12 - 6) * 4`, by two nats, and No to all else, by three."""

    judged = 0

    def _fill(self, row: np.ndarray, logits: np.ndarray) -> None:
        shown = bytes(row[row < 256].astype(np.uint8))
        if JUDGING not in shown:
            super()._fill(row, logits)
            return
        self.judged += 1
        right = b"(12 - 6) * 4" in shown
        logits[-1, ord("Y")], logits[-1, ord("N")] = (5.0, 3.0) if right else (4.0, 7.0)


def opinionated() -> Model:
    return replace(fake_model(), denoiser=Opinionated(COUNTDOWN, context=1024))


def settings(method: str, **more: object) -> Settings:
    values = {**SMALL, **more}
    return Settings.over(method, [values], {})


def test_the_score_is_yes_against_no() -> None:
    judge = SelfJudge(opinionated())
    assert (judge.yes, judge.no) == ([ord("Y")], [ord("N")])  # a space begins both " Yes" and " No"
    model = opinionated()
    result = s3dlm.generate(
        model, QUESTION, task="countdown", settings=settings("verified_best_of_k")
    )
    good, bad = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(3))
    for one in result.survivors:
        expected = good if "(12 - 6) * 4" in one.text else bad
        assert one.score == pytest.approx(expected, abs=1e-6)
        assert one.parts == {"self": one.score}


@pytest.mark.parametrize("method", ["tilting", "s3", "revise", "fk_max", "particle_gibbs"])
def test_every_text_it_reads_is_a_pass_that_counts(method: str) -> None:
    model, given = opinionated(), settings(method, rounds=0, look_aheads=2)
    *steps, result = events_of(model, QUESTION, task="countdown", settings=given)
    assert isinstance(result, s3dlm.Result)
    assert model.denoiser.judged > 0  # type: ignore[attr-defined]
    assert result.nfe == model.denoiser.rows_seen  # type: ignore[attr-defined]
    assert result.nfe == sum(step.nfe + step.start_nfe for step in steps)
    assert result.nfe <= result.nfe_logical <= given.most_nfe
    assert given.most_nfe > given.replace(verifier="paper").most_nfe


@pytest.mark.parametrize("method", ["s3", "verified_best_of_k", "revise"])
@pytest.mark.parametrize("budget", [9, 30, 61])
def test_a_budget_counts_what_the_judge_takes(method: str, budget: int) -> None:
    model, given = opinionated(), settings(method, budget=budget, look_aheads=1)
    result = s3dlm.generate(model, QUESTION, task="countdown", settings=given)
    assert result.nfe == model.denoiser.rows_seen <= budget  # type: ignore[attr-defined]
    assert result.score is not None


def test_it_is_asked_in_the_same_passes_as_the_searches() -> None:
    """Eight prompts side by side take no more calls of the model than the slowest one alone."""
    given = settings("verified_best_of_k")
    questions = [f"Target: {n} Numbers: 6, 4, 12" for n in range(20, 28)]
    alone, calls = [], 0
    for question in questions:
        model = opinionated()
        alone.append(s3dlm.generate(model, question, task="countdown", settings=given))
        calls = max(calls, model.denoiser.calls)  # type: ignore[attr-defined]
    model = opinionated()
    together = s3dlm.generate_batch(model, questions, task="countdown", settings=given)
    assert [(one.text, one.nfe) for one in together] == [(one.text, one.nfe) for one in alone]
    assert model.denoiser.calls <= 2 * calls  # type: ignore[attr-defined]  # judging rows are longer


def test_long_texts_are_cut_and_what_cannot_fit_is_refused() -> None:
    judge = SelfJudge(opinionated())
    rows = judge.ask(QUESTION, "a" * 5000 + "the end", "here")
    assert rows.prompt.size < 1024  # of the last 2,000 characters as many as the model can read
    assert b"the end" in bytes(rows.prompt.astype(np.uint8))
    wide = SelfJudge(replace(fake_model(), denoiser=FakeDenoiser(COUNTDOWN, context=9999)))
    shown = bytes(wide.ask(QUESTION, "b" * 5000, "here").prompt.astype(np.uint8))
    assert shown.count(b"b" * LONGEST_SHOWN) == 1
    assert b"b" * (LONGEST_SHOWN + 1) not in shown
    with pytest.raises(PromptError, match="verifier='self' has to show the question"):
        judge.ask("q" * 2000, "a text", "here")


def test_what_is_missing_is_named() -> None:
    class Bare(ByteTokenizer):
        has_chat_template = False

    class Mute(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return [1] * len(text)

    with pytest.raises(SettingsError, match="the tokenizer of fake has no chat template"):
        s3dlm.generate(replace(fake_model(), tokenizer=Bare()), "hello", verifier="self")
    with pytest.raises(SettingsError, match="begins both with the same one"):
        SelfJudge(replace(fake_model(), tokenizer=Mute()))
    with pytest.raises(SettingsError, match="verifier='self' is the model of a search"):
        for_task("countdown", "self")
