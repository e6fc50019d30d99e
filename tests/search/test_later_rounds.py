"""Later rounds decode as the first did, whatever they hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from s3dlm.job import Job, prepare
from s3dlm.models.base import Defaults
from s3dlm.settings import Settings
from tests.fakes import fake_model, search


@pytest.mark.parametrize(
    ("given", "block"),
    [
        ({}, 64),
        ({"gen_length": 81}, 81),
        ({"gen_length": 256}, 64),
        ({"gen_length": 32, "steps": 16}, 32),
        ({"gen_length": 81, "block_length": 27}, 27),
        ({"gen_length": 81, "block_length": 64}, 64),  # said so: the last block is short
    ],
)
def test_the_block_follows_a_length_that_it_does_not_divide(given: Any, block: int) -> None:
    assert Settings(**given).decoding.block_length == block
    assert Settings().replace(**given).decoding.block_length == block


def test_a_models_recommendation_follows_too_and_so_does_a_tasks() -> None:
    recommended = {"*": {"gen_length": 64, "block_length": 32}, "task:grid": {"gen_length": 81}}
    defaults = Defaults(settings=recommended)
    assert Settings.recommended(defaults, "s3").decoding.block_length == 32
    assert Settings.recommended(defaults, "s3", gen_length=96).decoding.block_length == 32
    assert Settings.recommended(defaults, "s3", gen_length=80).decoding.block_length == 80
    assert Settings.recommended(defaults, "s3", "grid").decoding.block_length == 81


def test_an_infilled_text_is_one_block_where_an_answer_is() -> None:
    text = "[[9]]" + "x" * 60 + "[[12]]"
    for block, blocks in ((64, 1), (16, 6)):
        settings = Settings(gen_length=64, block_length=block)
        process = prepare(fake_model(), Job("", settings=settings, infill=text)).process
        assert len(process.blocks.all(81)) == blocks


@pytest.mark.parametrize(
    "decoding",
    [
        {"steps": 7},
        {"steps": 7, "reveal": "dream"},
        {"steps": 24, "policy": "left_to_right"},
        {"reveal": "threshold", "reveal_threshold": 0.4},
    ],
    ids=str,
)
@pytest.mark.parametrize("block", [24, 10])
def test_a_canvas_that_is_empty_again_fills_as_it_did_at_first(block: int, decoding: Any) -> None:
    """Greedily, so that both rounds must agree to the last token."""
    once = {"gen_length": 24, "block_length": block, "temperature": 0.0, **decoding}
    moves = {"rounds": 1, "remask": "random", "restart_fraction": 1.0}
    settings = Settings("revise", particles=1, look_aheads=1, **moves, **once)
    rounds: list[list[np.ndarray]] = [[], []]
    for step in search(settings, question="q", task=None, sample_id=1)[0]:
        rounds[step.round].append(step.tokens)
    first, second = rounds
    assert len(second) > 1
    for one, two in zip(first, second, strict=False):  # all that follows a finished text is equal
        assert (one == two).all()
    assert (first[-1] == second[-1]).all()
