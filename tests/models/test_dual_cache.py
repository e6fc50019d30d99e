"""The dual cache: exact when a block opens, and where nothing is left out; the same in any batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.fast import fast_dllm

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward
from s3dlm.models.registry import load
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer
from tests.models import test_cache
from tests.models.networks import END

BLOCK = test_cache.BLOCK


def network(every: int | None, *, shift: bool = False) -> Any:
    made = test_cache.network(None, cache=False, shift=shift)
    made.dual_cache = every
    return made


def model(every: int | None) -> Model:
    return Model("small", network(every), ByteTokenizer(), frozenset({END}))


def compared(every: int, *, shift: bool) -> list[bool]:
    """Of each step, whether it says what the network says of the whole row."""
    cached, plain = (Forward(network(each, shift=shift)) for each in (every, None))
    requests = test_cache.revealing(1, np.arange(23) + 40)
    pairs = [(cached([rows])[0], plain([rows])[0]) for rows in requests]
    return [np.allclose(one.top_logp, other.top_logp, atol=1e-6) for one, other in pairs]


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize(("every", "whole"), [(0, 8), (4, 4), (3, None), (1, 1)])
def test_it_is_exact_when_a_row_is_run_whole(every: int, whole: int | None, shift: bool) -> None:
    # Blocks open at every eighth step; three does not divide eight, so it counts anew there.
    expected = [step % 8 % (whole or 3) == 0 for step in range(24)]
    assert compared(every, shift=shift) == expected


@pytest.mark.parametrize("block", [16, 32])
def test_greedy_decoding_equals_the_published_rule(block: int) -> None:
    """Fast-dLLM's decoding, written out, token for token."""
    plain, cached = load("tiny"), load("tiny", dual_cache=0)
    for question in ("Target: 15 Numbers: 10, 1, 6", "Target: 7 Numbers: 1, 2, 4"):
        result = s3dlm.generate(
            cached, question, method="baseline", temperature=0.0, reveal="threshold",
            reveal_threshold=0.9, gen_length=64, block_length=block,
        )  # fmt: skip
        ids = fast_dllm(plain.denoiser, plain.tokenizer.chat(question), 64, block, 0.9)
        end = next((at for at, token in enumerate(ids) if token in plain.end_ids), len(ids))
        assert result.text == plain.tokenizer.decode(ids[:end])


def test_only_the_open_block_is_run() -> None:
    denoiser = network(0)
    seen = test_cache.watched(denoiser)
    forward = Forward(denoiser)
    for rows in test_cache.revealing(2, np.arange(37)):
        forward([rows])
    assert seen == [85 if step % 8 == 0 else BLOCK for step in range(24)]


@pytest.mark.parametrize("method", ["s3", "revise"])
def test_a_search_is_the_same_alone_and_in_company(method: str) -> None:
    settings = Settings(method, gen_length=48, steps=12, block_length=BLOCK)
    alone = [s3dlm.generate(model(3), q, settings=settings) for q in test_cache.QUESTIONS]
    together = s3dlm.generate_batch(model(3), test_cache.QUESTIONS, settings=settings)
    assert [one.text for one in together] == [one.text for one in alone]


def test_fast_is_a_cache_and_a_default() -> None:
    assert load("tiny").denoiser.dual_cache is None
    fast = load("tiny", fast=True)
    assert fast.denoiser.dual_cache == 0
    assert Settings.for_model(fast, "s3").decoding.reveal == "threshold"
    assert Settings.for_model(fast, "s3", reveal="schedule").decoding.reveal == "schedule"
    blocks = load("tiny", fast=True, block=32)  # its own cache is exact
    assert blocks.denoiser.dual_cache is None
    assert blocks.denoiser.prefix_cache


@pytest.mark.parametrize("how", [{"block": 32}, {"prefix_cache": True}, {"compile": True}])
def test_it_is_refused_where_it_cannot_work(how: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="dual_cache=0"):
        load("tiny", dual_cache=0, **how)


@pytest.mark.parametrize("wrong", [-1, True, "x"])
def test_how_often_rows_are_run_whole_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(SettingsError, match="a whole number from 0 up"):
        load("tiny", dual_cache=wrong)
