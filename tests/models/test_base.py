"""What a model of one's own needs, and what it gets by default."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser, Model, Tokenizer, Turn


class PlainDenoiser:
    """The required members alone, and no base class."""

    mask_id, vocabulary, context = 256, 258, 128

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        return torch.nn.functional.one_hot((tokens * 7 + 3) % 250, 258).float() * 9

    def head(self, features: Tensor) -> Tensor:
        return features.clone()


class PlainTokenizer:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i % 256 for i in ids).decode(errors="replace")

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)


def plain_model() -> Model:
    return Model("mine", PlainDenoiser(), PlainTokenizer(), frozenset())  # type: ignore[arg-type]


def test_a_plain_object_gets_every_default_and_can_be_sent_to_a_worker() -> None:
    model = plain_model()
    for name in [name for name in vars(Denoiser) if not name.startswith("__")]:
        assert hasattr(model.denoiser, name), name
    assert (model.denoiser.device, model.denoiser.causal_block) == ("cpu", None)
    there = pickle.loads(pickle.dumps(model))
    turns = [Turn("system", "Short."), Turn("user", "Why?")]
    assert there.tokenizer.decode(there.tokenizer.converse(turns)) == "Short.\n\nWhy?"
    result = s3dlm.generate(there, "Hello", method="s3", gen_length=16, steps=8, block_length=16)
    assert result.nfe > 0


def test_what_is_missing_is_named() -> None:
    tokenizer = PlainTokenizer()
    with pytest.raises(ModelError, match=r"object .*denoiser.* lacks encode, head, mask_id"):
        Model("mine", object(), tokenizer, frozenset())  # type: ignore[arg-type]

    class Slotted(PlainDenoiser):
        __slots__ = ()

    class Closed(PlainTokenizer):
        def __setattr__(self, name: str, value: object) -> None:
            raise AttributeError(name)

    with pytest.raises(ModelError, match=r"Closed .*tokenizer.* lacks \w+; .*base\.Tokenizer"):
        Model("mine", Slotted(), Closed(), frozenset())  # type: ignore[arg-type]


def test_the_weights_of_a_held_module_are_found() -> None:
    class Holder(Denoiser):
        def __init__(self) -> None:
            self.inner = torch.nn.Linear(2, 3)

    assert [name for name, _ in Holder().tensors()] == ["weight", "bias"]
    assert list(Denoiser().tensors()) == []
    assert issubclass(type(s3dlm.load("tiny").tokenizer), Tokenizer)
