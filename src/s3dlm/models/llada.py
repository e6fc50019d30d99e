"""LLaDA (8B Base and Instruct, 1.5, MMaDA's text side, the bundled `tiny`): OLMo's field names."""

from __future__ import annotations

from typing import Any

from s3dlm.errors import ModelError
from s3dlm.models.config import TransformerConfig
from s3dlm.models.family import (
    Config,
    Family,
    TensorNames,
    build_config,
    flag,
    optional,
    refuse_unless,
    required,
)

MASK_ID = 126336

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


def read(config: Config, family: Family, mask_id: int) -> TransformerConfig:
    refuse_unless(config, family.name, ALLOWED)
    width, heads = required(config, "d_model"), required(config, "n_heads")
    hidden = optional(config, "mlp_hidden_size", None) or required(config, "mlp_ratio") * width
    few = 1 if flag(config, "multi_query_attention") else heads
    sizes = ("new_vocab_size", "embedding_size", "vocab_size")  # MMaDA's first: with image tokens
    vocabulary = next((name for name in sizes if config.get(name) is not None), sizes[-1])
    return build_config(
        vocabulary=required(config, vocabulary),
        text_vocabulary=optional(config, "llm_vocab_size", None),
        width=width,
        layers=required(config, "n_layers"),
        heads=heads,
        key_value_heads=optional(config, "n_kv_heads", None) or few,
        hidden=hidden,
        mask_id=mask_id,
        context=required(config, "max_sequence_length"),
        rope_theta=float(required(config, "rope_theta", float)),
        norm_epsilon=float(optional(config, "rms_norm_eps", 1e-5, float)),
        qkv_bias=flag(config, "include_qkv_bias"),
        tied=flag(config, "weight_tying"),
    )


def write(config: TransformerConfig, end_id: int) -> dict[str, Any]:
    """The config.json that `read` turns into `config`: how a model we train is stored."""
    if config.qk_norm or config.shift or config.experts or config.causal_block:
        raise ModelError("LLaDA's config.json cannot describe this network")
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


FAMILY = Family(
    "LLaDA", ("llada",), read, NAMES, ("<|endoftext|>", "<|eot_id|>"),
    mask_tokens=("<|mdm_mask|>",), mask_id=MASK_ID,
    examples="LLaDA 8B, LLaDA 1.5, tiny",
    parity="definition written out in tests/models/checkpoints.py",
)  # fmt: skip
MMADA = Family(
    "MMaDA (text)", ("mmada",), read, NAMES, ("<|endoftext|>", "<|eot_id|>"),
    mask_tokens=("<|mdm_mask|>",), mask_id=MASK_ID,
    examples="MMaDA 8B Base, MixCoT", parity=FAMILY.parity, checked=False,
)  # fmt: skip
