"""The prefix cache of block-causal models, which is exact, and the dual cache of others, an approximation: both
give the same in any batch."""

from __future__ import annotations

import dataclasses
import gc
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.fast import fast_dllm

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.models import cache
from s3dlm.models.base import Model
from s3dlm.models.forward import Forward, Rows
from s3dlm.models.transformer import Transformer
from s3dlm.result import Result
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer, plain
from tests.models.networks import END, MASK, random_network

BLOCK = 16
SETTINGS = Settings("s3", gen_length=48, steps=12, block_length=BLOCK, temperature=1.0)
QUESTIONS = [f"What is {i} + {i * i}?" + " Think." * (i % 3) for i in range(4)]


def network(
    causal_block: int | None, *, cache: bool = False, shift: bool = False, dual: int | None = None
) -> Transformer:
    return random_network(
        width=64, layers=3, hidden=96, key_value_heads=2, qk_norm=True, causal_block=causal_block,
        shift=shift, cache=cache or dual is not None, dual=dual,
    )  # fmt: skip


def model(causal_block: int | None, **how: Any) -> Model:
    return Model("small", network(causal_block, **how), ByteTokenizer(), frozenset({END}))


def watched(denoiser: Transformer) -> list[int]:
    """Lengths of the rows that are run from now on."""
    seen: list[int] = []
    inner = denoiser.body

    def body(tokens: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        seen.append(tokens.shape[1])
        return inner(tokens, *rest, **more)

    denoiser.body = body  # type: ignore[method-assign,assignment]
    return seen


def request(prompt: np.ndarray, canvas: np.ndarray, start: int) -> Rows:
    uniforms = np.random.default_rng(0).random((len(canvas), BLOCK, 2))
    at = np.full(len(canvas), start)
    return Rows(
        prompt, canvas, canvas == MASK, at, at + BLOCK, uniforms, 1.0,
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


def exact(one: Transformer, other: Transformer, *prompts: int) -> list[bool]:
    """Of each step, whether two networks say the same of its rows."""
    forwards, told = (Forward(one), Forward(other)), []
    for size in prompts or (23,):
        for rows in revealing(1, np.arange(size) + 40):
            (a,), (b,) = (forward([rows]) for forward in forwards)
            same = np.array_equal(a.top, b.top) and np.array_equal(a.draws, b.draws)
            told.append(same and np.allclose(a.top_logp, b.top_logp, atol=1e-5))
    return told


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("block", [4, BLOCK])
def test_in_a_block_causal_model_the_cache_changes_nothing(block: int, shift: bool) -> None:
    cached, plain = (network(block, cache=cache, shift=shift) for cache in (True, False))
    assert all(exact(cached, plain, 16, 23))


@pytest.mark.parametrize("shift", [False, True])  # True: as in Dream
@pytest.mark.parametrize(("dual", "every"), [(0, 8), (4, 4), (3, None), (1, 1)])
def test_the_dual_cache_is_exact_where_a_row_is_run_whole(
    dual: int, every: int | None, shift: bool
) -> None:
    # Blocks open at every eighth step; three does not divide eight, so it counts anew there.
    expected = [step % 8 % (every or 3) == 0 for step in range(24)]
    assert exact(network(None, shift=shift, dual=dual), network(None, shift=shift)) == expected


@pytest.mark.parametrize("block", [16, 32])
def test_greedy_decoding_with_the_dual_cache_equals_the_published_rule(block: int) -> None:
    """Fast-dLLM's decoding, written out, token for token."""
    plain, cached = s3dlm.load("tiny"), s3dlm.load("tiny", dual_cache=0)
    for question in ("Target: 15 Numbers: 10, 1, 6", "Target: 7 Numbers: 1, 2, 4"):
        result = s3dlm.generate(
            cached, question, method="baseline", temperature=0.0, reveal="threshold",
            reveal_threshold=0.9, gen_length=64, block_length=block,
        )  # fmt: skip
        ids = fast_dllm(plain.denoiser, plain.tokenizer.chat(question), 64, block, 0.9)
        end = next((at for at, token in enumerate(ids) if token in plain.end_ids), len(ids))
        assert result.text == plain.tokenizer.decode(ids[:end])


def test_the_dual_cache_runs_the_open_block_alone() -> None:
    denoiser = network(None, dual=0)
    seen = watched(denoiser)
    forward = Forward(denoiser)
    for rows in revealing(2, np.arange(37)):
        forward([rows])
    assert seen == [37 + 48, *[BLOCK] * 7] * 3


def test_finished_blocks_of_a_block_causal_model_are_never_run_again() -> None:
    """The process asks up to the open block's end."""
    denoiser = network(BLOCK, cache=True)
    seen = watched(denoiser)
    forward = Forward(denoiser)
    for rows in revealing(2, np.arange(37)):
        known = rows.canvas[:, : rows.stop[0]]
        forward([dataclasses.replace(rows, canvas=known, masked=known == MASK)])
    assert seen[0] == 37 + BLOCK  # the prompt, once
    assert max(seen[1:]) <= 3 * BLOCK  # then open blocks, which may lie in two of the network's
    assert sum(seen[1:]) < 24 * 2 * BLOCK


@pytest.mark.parametrize(
    ("block", "how", "method"),
    [
        (None, {"dual": 3}, "s3"),
        (None, {"dual": 3}, "revise"),
    ],
)
def test_batched_is_unbatched_with_caches_too(
    block: int | None, how: dict[str, Any], method: str
) -> None:
    settings = Settings(method, gen_length=48, steps=12, block_length=BLOCK, temperature=1.0)
    batched = s3dlm.generate_batch(model(block, **how), QUESTIONS, settings=settings)
    alone = [s3dlm.generate(model(block, **how), one, settings=settings) for one in QUESTIONS]
    assert [plain(one) for one in batched] == [plain(one) for one in alone]


def test_neither_small_batches_nor_a_full_cache_make_company_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached = model(None, dual=0)
    jobs = [s3dlm.Job(question, settings=SETTINGS) for question in QUESTIONS[:3]]

    def found(**options: int) -> list[object]:
        events = s3dlm.run(cached, jobs, max_rows=1000, **options)
        results = {index: event for index, event in events if isinstance(event, Result)}
        return [plain(results[index]) for index in range(len(jobs))]

    assert found(max_tokens=200) == found()
    monkeypatch.setattr(cache, "SEARCH_BYTES", 3 * network(None).config.layers << 13)
    assert found(max_tokens=200) == found()


def test_a_search_leaves_nothing_behind() -> None:
    forward = Forward(network(None, dual=0))
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


def test_caches_are_off_by_default_and_refused_where_they_cannot_work() -> None:
    tiny = s3dlm.load("tiny")
    assert Forward(tiny.denoiser).prefixes is None
    refused: tuple[tuple[str, dict[str, Any]], ...] = (
        ("tiny", {"dual_cache": 0, "block": 32}), ("sudoku9", {"dual_cache": 0}),
        ("tiny", {"dual_cache": -1}), ("tiny", {"dual_cache": True}), ("tiny", {"dual_cache": "x"}),
    )  # fmt: skip
    for name, how in refused:
        with pytest.raises(SettingsError, match=r"dual_cache=.*from 0 up"):
            s3dlm.load(name, **how)
