"""What can be proven about a GPU without one: no mixed devices, few host syncs, honest clocks."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.base import Model
from s3dlm.models.device import logits_room
from s3dlm.models.forward import Forward, Sampling
from s3dlm.models.hf import TransformersModel
from s3dlm.models.transformer import Transformer
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer
from tests.models.networks import END, MASK, SHAPES, assert_close, make_rows, random_network
from tests.models.pretend_gpu import DeviceError, PretendTensor, kernels, pretend_gpu, to_gpu
from tests.models.test_hf import masked_lm


def test_the_pretend_gpu_refuses_what_a_gpu_refuses() -> None:
    with pretend_gpu() as syncs:
        there, here = torch.ones(3, device="cuda"), torch.ones(3)
        assert isinstance(there, PretendTensor)
        assert there.device.type == "cuda"
        with pytest.raises(DeviceError, match="together with CPU"):
            there + here
        with pytest.raises(DeviceError, match="numpy"):
            there.numpy()
        assert not syncs
        assert float((there * 2).sum()) == 6.0
        assert there.cpu().tolist() == [1.0] * 3
        assert (here.to("cuda") + there).tolist() == [2.0] * 3
        assert sum(syncs.values()) == 3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 1.0, "sampling": Sampling(top_k=5, top_p=0.9)},
        {"sampling": Sampling(guidance=0.5, deferred=(9,), suppressed=(7,))},
    ],
    ids=["warm", "greedy", "filtered", "guided"],
)
def test_a_forward_pass_gives_the_same_and_waits_in_one_place(
    shape: str, options: dict[str, Any]
) -> None:
    requests = [make_rows(20, **options), make_rows(18, seed=1, **options)]
    expected = Forward(random_network(**SHAPES[shape]))(requests)
    with pretend_gpu() as syncs:
        found = Forward(to_gpu(random_network(**SHAPES[shape])))(requests)
    places = {place for place in syncs if "layers.py" not in place}  # experts wait in each layer
    assert len(places) == 1, syncs
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_waits_in_one_place(method: str) -> None:
    wanted = {"gen_length": 16, "steps": 8, "block_length": 8, "particles": 2, "temperature": 0.8}
    settings = Settings.over(method, [wanted], {})
    with pretend_gpu() as syncs:
        model = Model("small", to_gpu(random_network()), ByteTokenizer(), frozenset({END}))
        assert s3dlm.generate(model, "why?", settings=settings).nfe > 0
        assert len(syncs) == 1, syncs


def test_the_transformers_path_runs_there_too(tmp_path: Path) -> None:
    inner = masked_lm("bert", tmp_path)
    requests = [make_rows(20), make_rows(18, seed=1)]
    expected = Forward(TransformersModel(inner, MASK, 300, 64))(requests)
    with pretend_gpu() as syncs:
        denoiser = TransformersModel(to_gpu(inner), MASK, 300, 64)
        assert denoiser.device.type == "cuda"
        found = Forward(denoiser)(requests)
        assert len(syncs) == 2, syncs  # there, and within transformers
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)


# Attention


def test_a_mask_is_passed_only_where_something_is_hidden() -> None:
    for other, hidden in ((21, False), (20, True)):
        with pretend_gpu():
            forward = Forward(to_gpu(random_network(key_value_heads=2)))
            forward([make_rows(21), make_rows(other, seed=1)])
            assert kernels
            for call in kernels:
                assert (call["attn_mask"] is not None) == hidden
                assert call["enable_gqa"] != hidden  # the kernel with a mask wants keys repeated
                assert (call["key"].shape == call["query"].shape) == hidden


def test_the_open_block_of_a_block_causal_model_needs_no_mask() -> None:
    with pretend_gpu():
        forward = Forward(to_gpu(random_network(causal_block=8)))
        request = make_rows(24, canvas=8)
        forward([request])
        kernels.clear()
        forward([request])  # the prompt is known now, and all is visible from the last block
        assert kernels
        assert all(call["attn_mask"] is None for call in kernels)
        assert all(call["query"].shape[2] == 8 for call in kernels)


# Memory and time


class Small(Transformer):
    """Runs out of memory beyond some rows, and says whether what failed is gone when it retries."""

    most, held, failed = 2, 0, 0
    last: weakref.ref[Tensor] | None = None

    def encode(
        self, tokens: Tensor, keys: Tensor | None = None, wanted: Tensor | None = None
    ) -> Tensor:
        gc.collect()
        if self.last is not None and self.last() is not None:
            Small.held += 1
        if len(tokens) > self.most:
            large = torch.empty(1000)
            self.last = weakref.ref(large)
            Small.failed += 1
            raise torch.OutOfMemoryError(f"no room for {large.shape}")
        return super().encode(tokens, keys, wanted)


def test_out_of_memory_halves_the_batch_that_failed_and_frees_it() -> None:
    plain, small = random_network(), random_network(Small)
    requests = [make_rows(20, count=3), make_rows(20, count=4, seed=1)]
    expected = Forward(plain)(requests)
    Small.held = Small.failed = 0
    forward = Forward(small)
    gc.collect()
    gc.freeze()  # what was there before need not be looked at again and again
    found = forward(requests)
    gc.unfreeze()
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)
    assert Small.failed == 3  # 7 rows; 3 of the first half, 4 of the second
    assert Small.held == 0
    assert forward.max_tokens < 3 * 48
    Small.failed = 0
    forward(requests)
    assert Small.failed == 0  # later batches are small from the start


def test_out_of_memory_with_one_row_is_an_error() -> None:
    small = random_network(Small)
    small.most = 0  # type: ignore[assignment]
    with pytest.raises(ModelError, match="out of memory with a single row"):
        Forward(small)([make_rows(20)])


def test_chunks_of_logits_follow_the_memory_and_time_is_measured_by_events() -> None:
    for free, room in ((80 << 30, 1 << 30), (2 << 30, 1 << 28)):
        with pretend_gpu(free_memory=free):
            assert logits_room(torch.device("cuda:0")) == room
    assert logits_room(torch.device("cpu")) == 1 << 26
    with pretend_gpu():
        forward = Forward(to_gpu(random_network()))
        forward([make_rows(20)])
        # One pair around the body, one around the head for each of the two groups of positions.
        assert forward.model_seconds == pytest.approx(3e-3)
