"""Every family of diffusion language models that the native network runs, one row each.

All are Llama-shaped: RMSNorm, rotary positions, grouped-query attention without a causal mask,
SwiGLU or a mixture of such. They differ in field names, tensor names, which positions a position
sees, and whether a position is predicted by its own features or by those of the one before. No
model's own code is run.

Block sizes, mask ids and trained contexts are those of the authors' code; config.json overrules
them where it states its own.
"""

from __future__ import annotations

from typing import Any

from s3dlm.errors import ModelError
from s3dlm.models.config import Experts, TransformerConfig, short
from s3dlm.models.family import (
    Config,
    Family,
    TensorNames,
    build_config,
    build_experts,
    flag,
    optional,
    refuse_unless,
    required,
)
from s3dlm.models.llada import FAMILY as LLADA
from s3dlm.models.llada import MMADA

LLAMA_NAMES = TensorNames(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    output="lm_head.weight",
    block="model.layers.{index}.",
    attention_norm="input_layernorm.weight",
    query="self_attn.q_proj",
    key="self_attn.k_proj",
    value="self_attn.v_proj",
    out="self_attn.o_proj.weight",
    query_norm="self_attn.q_norm.weight",
    key_norm="self_attn.k_norm.weight",
    feed_norm="post_attention_layernorm.weight",
    gate="mlp.gate_proj.weight",
    up="mlp.up_proj.weight",
    down="mlp.down_proj.weight",
    shared="shared_expert.",
)

LLADA2_NAMES = TensorNames(
    embedding="model.word_embeddings.weight",
    norm="model.norm.weight",
    output="lm_head.weight",
    block="model.layers.{index}.",
    attention_norm="input_layernorm.weight",
    query="",
    key="",
    value="",
    fused="attention.query_key_value",
    out="attention.dense.weight",
    query_norm="attention.query_layernorm.weight",
    key_norm="attention.key_layernorm.weight",
    feed_norm="post_attention_layernorm.weight",
    gate="mlp.gate_proj.weight",
    up="mlp.up_proj.weight",
    down="mlp.down_proj.weight",
)

# What the network does not have; the first value of each is the one it has.
ALLOWED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "use_bias": (False, None),
    "norm_head": (False, None),
    "clip_qkv": (None,),
    "use_mrope": (False, None),
    "use_sliding_window": (False, None),
    "decoder_sparse_step": (1, None),
    "mlp_only_layers": ([], None),
}


def read(config: Config, family: Family, mask_id: int) -> TransformerConfig:
    """config.json with the field names of transformers."""
    bias = family.qkv_bias and {"attention_bias": (True, False, None)}  # Qwen2 has it in any case
    refuse_unless(config, family.name, ALLOWED | (bias or {}))
    theta, rope_width = _rope(config, family)
    context = required(config, "max_position_embeddings")
    heads = required(config, "num_attention_heads")
    return build_config(
        vocabulary=required(config, "vocab_size"),
        width=required(config, "hidden_size"),
        layers=required(config, "num_hidden_layers"),
        heads=heads,
        key_value_heads=optional(config, "num_key_value_heads", None) or heads,
        head_width=optional(config, "head_dim", None),
        hidden=_hidden(config),
        mask_id=mask_id,
        context=context if family.context is None else min(context, family.context),
        rope_theta=theta,
        rope_width=rope_width,
        norm_epsilon=float(optional(config, "rms_norm_eps", 1e-6, float)),
        qkv_bias=flag(config, "use_qkv_bias", family.qkv_bias),
        qk_norm=flag(config, "use_qk_norm", flag(config, "qk_layernorm", family.qk_norm)),
        tied=flag(config, "tie_word_embeddings"),
        causal_block=_block(config, family),
        shift=family.shift,
        experts=_experts(config),
    )


