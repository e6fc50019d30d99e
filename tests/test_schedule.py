from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3dlm.diffusion.blocks import Blocks, Reveal, reveals
from s3dlm.diffusion.schedule import POLICIES, Draw, choose, revealed
from s3dlm.job import Job, prepare
from s3dlm.settings import Settings
from tests.fakes import fake_model


@given(st.data())
def test_every_position_is_revealed_once_and_no_step_is_empty(data: st.DataObject) -> None:
    gen_length = data.draw(st.integers(1, 300))
    block = data.draw(st.integers(1, 300))
    blocks = -(-gen_length // block)
    steps = data.draw(st.integers(blocks, gen_length))
    schedule = reveals(gen_length, steps, block)
    assert len(schedule) == steps
    assert all(reveal.count >= 1 for reveal in schedule)
    for start in range(0, gen_length, block):
        inside = [reveal for reveal in schedule if reveal.start == start]
        assert sum(reveal.count for reveal in inside) == min(block, gen_length - start)
        counts = [reveal.count for reveal in inside]
        assert counts == sorted(counts, reverse=True)  # the remainder goes to the earliest steps


@given(st.data())
def test_no_block_overhangs_the_models_block_or_the_canvas(data: st.DataObject) -> None:
    model_block = data.draw(st.integers(1, 12))
    block = data.draw(st.integers(1, 15))
    offset = data.draw(st.integers(0, model_block - 1))
    length = data.draw(st.integers(1, 60))
    places = Blocks(block, model_block, offset).all(length)
    assert [start for start, _ in places] == [0, *(stop for _, stop in places[:-1])]
    assert places[-1][1] == length
    for start, stop in places:
        assert 1 <= stop - start <= block
        assert (start + offset) // model_block == (stop - 1 + offset) // model_block


def test_blocks_begin_anew_with_each_block_of_the_model() -> None:
    """Blocks of 3 in a model with blocks of 8, whose first has 2 positions of the prompt."""
    blocks = Blocks(3, 8, 2)
    assert blocks.all(16) == [(0, 1), (1, 4), (4, 6), (6, 9), (9, 12), (12, 14), (14, 16)]
    assert [blocks.number(start) for start, _ in blocks.all(16)] == list(range(7))
    positions = np.arange(16)
    starts, stops = blocks.model_bounds(positions, 16)
    assert starts.tolist() == [0] * 6 + [6] * 8 + [14] * 2
    assert stops.tolist() == [6] * 6 + [14] * 8 + [16] * 2
    assert np.flatnonzero(blocks.begins_model_block(positions)).tolist() == [6, 14]
    assert blocks.causal
    assert not Blocks(3).causal


def test_policies_order_positions_as_they_say() -> None:
    draw = Draw(
        tokens=np.zeros((1, 3), dtype=np.int64),
        logp=np.array([[-3.0, -1.0, -2.0]]),
        masked=np.ones((1, 3), dtype=bool),
        margin=np.array([[0.9, 0.1, 0.2]]),
        entropy=np.array([[2.0, 1.0, 0.1]]),
    )
    rng = np.random.default_rng(0)
    best = {
        name: int(choose(policy(draw, rng), 1, draw.masked).argmax())
        for name, policy in POLICIES.items()
        if name not in ("random", "pool")  # these draw
    }
    assert best == {"low_confidence": 1, "margin": 0, "entropy": 2, "left_to_right": 0}
    picks = {int(choose(POLICIES["random"](draw, rng), 1, draw.masked).argmax()) for _ in range(50)}
    assert picks == {0, 1, 2}


def test_the_pool_is_the_five_surest_positions() -> None:
    """Any of them, and no other one, is taken; which, is left to chance."""
    logp = -np.array([[3.0, 1.0, 2.0, 7.0, 5.0, 6.0, 4.0, 0.5]])
    draw = Draw(np.zeros((1, 8), np.int64), logp, masked=np.arange(8)[None] < 7)
    rng = np.random.default_rng(0)
    picks = [int(choose(POLICIES["pool"](draw, rng), 1, draw.masked).argmax()) for _ in range(200)]
    assert set(picks) == {0, 1, 2, 4, 6}


def test_a_known_position_is_never_chosen() -> None:
    chosen = choose(np.array([[9.0, 1.0, 5.0]]), 2, np.array([[False, True, False]]))
    assert chosen.tolist() == [[False, True, False]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_deferred_end_tokens_are_revealed_last_by_every_policy(
    policy: str, temperature: float
) -> None:
    end, rows = 9, 200
    tokens = np.tile([end, 1, 1, 1], (rows, 1))
    half = np.full(tokens.shape, 0.5)
    masked, deferred = np.ones(tokens.shape, dtype=np.bool_), tokens == end
    draw = Draw(tokens, np.log(half), masked, half, half)
    process = dataclasses.replace(
        prepare(fake_model(), Job("q")).process,
        decoding=Settings(policy=policy, position_temperature=temperature).decoding,
        schedule=[Reveal(0, 4, 3)],
    )
    ranked = draw.deferring(deferred, 0.1 * half)
    chosen = revealed(process.decoding, ranked, deferred, 3, np.random.default_rng(0))
    assert not chosen[:, 0].any()
    assert chosen[:, 1:].all()
