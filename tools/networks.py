"""Networks that we make ourselves: their first weights, and how they are stored as a LLaDA."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from s3dlm.models.checkpoint import layout
from s3dlm.models.families import LLADA_OPTIONS
from s3dlm.models.family import TensorNames, TransformerConfig
from s3dlm.models.transformer import Transformer


def initialise(network: Transformer, generator: torch.Generator) -> None:
    """Fresh weights for training: normal, narrower where a layer writes to the residual."""
    narrow = 0.02 / math.sqrt(2 * network.config.layers)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith(("out.weight", "down.weight", "down")):
                parameter.normal_(0.0, narrow, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()
            elif parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)


def export(network: Transformer, names: TensorNames) -> dict[str, Tensor]:
    """The network's weights under a family's own names, as a checkpoint stores them."""
    state = network.state_dict()
    slots = layout(network.config, names)
    return {name: slot.of(state).contiguous() for name, slot in slots.items()}


def llada_config(config: TransformerConfig, end_id: int | None) -> dict[str, Any]:
    """What `s3dlm.models.families.read_llada` turns into `config`."""
    if config.qk_norm or config.shift or config.experts or config.causal_block:
        raise ValueError("LLaDA's config.json cannot describe this network")
    grid = (
        {}
        if config.grid is None
        else {"grid_order": config.grid, "llm_vocab_size": config.text_vocabulary}
    )
    return {
        "model_type": "llada_grid" if grid else "llada",
        "architectures": [] if grid else ["LLaDAModelLM"],
        **grid,
        "d_model": config.width,
        "n_heads": config.heads,
        "n_kv_heads": config.kv_heads,
        "n_layers": config.layers,
        "mlp_hidden_size": config.hidden,
        "max_sequence_length": config.context,
        "vocab_size": config.vocabulary,
        "embedding_size": config.vocabulary,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_epsilon,
        "include_qkv_bias": config.qkv_bias,
        "weight_tying": config.tied,
        "mask_token_id": config.mask_id,
        "eos_token_id": end_id,
    } | {key: values[0] for key, values in LLADA_OPTIONS.items() if key != "rope" or not grid}