def _rope(config: Config, family: Family) -> tuple[float, int | None]:
    """θ, and how much of a head is rotated; transformers 5 writes both one level down."""
    inner = config.get("rope_parameters") or {}
    if not isinstance(inner, dict):
        raise ModelError(f"config.json needs an object as 'rope_parameters'; it has {short(inner)}")
    scaling = config.get("rope_scaling") or inner
    kind = scaling.get("rope_type", scaling.get("type")) if isinstance(scaling, dict) else scaling
    if kind not in (None, "default"):
        raise ModelError(
            f"the native network does not support this {family.name} config: rope_scaling of type "
            f"{short(kind)} (supported: none)"
        )
    stated = {**config, **inner}
    part = optional(stated, "partial_rotary_factor", 1.0, float)
    if not 0 < part <= 1:
        raise ModelError(f"config.json: partial_rotary_factor={part} must be above 0, at most 1")
    if part == 1:
        return float(required(stated, "rope_theta", float)), None
    heads = required(config, "num_attention_heads")
    size = optional(config, "head_dim", None) or required(config, "hidden_size") // max(heads, 1)
    return float(required(stated, "rope_theta", float)), int(size * part)


def _hidden(config: Config) -> int:
    """Inner width of the dense layers, if there are any."""
    names = ("intermediate_size", "dense_intermediate_size", "expert_intermediate_size")
    name = next((name for name in names if config.get(name) is not None), names[0])
    return int(required(config, name))


def _block(config: Config, family: Family) -> int | None:
    if family.block is None:
        return None
    for name in ("block_size", "bd_size", "block_length"):
        if config.get(name) is not None:
            return int(required(config, name))
    return family.block


def _experts(config: Config) -> Experts | None:
    count = "num_local_experts" if "num_local_experts" in config else "num_experts"
    if config.get(count) is None:
        return None
    sigmoid = "n_group" in config
    width = config.get("moe_intermediate_size", config.get("expert_intermediate_size"))
    hidden = required({"moe_intermediate_size": width}, "moe_intermediate_size")
    shared = optional(config, "num_shared_experts", 0) * hidden
    frequency = config.get("moe_layer_freq")
    if frequency is not None and (not isinstance(frequency, list) or set(frequency) - {0, 1}):
        raise ModelError(
            f"config.json: moe_layer_freq={short(frequency)} must be a list of 0 and 1"
        )
    dense = optional(config, "first_k_dense_replace", 0)
    if frequency:
        dense = frequency.index(1) if 1 in frequency else len(frequency)
        if 0 in frequency[dense:]:
            raise ModelError(
                "config.json: dense layers after mixtures of experts are not supported"
            )
    return build_experts(
        count=required(config, count),
        chosen=required(config, "num_experts_per_tok"),
        hidden=hidden,
        shared=shared or optional(config, "shared_expert_intermediate_size", 0),
        first_layer=dense,
        sigmoid=sigmoid,
        groups=optional(config, "n_group", 1),
        kept_groups=optional(config, "topk_group", 1),
        renormalised=sigmoid or _renormalised(config),
        scale=float(optional(config, "routed_scaling_factor", 1.0, float)),
    )


def _renormalised(config: Config) -> bool:
    """LLaDA-MoE's code never renormalises, whatever its config states; Qwen3's does as stated."""
    return "expert_intermediate_size" not in config and flag(config, "norm_topk_prob")


QWEN_ENDS = ("<|endoftext|>", "<|im_end|>")

