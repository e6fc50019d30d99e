"""Weights in 8 or 4 bits, by torchao: stored small, multiplied in the network's dtype.

Every matrix of the layers becomes small, those of experts too. Embeddings stay whole, and with them a
head that shares their matrix; a head of its own gets 8 bits, because its errors go straight into the
probabilities. Norms and the router of a mixture stay whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.models.base import Model
from s3dlm.models.device import device_of, dtype_of
from s3dlm.models.layers import Mixture
from s3dlm.models.transformer import Transformer

QUANTIZATIONS = ("int8", "int4")
GROUP_SIZE = 64  # weights that share a scale and a zero with 4 bits: half a bit more for each


def load_small(load: Callable[..., Model], options: dict[str, Any]) -> Model:
    """The model with small weights; they are read into the host's memory first."""
    kind, device, dtype = options["quantize"], device_of(options["device"]), options["dtype"]
    if kind not in QUANTIZATIONS:
        raise SettingsError(unknown_name("quantize", kind, QUANTIZATIONS))
    dtype = dtype_of("bfloat16" if dtype is None and kind == "int4" else dtype, device)
    if kind == "int4" and dtype != torch.bfloat16:  # CUDA has no other kernel, CPU no fast one
        short = str(dtype).removeprefix("torch.")
        raise SettingsError(f"quantize='int4' needs dtype='bfloat16', not {short!r}; leave it out")
    _torchao()
    model = load(**options | {"quantize": None, "device": "cpu", "dtype": str(dtype)})
    if not isinstance(model.denoiser, Transformer):
        raise SettingsError(
            f"quantize={kind!r} is for native models, and {model.name!r} is none: leave it out; "
            "docs/models.md says which families are native"
        )
    quantize_weights(model.denoiser, kind, device)
    return model


@torch.no_grad()
def quantize_weights(network: Transformer, kind: str, device: torch.device) -> Transformer:
    """The network on its device; one matrix at a time is whole there."""
    for module in network.modules():
        if isinstance(module, nn.Linear):
            bits = "int8" if module is network.output else kind
            module.weight = _small(module.weight, bits, device)
        elif isinstance(module, Mixture):
            for name in ("gate_up", "down"):
                parts = [_small(weight, kind, device) for weight in getattr(module, name)]
                delattr(module, name)
                setattr(module, name, nn.ParameterList(parts))
            for name in ("shared_gate_up", "shared_down"):
                if getattr(module, name) is not None:
                    setattr(module, name, _small(getattr(module, name), kind, device))
    return network.to(device)


def _small(weight: Tensor, kind: str, device: torch.device) -> nn.Parameter:
    rows, columns = weight.shape
    layer = nn.Linear(columns, rows, bias=False, device="meta")
    layer.weight = nn.Parameter(weight.to(device), requires_grad=False)
    quantization = _torchao()
    config = quantization.Int8WeightOnlyConfig()
    if kind == "int4" and columns % GROUP_SIZE == 0 and rows % 16 == 0:
        if device.type == "cpu":
            from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

            config = PrototypeInt4WeightOnlyConfig(group_size=GROUP_SIZE)
        else:  # never run by us
            config = quantization.Int4WeightOnlyConfig(
                GROUP_SIZE, int4_packing_format="tile_packed_to_4d"
            )
    quantization.quantize_(layer, config)
    return layer.weight


def _torchao() -> Any:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it tells of every kernel that this machine does not have
    try:
        from torchao import quantization
    except ImportError as error:
        raise SettingsError(
            "quantize needs torchao, which is not installed: pip install 's3dlm[quantize]'"
        ) from error
    finally:
        logging.disable(before)
    return quantization
