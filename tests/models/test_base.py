"""What a model of one's own gets by default, and what is none. CONTRIBUTING.md makes one, as a test does."""

from __future__ import annotations

import pytest
import torch

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser, Model, Wrapper
from tests.fakes import ByteTokenizer, fake_model


def test_what_is_no_denoiser_or_tokenizer_is_refused() -> None:
    denoiser = fake_model().denoiser
    with pytest.raises(
        ModelError, match=r"object cannot be the denoiser .* subclass of .*Denoiser"
    ):
        Model("mine", object(), ByteTokenizer(), frozenset())  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="int cannot be the tokenizer"):
        Model("mine", denoiser, 5, frozenset())  # type: ignore[arg-type]


def test_a_wrapper_is_like_what_it_wraps() -> None:
    inner = s3dlm.load("noisy9").denoiser
    wrapped = Wrapper(inner)
    for name in Denoiser.__annotations__:
        assert getattr(wrapped, name) == getattr(inner, name), name
    assert [name for name, _ in wrapped.tensors()] == [name for name, _ in inner.tensors()]
    assert Wrapper(s3dlm.load("tiny", dual_cache=4).denoiser).reader() is None


def test_the_weights_of_a_held_module_are_found() -> None:
    class Holder(Denoiser):
        def __init__(self) -> None:
            self.inner = torch.nn.Linear(2, 3)

    assert [name for name, _ in Holder().tensors()] == ["weight", "bias"]
    assert list(Denoiser().tensors()) == []