DREAM = Family(
    "Dream", ("dream",), read, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|mask|>",), mask_id=151666, shift=True, qkv_bias=True, context=2048,
    examples="Dream 7B, Dream-Coder, DiffuCoder",
    parity="definition written out in tests/models/checkpoints.py",
    sampler="Dream's",
)  # fmt: skip
A2D_QWEN3 = Family(
    "A2D Qwen3", ("a2d-qwen3",), read, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|mask|>",), qk_norm=True,
    examples="Qwen3-0.6B-diffusion-mdlm", parity="Qwen3 of transformers, without causal mask",
    sampler="LLaDA's (mdlm), dllm's (bd3lm, prompts of whole blocks)",
)  # fmt: skip
A2D_QWEN2 = Family(
    "A2D Qwen2", ("a2d-qwen2",), read, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|mask|>",), qkv_bias=True,
    examples="Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm",
    parity="Qwen2 of transformers, without causal mask",
    sampler="LLaDA's (mdlm), dllm's (bd3lm, prompts of whole blocks)",
)  # fmt: skip
A2D_LLAMA = Family(
    "A2D Llama", ("a2d-llama",), read, LLAMA_NAMES, ("<|end_of_text|>", "<|eot_id|>"),
    mask_tokens=("<|mask|>",),
    examples="Llama-shaped conversions", parity="Llama of transformers, without causal mask",
    sampler="LLaDA's (mdlm), dllm's (bd3lm, prompts of whole blocks)",
)  # fmt: skip
SDAR = Family(
    "SDAR", ("sdar",), read, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|MASK|>",), mask_id=151669, block=4, qk_norm=True,
    examples="SDAR 1.7B–8B, TraDo", parity="Qwen3 of transformers, with a block mask",
    sampler="SDAR's",
)  # fmt: skip
SDAR_MOE = Family(
    "SDAR-MoE", ("sdar_moe",), read, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|MASK|>",), mask_id=151669, block=4, qk_norm=True,
    examples="SDAR 30B-A3B", parity="Qwen3-MoE of transformers, with a block mask",
    sampler="SDAR's",
)  # fmt: skip
FAST_DLLM_V2 = Family(
    "Fast-dLLM v2", ("fast_dllm_qwen", "fastdllmv2"), read, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("|<MASK>|", "<|mask|>"), mask_id=151665, block=32, shift=True, qkv_bias=True,
    architectures=("Fast_dLLM_QwenForCausalLM",),
    examples="Fast-dLLM v2 1.5B, 7B", parity="Qwen2 of transformers, with a block mask",
    sampler="Fast-dLLM v2's",
)  # fmt: skip
ILLADA = Family(
    "iLLaDA", ("illada",), read, LLAMA_NAMES, ("<|endoftext|>", "<|eot_id|>"),
    mask_tokens=("<[MASK]>",), mask_id=5,
    examples="iLLaDA-8B", parity="Llama of transformers, without causal mask", checked=False,
)  # fmt: skip
LLADA_MOE = Family(
    "LLaDA-MoE", ("lladamoe",), read, LLAMA_NAMES, ("<|endoftext|>", "<|role_end|>"),
    mask_tokens=("<|mask|>",), mask_id=156895, qk_norm=True, architectures=("LLaDAMoEModelLM",),
    examples="LLaDA-MoE-7B-A1B", parity="expected values of the authors' network",
)  # fmt: skip
LLADA2 = Family(
    "LLaDA2", ("llada2_moe", "llada21_moe"), read, LLADA2_NAMES,
    ("<|endoftext|>", "<|role_end|>"), mask_tokens=("<|mask|>",), mask_id=156895, block=32,
    qk_norm=True, architectures=("LLaDA2MoeModelLM",),
    examples="LLaDA2.0, LLaDA2.1 mini and flash", parity="expected values of the authors' network",
    sampler="LLaDA2's, with the edits of 2.1, on a dense network",
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    LLADA, DREAM, A2D_QWEN3, A2D_QWEN2, A2D_LLAMA, SDAR, SDAR_MOE, FAST_DLLM_V2, ILLADA, MMADA,
    LLADA_MOE, LLADA2,
)  # fmt: skip


def find_family(config: Config) -> Family | None:
    """The family a config.json belongs to: by architecture, else by model_type."""
    stated = config.get("architectures")
    for family in FAMILIES:
        if isinstance(stated, list) and set(family.architectures) & set(map(str, stated)):
            return family
    kind = str(config.get("model_type")).lower()
    if kind == "llada" and "d_model" not in config and "hidden_size" in config:
        return ILLADA  # says that it is a LLaDA, with the field names of transformers
    return next((family for family in FAMILIES if kind in family.model_types), None)
