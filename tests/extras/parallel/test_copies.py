"""Rows that are shared among copies of a network are the rows of one network."""

from __future__ import annotations

import builtins
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.extras.parallel.copies import Copies
from s3dlm.models.forward import Forward, Prediction, Sampling
from tests.models.networks import SHAPES, make_rows, random_network
from tests.models.pretend_gpu import DeviceError, pretend_gpu, to_gpu

REQUESTS = [
    make_rows(20, count=5),
    make_rows(20, seed=1, count=1),
    make_rows(9, seed=2, sampling=Sampling(guidance=0.5)),
]


def same(one: Prediction, other: Prediction) -> None:
    for name in ("top", "top_logp", "draws", "draws_logp", "entropy"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("count", [2, 3])
def test_two_copies_give_the_bits_of_one(shape: str, count: int) -> None:
    one = Forward(random_network(**SHAPES[shape]))
    several = Forward(Copies([random_network(**SHAPES[shape]) for _ in range(count)]))
    for _ in range(2):  # the second time with a cache of prefixes
        for expected, found in zip(one(REQUESTS), several(REQUESTS), strict=True):
            same(expected, found)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_devices_are_mixed(shape: str) -> None:
    expected = Forward(random_network(**SHAPES[shape]))
    with pretend_gpu():
        with pytest.raises(DeviceError, match="cards"):
            torch.ones(2, device="cuda:0") + torch.ones(2, device="cuda:1")
        copies = Copies([to_gpu(random_network(**SHAPES[shape]), card) for card in (0, 1)])
        copies.pool = SimpleNamespace(map=builtins.map)  # type: ignore[assignment]
        forward = Forward(copies)
        assert [str(copy.device) for copy in copies.copies] == ["cuda:0", "cuda:1"]
        for _ in range(2):
            for found, wanted in zip(forward(REQUESTS), expected(REQUESTS), strict=True):
                np.testing.assert_array_equal(found.top, wanted.top)
                np.testing.assert_allclose(found.top_logp, wanted.top_logp, atol=1e-5)


def test_a_search_over_two_devices_is_the_search() -> None:
    shared = s3dlm.load("tiny", devices=["cpu", "cpu"])
    assert isinstance(shared.denoiser, Copies)
    one = s3dlm.load("tiny", device="cpu")
    asked = {"prompt": "Target: 45 Numbers: 8, 7, 11", "task": "countdown", "method": "s3"}
    found, expected = (s3dlm.generate(model, **asked) for model in (shared, one))  # type: ignore[arg-type]
    assert (found.text, found.nfe, found.score) == (expected.text, expected.nfe, expected.score)
    assert found.token_logprobs == expected.token_logprobs
    assert repr(shared).split("(")[2:] == repr(one).split("(")[2:]
    assert not isinstance(s3dlm.load("tiny", devices="cpu").denoiser, Copies)


@pytest.mark.parametrize(
    ("devices", "device"), [("cpu,meta", None), ("cpu,", None), ([], None), ("cpu,cpu", "cpu")]
)
def test_devices_of_one_kind(devices: Any, device: str | None) -> None:
    with pytest.raises(SettingsError, match="devices of one kind"):
        s3dlm.load("tiny", devices=devices, device=device)
    with pytest.raises(SettingsError, match="sees no GPU"):
        s3dlm.load("tiny", devices="cuda:0,cuda:1")
