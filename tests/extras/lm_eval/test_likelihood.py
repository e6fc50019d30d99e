"""The Monte Carlo likelihood against the bound computed by hand over every mask."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from s3dlm.errors import PromptError, SettingsError
from s3dlm.extras.lm_eval.likelihood import is_greedy, log_likelihood, stratified_masks
from s3dlm.models.base import Model
from tests.fakes import MASK, fake_model

MODEL = fake_model(("6*4=24", "12+4"), noise=1.0)
PROMPT = MODEL.tokenizer.encode("Q\n")


def exact(model: Model, prompt: list[int], answer: list[int]) -> float:
    """The mean over l of (L/l)·Σ log p, the inner mean over all masks of l positions."""
    length, total = len(answer), 0.0
    for count in range(1, length + 1):
        masks = list(itertools.combinations(range(length), count))
        for hidden in masks:
            row = [MASK if i in hidden else token for i, token in enumerate(answer)]
            logits = model.denoiser.encode(torch.tensor([prompt + row]))[0, len(prompt) :].double()
            logits[:, MASK] = -torch.inf
            logp = logits.log_softmax(-1)
            inside = sum(float(logp[i, answer[i]]) for i in hidden)
            total += length / count * inside / len(masks) / length
    return total


@given(st.integers(1, 40), st.integers(1, 200), st.integers(0, 10))
def test_mask_counts_are_spread_evenly(length: int, samples: int, seed: int) -> None:
    masks = stratified_masks(length, samples, np.random.default_rng(seed))
    counts = np.bincount(masks.sum(axis=1), minlength=length + 1)
    assert counts[0] == 0
    assert counts.sum() == samples
    assert counts[1:].max() <= -(-samples // length) + 1
    assert counts[1:].min() >= samples // length - 1


def test_one_token_is_exact_and_costs_one_row() -> None:
    answer = MODEL.tokenizer.encode("6")
    before = MODEL.denoiser.rows_seen  # type: ignore[attr-defined]
    value = log_likelihood(MODEL, PROMPT, answer)
    assert MODEL.denoiser.rows_seen == before + 1  # type: ignore[attr-defined]
    assert value == pytest.approx(exact(MODEL, PROMPT, answer), abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(st.text("6*4=2", min_size=2, max_size=4))
def test_many_samples_give_the_bound(text: str) -> None:
    answer = MODEL.tokenizer.encode(text)
    value = log_likelihood(MODEL, PROMPT, answer, samples=4096)
    assert value == pytest.approx(exact(MODEL, PROMPT, answer), rel=0.02)


def test_a_value_depends_on_the_item_and_the_seed_alone() -> None:
    answer = MODEL.tokenizer.encode("6*4=24")
    first = log_likelihood(MODEL, PROMPT, answer)
    log_likelihood(MODEL, PROMPT, answer[:3])
    assert log_likelihood(MODEL, PROMPT, answer) == first
    assert log_likelihood(MODEL, PROMPT, answer, seed=1) != first
    assert log_likelihood(MODEL, PROMPT, []) == 0.0


def test_greedy_is_what_the_surest_token_first_writes() -> None:
    for text in ("6*4=24", "12+4"):
        model = fake_model((text,), noise=0.0)
        assert is_greedy(model, PROMPT, model.tokenizer.encode(text))
        assert not is_greedy(model, PROMPT, model.tokenizer.encode(text[:-1] + "?"))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(SettingsError, match="samples=0"):
        log_likelihood(MODEL, PROMPT, [1], samples=0)
    with pytest.raises(PromptError, match="602 tokens, but fake reads at most 512"):
        log_likelihood(MODEL, PROMPT, [1] * 600)
