"""The cache of block-causal models changes the work and never the results, in any batch."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import s3dlm
from s3dlm.models import cache
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward, Rows
from s3dlm.models.transformer import Transformer
from s3dlm.result import Result
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer
from tests.models.networks import END, MASK, random_network

BLOCK = 16
SETTINGS = Settings("s3", gen_length=48, steps=12, block_length=BLOCK, temperature=1.0)
QUESTIONS = [f"What is {i} + {i * i}?" + " Think." * (i % 3) for i in range(4)]


def network(
    causal_block: int | None = BLOCK, *, cache: bool = True, shift: bool = False
) -> Transformer:
    return random_network(
        width=64, layers=3, hidden=96, key_value_heads=2, qk_norm=True, causal_block=causal_block,
        shift=shift, cache=cache,
    )  # fmt: skip


def model(*, cache: bool = True) -> Model:
    return Model("small", network(cache=cache), ByteTokenizer(), frozenset({END}))


def watched(denoiser: Transformer) -> list[int]:
    """Lengths of the rows that are run from now on."""
    seen: list[int] = []
    inner = denoiser.body

    def body(tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen.append(tokens.shape[1])
        return inner(tokens, *rest)

    denoiser.body = body  # type: ignore[method-assign,assignment]
    return seen


def request(prompt: np.ndarray, canvas: np.ndarray, start: int) -> Rows:
    uniforms = np.random.default_rng(0).random((len(canvas), BLOCK, 2))
    return Rows(
        prompt, canvas, canvas == MASK, start, start + BLOCK, uniforms, 1.0,
        look_ahead=True, statistics=False, label="a test",
    )  # fmt: skip


def revealing(seed: int, prompt: np.ndarray) -> list[Rows]:
    """Requests of one search: two rows whose tokens become known two at a time, block by block."""
    random = np.random.default_rng(seed)
    text, canvas = random.integers(0, 255, (2, 48)), np.full((2, 48), MASK)
    found = []
    for step in range(24):
        found.append(request(prompt, canvas.copy(), 2 * step // BLOCK * BLOCK))
        canvas[:, 2 * step : 2 * step + 2] = text[:, 2 * step : 2 * step + 2]
    return found


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("block", [4, BLOCK])
def test_the_cache_changes_nothing(block: int, shift: bool) -> None:
    forwards = [Forward(network(block, cache=cache, shift=shift)) for cache in (True, False)]
    for size in (16, 23):
        for rows in revealing(1, np.arange(size) + 40):
            (one,), (other,) = (forward([rows]) for forward in forwards)
            np.testing.assert_array_equal(one.top, other.top)
            np.testing.assert_array_equal(one.draws, other.draws)
            np.testing.assert_allclose(one.top_logp, other.top_logp, atol=1e-5)


def test_a_block_causal_network_sees_no_later_block() -> None:
    causal, both_ways = network(), network(None)
    tokens = torch.randint(0, 255, (2, 64), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 32:] = MASK
    assert torch.equal(causal.encode(tokens)[:, :32], causal.encode(other)[:, :32])
    assert not torch.equal(both_ways.encode(tokens)[:, :32], both_ways.encode(other)[:, :32])


@pytest.mark.parametrize("prompt_length", [32, 37])
def test_cost_grows_with_the_open_block_of_a_block_causal_model(prompt_length: int) -> None:
    """The process asks up to the open block's end; finished blocks are never run again."""
    denoiser = network()
    seen = watched(denoiser)
    forward, plain = Forward(denoiser), Forward(network(cache=False))
    first = -prompt_length % BLOCK or BLOCK  # the answer's first block is what the prompt leaves
    prompt, random = np.arange(prompt_length), np.random.default_rng(0)
    canvas = np.full((2, first + 2 * BLOCK), MASK)
    for start, stop in ((0, first), (first, first + BLOCK), (first + BLOCK, first + 2 * BLOCK)):
        for place in range(start, stop, 2):
            size = stop - start
            rows = Rows(
                prompt, canvas[:, :stop].copy(), canvas[:, :stop] == MASK, start, stop,
                np.random.default_rng(place).random((2, size, 2)), 1.0,
                look_ahead=True, statistics=False, label="a test",
            )  # fmt: skip
            (one,), (other,) = forward([rows]), plain([rows])
            np.testing.assert_array_equal(one.draws, other.draws)
            np.testing.assert_allclose(one.top_logp, other.top_logp, atol=1e-5)
            canvas[:, place : place + 2] = random.integers(
                0, 255, canvas[:, place : place + 2].shape
            )
    assert seen[0] == prompt_length + first  # the prompt, once
    assert max(seen[1:]) <= 2 * BLOCK  # then the open block, or with the one that has just ended
    assert sum(size > BLOCK for size in seen[1:]) <= 2


def plain(result: Result) -> tuple[object, ...]:
    return result.text, result.nfe, [(one.text, one.nll, one.score) for one in result.survivors]


@pytest.mark.parametrize("method", ["particle_gibbs", "revise"])
def test_batched_is_unbatched(method: str) -> None:
    settings = Settings(method, gen_length=48, steps=12, block_length=BLOCK, temperature=1.0)
    batched = s3dlm.generate_batch(model(), QUESTIONS, settings=settings)
    alone = [s3dlm.generate(model(), one, settings=settings) for one in QUESTIONS]
    assert [plain(one) for one in batched] == [plain(one) for one in alone]


def test_neither_small_batches_nor_a_full_cache_make_company_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = model()
    jobs = [s3dlm.Job(question, settings=SETTINGS) for question in QUESTIONS[:3]]

    def found(**options: int) -> list[object]:
        events = s3dlm.run(cached, jobs, max_rows=1000, **options)
        results = {index: event for index, event in events if isinstance(event, Result)}
        return [plain(results[index]) for index in range(len(jobs))]

    assert found(max_tokens=200) == found()
    monkeypatch.setattr(cache, "SEARCH_BYTES", 3 * network().config.layers << 13)
    assert found(max_tokens=200) == found()


def test_a_search_leaves_nothing_behind() -> None:
    forward = Forward(network())
    assert forward.prefixes is not None
    prompt, other = np.arange(20), np.arange(20)
    for rows in revealing(3, prompt)[:9]:
        forward([rows, request(other, np.full((1, 48), MASK), 0)])
        assert all(len(entries) <= 2 for entries in forward.prefixes.searches.values())
    assert len(forward.prefixes.searches) == 2  # equal prompts, two searches
    del prompt, rows
    gc.collect()
    forward([request(other, np.full((1, 48), MASK), 0)])
    assert len(forward.prefixes.searches) == 1
