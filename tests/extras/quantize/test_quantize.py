"""Weights that are no plain matrices: what a quantised or sharded tensor allows is enough."""

from __future__ import annotations

import pickle
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from s3dlm import Model, generate, generate_batch, load
from s3dlm.errors import SettingsError
from s3dlm.evaluation.manifest import fingerprint
from s3dlm.extras.quantize import quantize_weights
from s3dlm.models.device import stored
from s3dlm.models.family import Experts
from tests.models.checkpoints import LLADA, llada_tensors, write_folder
from tests.models.networks import random_network
from tests.models.test_hf import masked_lm
from tests.models.test_lora import adapter as write_adapter


class OnlyLinear(Tensor):
    """Refuses everything but the product of a linear layer, as quantised tensors do."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, given: Any = (), named: Any = None
    ) -> Any:
        if function is F.linear or "get" in getattr(function, "__name__", ""):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*given, **(named or {}))
        if function in (Tensor.detach, Tensor.requires_grad_):
            return super().__torch_function__(function, types, given, named or {})
        raise NotImplementedError(f"{function} of a weight")


def test_weights_are_multiplied_by_linear_layers_alone() -> None:
    network = random_network(tied=False)
    tokens = torch.arange(16)[None]
    features = network.encode(tokens)
    logits = network.head(features[0])
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            weight = layer.weight.data.as_subclass(OnlyLinear)
            layer.weight = nn.Parameter(weight, requires_grad=False)
    assert torch.allclose(network.encode(tokens), features, atol=1e-5)
    assert torch.allclose(network.head_in_place(16)(features[0]), logits, atol=1e-5)


torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="the extra quantize is missing")


def values(network: Any, tokens: Tensor) -> Tensor:
    features = network.encode(tokens)
    logits: Tensor = network.head(features.flatten(0, 1)).float()
    return logits


def size(model: Model) -> int:
    return sum(tensor.nbytes for _, tensor in stored(model.denoiser.tensors()))


FOLDERS = {
    "tied": LLADA | {"weight_tying": True}, "own head, bias": LLADA | {"include_qkv_bias": True},
}  # fmt: skip


@torchao
@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("case", FOLDERS)
def test_small_weights_give_nearly_the_same_logits(kind: str, case: str, tmp_path: Path) -> None:
    config = FOLDERS[case] | {"d_model": 128, "mlp_hidden_size": 128}
    write_folder(tmp_path, config, llada_tensors(config))
    whole = load(str(tmp_path), dtype="bfloat16")
    small = load(str(tmp_path), quantize=kind, dtype="bfloat16")
    tokens = torch.arange(40)[None]
    expected, found = values(whole.denoiser, tokens), values(small.denoiser, tokens)
    error = (found - expected).norm() / expected.norm()
    assert 0 < error < {"int8": 0.03, "int4": 0.4}[kind]
    matrices = 2 * sum(
        w.numel() for n, w in whole.denoiser.tensors() if "blocks" in n and w.ndim > 1
    )
    assert size(small) < size(whole) - matrices * {"int8": 0.45, "int4": 0.65}[kind]
    assert pickle.loads(pickle.dumps(small)).name == small.name  # for workers
    assert fingerprint(small) != fingerprint(whole)
    alone = values(small.denoiser, tokens)
    together = values(small.denoiser, torch.cat((tokens, tokens.flip(1), tokens)))[-40:]
    assert torch.equal(alone, together)


@torchao
def test_experts_become_small_too() -> None:
    experts = Experts(count=4, chosen=2, hidden=64, shared=64)
    network = random_network(width=64, experts=experts, std=0.05).bfloat16()
    tokens = torch.arange(32)[None]
    expected = values(network, tokens)
    found = values(quantize_weights(network, "int8", torch.device("cpu")), tokens)
    assert type(network.blocks[1].mixture.gate_up[3]) is not nn.Parameter
    assert (found - expected).norm() / expected.norm() < 0.1


@torchao
def test_adapters_are_merged_before_and_a_search_is_the_same_in_a_batch(tmp_path: Path) -> None:
    made = str(write_adapter(tmp_path / "adapter"))
    plain, merged = (load("tiny", quantize="int8", adapter=one) for one in (None, made))
    assert fingerprint(plain) != fingerprint(merged)
    how: dict[str, Any] = {"task": "countdown", "steps": 8}
    questions = ["Target: 15 Numbers: 10, 1, 6", "Target: 3 Numbers: 9, 3, 9"]
    alone = [generate(plain, question, **how).text for question in questions]
    assert [one.text for one in generate_batch(plain, questions, **how)] == alone


@torchao
def test_what_cannot_be_done_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    masked_lm("bert", tmp_path)

    def refused(name: str, words: str, **given: str) -> None:
        with pytest.raises(SettingsError, match=words):
            load(name, **given)  # type: ignore[arg-type]

    refused("tiny", "int8", quantize="int3")
    refused("tiny", "bfloat16", quantize="int4", dtype="float32")
    refused(str(tmp_path), "quantize='int8' is for native models", quantize="int8")
    monkeypatch.setitem(sys.modules, "torchao", None)
    refused("tiny", r"s3dlm\[quantize\]", quantize="int8")
