"""The config.json of a LLaDA-shaped network that we made ourselves."""

from __future__ import annotations

from typing import Any

from s3dlm.models.families import LLADA_OPTIONS
from s3dlm.models.family import TransformerConfig


def llada_config(config: TransformerConfig, end_id: int) -> dict[str, Any]:
    """What `s3dlm.models.families.read_llada` turns into `config`."""
    if config.qk_norm or config.shift or config.experts or config.causal_block:
        raise ValueError("LLaDA's config.json cannot describe this network")
    return {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
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
    } | {key: values[0] for key, values in LLADA_OPTIONS.items()}
