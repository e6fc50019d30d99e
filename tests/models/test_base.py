"""What a model of one's own needs, and what it gets by default."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser, Model, Tokenizer, Turn, Wrapper


class Repeats(Denoiser):
    """The required members alone."""

    mask_id, vocabulary, context = 256, 258, 128

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        return torch.nn.functional.one_hot((tokens * 7 + 3) % 250, 258).float() * 9

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


class Bytes(Tokenizer):
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i % 256 for i in ids).decode(errors="replace")

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)


def test_the_required_members_are_a_model_that_can_be_sent_to_a_worker() -> None:
    there = pickle.loads(pickle.dumps(Model("mine", Repeats(), Bytes(), frozenset())))
    turns = [Turn("system", "Short."), Turn("user", "Why?")]
    assert there.tokenizer.decode(there.tokenizer.converse(turns)) == "Short.\n\nWhy?"
    result = s3dlm.generate(there, "Hello", method="s3", gen_length=16, steps=8, block_length=16)
    assert result.nfe > 0


def test_what_is_no_denoiser_or_tokenizer_is_refused() -> None:
    with pytest.raises(
        ModelError, match=r"object cannot be the denoiser .* subclass of .*Denoiser"
    ):
        Model("mine", object(), Bytes(), frozenset())  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="int cannot be the tokenizer"):
        Model("mine", Repeats(), 5, frozenset())  # type: ignore[arg-type]


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
