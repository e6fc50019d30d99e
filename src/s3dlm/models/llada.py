"""LLaDA (8B Base and Instruct, 1.5, and the shipped `tiny`): a Llama without the causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from s3dlm.errors import ModelError
from s3dlm.models.family import Family, TensorNames, build_config, refuse_unless, required
from s3dlm.models.transformer import Transformer, TransformerConfig

MASK_ID = 126336  # when config.json does not say

NAMES = TensorNames(
    embedding="model.transformer.wte.weight",
    norm="model.transformer.ln_f.weight",
    output="model.transformer.ff_out.weight",
    block="model.transformer.blocks.{index}.",
    attention_norm="attn_norm.weight",
    query="q_proj",
    key="k_proj",
    value="v_proj",
    out="attn_out.weight",
    feed_norm="ff_norm.weight",
    gate="ff_proj.weight",
    up="up_proj.weight",
    down="ff_out.weight",
)

ALLOWED: dict[str, tuple[Any, ...]] = {
    "activation_type": ("silu",),
    "alibi": (False, None),
    "attention_layer_norm": (False, None),
    "bias_for_layer_norm": (False, None),
    "block_group_size": (1, None),
    "block_type": ("llama",),
    "include_bias": (False, None),
    "input_emb_norm": (False, None),
    "layer_norm_type": ("rms",),
    "rope": (True,),
    "scale_logits": (False, None),
}


def read(config: Mapping[str, Any]) -> TransformerConfig:
    if "num_experts" in config:
        raise ModelError(
            "this LLaDA is a mixture of experts, which the native network has not; "
            "load it with trust_remote_code=True"
        )
    refuse_unless(config, "LLaDA", ALLOWED)
    width, heads = required(config, "d_model"), required(config, "n_heads")
    hidden = config.get("mlp_hidden_size") or required(config, "mlp_ratio") * width
    few = 1 if config.get("multi_query_attention") else heads
    return build_config(
        vocabulary=config.get("embedding_size") or required(config, "vocab_size"),
        width=width,
        layers=required(config, "n_layers"),
        heads=heads,
        key_value_heads=config.get("n_kv_heads") or few,
        hidden=hidden,
        mask_id=config.get("mask_token_id", MASK_ID),
        context=required(config, "max_sequence_length"),
        rope_theta=float(required(config, "rope_theta", float)),
        norm_epsilon=float(config.get("rms_norm_eps", 1e-5)),
        qkv_bias=bool(config.get("include_qkv_bias", False)),
        tied=bool(config.get("weight_tying", False)),
    )


def write(config: TransformerConfig, end_id: int) -> dict[str, Any]:
    """The config.json that `read` turns into `config`: how a model we train is stored."""
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
    } | {key: values[0] for key, values in ALLOWED.items()}


FAMILY = Family("LLaDA", Transformer, read, NAMES, end_tokens=("<|endoftext|>", "<|eot_id|>"))
