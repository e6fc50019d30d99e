"""The prefix cache: exact for block-causal models, an option for others, the same in any batch. And the
cache of whole rows, which changes the work and never the results."""

from __future__ import annotations

import dataclasses
import functools
import gc
from typing import Any

import numpy as np
import pytest
import torch

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.models import cache
from s3dlm.models.base import Model
from s3dlm.models.features import RowCache
from s3dlm.models.forward import Forward, Rows
from s3dlm.models.transformer import Transformer
from s3dlm.result import Result
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer
from tests.models.networks import END, MASK, random_network

BLOCK = 16
SETTINGS = Settings("s3", gen_length=48, steps=12, block_length=BLOCK, temperature=1.0)
QUESTIONS = [f"What is {i} + {i * i}?" + " Think." * (i % 3) for i in range(4)]


def network(causal_block: int | None, *, cache: bool, shift: bool = False) -> Transformer:
    return random_network(
        width=64, layers=3, hidden=96, key_value_heads=2, qk_norm=True, causal_block=causal_block,
        shift=shift, cache=cache,
    )  # fmt: skip


def model(causal_block: int | None, *, cache: bool) -> Model:
    denoiser = network(causal_block, cache=cache)
    return Model("small", denoiser, ByteTokenizer(), frozenset({END}))


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
@pytest.mark.parametrize("prompt_length", [16, 23, 37])
def test_in_a_block_causal_model_the_cache_changes_nothing(
    prompt_length: int, block: int, shift: bool
) -> None:
    cached, plain = (Forward(network(block, cache=cache, shift=shift)) for cache in (True, False))
    for rows in revealing(1, np.arange(prompt_length) + 40):
        (one,), (other,) = cached([rows]), plain([rows])
        np.testing.assert_array_equal(one.top, other.top)
        np.testing.assert_array_equal(one.draws, other.draws)
        np.testing.assert_allclose(one.top_logp, other.top_logp, atol=1e-5)


@pytest.mark.parametrize("shift", [False, True])  # True: as in Dream
def test_in_a_bidirectional_model_it_does(shift: bool) -> None:
    cached, plain = (Forward(network(None, cache=cache, shift=shift)) for cache in (True, False))
    pairs = [(cached([rows])[0], plain([rows])[0]) for rows in revealing(1, np.arange(23) + 40)]
    exact = [np.array_equal(one.top_logp, other.top_logp) for one, other in pairs]
    assert exact == [step % 8 == 0 for step in range(24)]  # exact when a block opens


def test_a_block_causal_network_sees_no_later_block() -> None:
    causal, both_ways = network(BLOCK, cache=False), network(None, cache=False)
    tokens = torch.randint(0, 255, (2, 64), generator=torch.Generator().manual_seed(0))
    other = tokens.clone()
    other[:, 32:] = MASK
    assert torch.equal(causal.encode(tokens)[:, :32], causal.encode(other)[:, :32])
    assert not torch.equal(both_ways.encode(tokens)[:, :32], both_ways.encode(other)[:, :32])


def test_only_what_follows_the_prefix_is_forwarded() -> None:
    denoiser = network(None, cache=True)
    seen = watched(denoiser)
    forward = Forward(denoiser)
    for rows in revealing(2, np.arange(37)):
        forward([rows])
    whole = 37 + 48
    assert seen == [length for start in (48, 32, 16) for length in (whole, *[start] * 7)]


@pytest.mark.parametrize("prompt_length", [32, 37])
def test_cost_grows_with_the_open_block_of_a_block_causal_model(prompt_length: int) -> None:
    """The process asks up to the open block's end; finished blocks are never run again."""
    denoiser = network(BLOCK, cache=True)
    seen = watched(denoiser)
    forward, plain = Forward(denoiser), Forward(network(BLOCK, cache=False))
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


@pytest.mark.parametrize(
    ("causal_block", "method"),
    [(None, "s3"), (None, "hex"), (BLOCK, "s3"), (BLOCK, "particle_gibbs")],
)
def test_batched_is_unbatched_with_the_cache_too(causal_block: int | None, method: str) -> None:
    cached, settings = model(causal_block, cache=True), SETTINGS.replace(method=method)
    batched = s3dlm.generate_batch(cached, QUESTIONS, settings=settings, max_rows=1000)
    alone = [s3dlm.generate(cached, question, settings=settings) for question in QUESTIONS]
    assert [plain(one) for one in batched] == [plain(one) for one in alone]


def test_neither_small_batches_nor_a_full_cache_make_company_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = model(None, cache=True)
    jobs = [s3dlm.Job(question, settings=SETTINGS) for question in QUESTIONS]

    def found(**options: int) -> list[object]:
        events = s3dlm.run(cached, jobs, max_rows=1000, **options)
        results = {index: event for index, event in events if isinstance(event, Result)}
        return [plain(results[index]) for index in range(len(jobs))]

    assert found(max_tokens=200) == found()
    monkeypatch.setattr(cache, "SEARCH_BYTES", 3 * network(None, cache=True).config.layers << 13)
    assert found(max_tokens=200) == found()


def test_a_search_leaves_nothing_behind() -> None:
    forward = Forward(network(None, cache=True))
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


def test_the_cache_is_off_by_default_and_refused_where_it_cannot_work() -> None:
    tiny = s3dlm.load("tiny")
    assert Forward(tiny.denoiser).prefixes is None
    assert Forward(s3dlm.load("tiny", prefix_cache=True).denoiser).prefixes is not None
    with pytest.raises(SettingsError, match="prefix_cache"):
        s3dlm.load("tiny", prefix_cache=True, compile=True)


# --- whole rows

COUNTDOWN = [
    "Target: 24 Numbers: 6, 4, 12",
    "Target: 10 Numbers: 2, 3, 4",
    "Target: 9 Numbers: 1, 2, 6",
]
SMALL = {"gen_length": 64, "steps": 8, "temperature": 1.5}


def answers(model: s3dlm.Model, settings: Settings) -> list[tuple[object, ...]]:
    results = s3dlm.generate_batch(model, COUNTDOWN, task="countdown", settings=settings)
    return [(one.text, one.nfe, [s.nll for s in one.survivors]) for one in results]


@functools.cache
def without_memory(method: str) -> list[tuple[object, ...]]:
    return answers(s3dlm.load("tiny"), Settings(method=method, **SMALL))


@pytest.mark.parametrize("capacity", [1 << 30, 300_000, 0])
def test_results_are_the_same_to_the_bit_whatever_is_forgotten(capacity: int) -> None:
    model = s3dlm.load("tiny")
    memory = RowCache(model.denoiser, capacity)
    remembering = dataclasses.replace(model, denoiser=memory)
    for method in ("s3", "revise"):
        settings = Settings(method=method, **SMALL)
        assert answers(remembering, settings) == without_memory(method)
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
