"""A cache of rows changes the work, never the results."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import s3dlm
from s3dlm.models.cache import RowCache
from s3dlm.settings import Settings

QUESTIONS = [
    "Target: 24 Numbers: 6, 4, 12",
    "Target: 10 Numbers: 2, 3, 4",
    "Target: 9 Numbers: 1, 2, 6",
]
SMALL = {"gen_length": 64, "steps": 8, "temperature": 1.5}


def answers(model: s3dlm.Model, settings: Settings) -> list[tuple[object, ...]]:
    results = s3dlm.generate_batch(model, QUESTIONS, task="countdown", settings=settings)
    return [(one.text, one.nfe, [s.nll for s in one.survivors]) for one in results]


@pytest.mark.parametrize("capacity", [1 << 30, 300_000, 0])
def test_results_are_the_same_to_the_bit_whatever_is_forgotten(capacity: int) -> None:
    model = s3dlm.load("tiny")
    memory = RowCache(model.denoiser, capacity)
    remembering = dataclasses.replace(model, denoiser=memory)
    for method in ("s3", "best"):
        settings = Settings(method=method, **SMALL)
        assert answers(remembering, settings) == answers(model, settings)
    assert memory.bytes <= capacity


def test_a_row_is_encoded_once() -> None:
    model = s3dlm.load("tiny")
    memory = RowCache(model.denoiser, 1 << 30)
    remembering = dataclasses.replace(model, denoiser=memory)
    settings = Settings(method="s3", **SMALL)
    answers(remembering, settings)
    once = memory.encoded
    answers(remembering, settings)
    assert memory.encoded == once
    assert memory.asked == 2 * sum(nfe for _, nfe, _ in answers(model, settings))  # type: ignore[misc]


def test_equal_rows_of_one_batch_and_rows_without_masks() -> None:
    denoiser = s3dlm.load("tiny").denoiser
    memory = RowCache(denoiser, 1 << 30)
    tokens = torch.randint(4, 300, (5, 40), generator=torch.Generator().manual_seed(0))
    tokens[:, 20:30] = denoiser.mask_id
    tokens[3] = tokens[0]
    tokens[4, 20:30] = 7
    masked = tokens == denoiser.mask_id
    with torch.inference_mode():
        assert torch.equal(memory.encode(tokens)[masked], denoiser.encode(tokens)[masked])
    assert (memory.asked, memory.encoded) == (5, 4)
