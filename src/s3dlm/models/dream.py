"""Dream and DiffuCoder: Qwen2's weights, read both ways.

Dream was a next-token model, and kept that habit: what it says at one position is about the next.
Shifting its features by one, once, here, lets the rest of the package forget about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from s3dlm.models.family import Family, TensorNames, build_config, refuse_unless, required
from s3dlm.models.transformer import Transformer, TransformerConfig

MASK_ID = 151666  # when config.json does not say
CONTEXT = 2048  # what Dream was trained on; its config still names Qwen's 131072 positions

NAMES = TensorNames(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    output="lm_head.weight",
    block="model.layers.{index}.",
    attention_norm="input_layernorm.weight",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    out="self_attn.o_proj.weight",
    feed_norm="post_attention_layernorm.weight",
    gate="mlp.gate_proj.weight",
    up="mlp.up_proj.weight",
    down="mlp.down_proj.weight",
)

ALLOWED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "rope_scaling": (None,),
    "use_mrope": (False, None),
    "use_sliding_window": (False, None),
}


class Dream(Transformer):
    """Position i is predicted by the features of position i − 1; the first keeps its own."""

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        features = super().encode(tokens, keys)
        return torch.cat((features[:, :1], features[:, :-1]), 1)


def read(config: Mapping[str, Any]) -> TransformerConfig:
    refuse_unless(config, "Dream", ALLOWED)
    rope = config.get("rope_parameters") or config  # transformers 5 writes θ one level down
    return build_config(
        vocabulary=required(config, "vocab_size"),
        width=required(config, "hidden_size"),
        layers=required(config, "num_hidden_layers"),
        heads=required(config, "num_attention_heads"),
        key_value_heads=required(config, "num_key_value_heads"),
        hidden=required(config, "intermediate_size"),
        mask_id=config.get("mask_token_id", MASK_ID),
        context=min(CONTEXT, required(config, "max_position_embeddings")),
        rope_theta=float(required(rope, "rope_theta", float)),
        norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
        qkv_bias=True,
        tied=bool(config.get("tie_word_embeddings", False)),
    )


FAMILY = Family("Dream", Dream, read, NAMES, end_tokens=("<|endoftext|>", "<|im_end|>"))
