"""Weights that are no plain matrices: what a quantised or sharded tensor allows is enough."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.models.networks import random_network


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
