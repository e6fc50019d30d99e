"""Every family of diffusion language models that the native network runs, one row each.

All are Llama-shaped: RMSNorm, rotary positions, grouped-query attention without a causal mask,
SwiGLU or a mixture of such. They differ in field names, tensor names, which positions a position
sees, and whether a position is predicted by its own features or by those of the one before. No
model's own code is run.

Block sizes, mask ids and trained contexts are those of the authors' code; config.json overrules
them where it states its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.family import (
    Config,
    Experts,
    Family,
    TensorNames,
    TransformerConfig,
    flag,
    integer,
    real,
    refuse_unless,
)
from s3dlm.models.rope import read_rope

LLADA_NAMES = TensorNames(
    embedding="model.transformer.wte.weight",
    norm="model.transformer.ln_f.weight",
    output="model.transformer.ff_out.weight",
    block="model.transformer.blocks.{index}.",
    attention_norm="attn_norm.weight",
    qkv=("q_proj", "k_proj", "v_proj"),
    out="attn_out.weight",
    feed_norm="ff_norm.weight",
    feed=("ff_proj.weight", "up_proj.weight", "ff_out.weight"),
)

LLAMA_NAMES = TensorNames(
    embedding="model.embed_tokens.weight",
    norm="model.norm.weight",
    output="lm_head.weight",
    block="model.layers.{index}.",
    attention_norm="input_layernorm.weight",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    out="self_attn.o_proj.weight",
    query_norm="self_attn.q_norm.weight",
    key_norm="self_attn.k_norm.weight",
    feed_norm="post_attention_layernorm.weight",
    feed=("mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"),
)

LLADA2_NAMES = replace(
    LLAMA_NAMES,
    embedding="model.word_embeddings.weight",
    qkv=("attention.query_key_value",),
    out="attention.dense.weight",
    query_norm="attention.query_layernorm.weight",
    key_norm="attention.key_layernorm.weight",
)

NEMOTRON_NAMES = replace(
    LLAMA_NAMES,
    embedding="encoder.embed_tokens.weight",
    norm="encoder.norm.weight",
    output="diffusion_head.weight",
    block="encoder.layers.{index}.",
)

# Options of config.json with what the network supports; the first value of each is the usual one.
LLADA_OPTIONS: dict[str, tuple[Any, ...]] = {
    "activation_type": ("silu",),
    "alibi": (False, None),
    "attention_layer_norm": (False, None),
    "bias_for_layer_norm": (False, None),
    "block_group_size": (1, None),
    "block_type": ("llama",),
    "include_bias": (False, None),
    "input_emb_norm": (False, None),
    "layer_norm_type": ("rms",),
    "multi_query_attention": (False, None),
    "rope": (True,),
    "rope_scaling": (None,),
    "scale_logits": (False, None),
}
LLAMA_OPTIONS: dict[str, tuple[Any, ...]] = {
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


def read_llada(config: Config, family: Family, mask_id: int) -> TransformerConfig:
    """config.json with LLaDA's field names, which are OLMo's."""
    refuse_unless(config, family.name, LLADA_OPTIONS)
    width, heads = integer(config, "d_model"), integer(config, "n_heads")
    hidden = integer(config, "mlp_hidden_size", default=None)
    return TransformerConfig(
        # MMaDA's number comes first: it counts image tokens.
        vocabulary=integer(config, "new_vocab_size", "embedding_size", "vocab_size"),
        text_vocabulary=integer(config, "llm_vocab_size", default=None),
        width=width,
        layers=integer(config, "n_layers"),
        heads=heads,
        key_value_heads=integer(config, "n_kv_heads", default=None) or heads,
        hidden=hidden or integer(config, "mlp_ratio") * width,
        mask_id=mask_id,
        context=integer(config, "max_sequence_length"),
        rope_theta=real(config, "rope_theta"),
        norm_epsilon=real(config, "rms_norm_eps", default=1e-5),
        qkv_bias=flag(config, "include_qkv_bias"),
        tied=flag(config, "weight_tying"),
        grid=integer(config, "grid_order", default=None),
    )


def read_llama(config: Config, family: Family, mask_id: int) -> TransformerConfig:
    """config.json with the field names of transformers."""
    bias = {"attention_bias": (True, False, None)}  # Qwen2 has it in any case
    options = LLAMA_OPTIONS | (bias if family.qkv_bias else {}) | dict(family.options)
    refuse_unless(config, family.name, options)
    theta, rope_width, yarn = read_rope(config, family.name)
    context = integer(config, "max_position_embeddings")
    heads = integer(config, "num_attention_heads")
    blocks = ("block_size", "bd_size", "block_length")
    inner = ("intermediate_size", "dense_intermediate_size", "expert_intermediate_size")
    return TransformerConfig(
        vocabulary=integer(config, "vocab_size"),
        width=integer(config, "hidden_size"),
        layers=integer(config, "num_hidden_layers"),
        heads=heads,
        key_value_heads=integer(config, "num_key_value_heads", default=None) or heads,
        head_width=integer(config, "head_dim", default=None),
        hidden=integer(config, *inner),
        mask_id=mask_id,
        context=context if family.context is None else min(context, family.context),
        rope_theta=theta,
        rope_width=rope_width,
        yarn=yarn,
        norm_epsilon=real(config, "rms_norm_eps", default=1e-6),
        qkv_bias=flag(config, "use_qkv_bias", default=family.qkv_bias),
        qk_norm=flag(config, "use_qk_norm", "qk_layernorm", default=family.qk_norm),
        tied=flag(config, "tie_word_embeddings"),
        causal_block=family.block and integer(config, *blocks, default=family.block),
        causal_prefix=family.causal_prefix,
        shift=family.shift,
        experts=_experts(config),
    )


def _experts(config: Config) -> Experts | None:
    count = integer(config, "num_local_experts", "num_experts", default=None)
    if count is None:
        return None
    hidden = integer(config, "moe_intermediate_size", "expert_intermediate_size")
    sigmoid = "n_group" in config
    return Experts(
        count=count,
        chosen=integer(config, "num_experts_per_tok"),
        hidden=hidden,
        shared=integer(config, "num_shared_experts", default=0) * hidden,
        first_layer=_first_mixture(config),
        sigmoid=sigmoid,
        groups=integer(config, "n_group", default=1),
        kept_groups=integer(config, "topk_group", default=1),
        # LLaDA-MoE's code never renormalises, whatever its config states; Qwen3's does as stated.
        renormalised=sigmoid
        or ("expert_intermediate_size" not in config and flag(config, "norm_topk_prob")),
        scale=real(config, "routed_scaling_factor", default=1.0),
    )


def _first_mixture(config: Config) -> int:
    """The first layer that is a mixture of experts; all after it must be, too."""
    mixtures = config.get("moe_layer_freq")
    if not mixtures:
        dense: int = integer(config, "first_k_dense_replace", default=0)
        return dense
    if not isinstance(mixtures, list) or any(value not in (0, 1) for value in mixtures):
        raise ModelError(
            f"config.json: moe_layer_freq={short_repr(mixtures)} must be a list of 0 and 1"
        )
    if mixtures != sorted(mixtures):
        raise ModelError("config.json: dense layers after mixtures of experts are not supported")
    return mixtures.count(0)


QWEN_ENDS = ("<|endoftext|>", "<|im_end|>")
LLADA_ENDS = ("<|endoftext|>", "<|eot_id|>")
ROLE_ENDS = ("<|endoftext|>", "<|role_end|>")

# tiny, sudoku9, LLaDA 8B, LLaDA 1.5
LLADA = Family(
    "LLaDA", ("llada", "llada_grid"), read_llada, LLADA_NAMES, LLADA_ENDS,
    mask_tokens=("<|mdm_mask|>",), mask_id=126336,
)  # fmt: skip
# MMaDA 8B Base, MixCoT; tensor names are assumed
MMADA = Family(
    "MMaDA (text)", ("mmada",), read_llada, LLADA_NAMES, LLADA_ENDS,
    mask_tokens=("<|mdm_mask|>",), mask_id=126336,
)  # fmt: skip
# Dream 7B, Dream-Coder, DiffuCoder
DREAM = Family(
    "Dream", ("dream",), read_llama, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|mask|>",), mask_id=151666, shift=True, qkv_bias=True, context=2048,
)  # fmt: skip
# Qwen3-0.6B-diffusion-mdlm
A2D_QWEN3 = Family(
    "A2D Qwen3", ("a2d-qwen3",), read_llama, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|mask|>",), qk_norm=True,
)  # fmt: skip
# Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm
A2D_QWEN2 = Family(
    "A2D Qwen2", ("a2d-qwen2",), read_llama, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|mask|>",), qkv_bias=True,
)  # fmt: skip
A2D_LLAMA = Family(
    "A2D Llama", ("a2d-llama",), read_llama, LLAMA_NAMES, ("<|end_of_text|>", "<|eot_id|>"),
    mask_tokens=("<|mask|>",),
)  # fmt: skip
# SDAR 1.7B to 8B, TraDo
SDAR = Family(
    "SDAR", ("sdar",), read_llama, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("<|MASK|>",), mask_id=151669, block=4, qk_norm=True,
)  # fmt: skip
# SDAR 30B-A3B
SDAR_MOE = replace(SDAR, name="SDAR-MoE", model_types=("sdar_moe",))
# Fast-dLLM v2 1.5B, 7B
FAST_DLLM_V2 = Family(
    "Fast-dLLM v2", ("fast_dllm_qwen", "fastdllmv2"), read_llama, LLAMA_NAMES, QWEN_ENDS,
    mask_tokens=("|<MASK>|", "<|mask|>"), mask_id=151665, block=32, shift=True, qkv_bias=True,
    architectures=("Fast_dLLM_QwenForCausalLM",),
)  # fmt: skip
# iLLaDA-8B; tensor names are assumed
ILLADA = Family(
    "iLLaDA", ("illada",), read_llama, LLAMA_NAMES, LLADA_ENDS,
    mask_tokens=("<[MASK]>",), mask_id=5,
)  # fmt: skip
# LLaDA-MoE-7B-A1B
LLADA_MOE = Family(
    "LLaDA-MoE", ("lladamoe",), read_llama, LLAMA_NAMES, ROLE_ENDS,
    mask_tokens=("<|mask|>",), mask_id=156895, qk_norm=True, architectures=("LLaDAMoEModelLM",),
)  # fmt: skip
# LLaDA2.0, LLaDA2.1 mini and flash
LLADA2 = Family(
    "LLaDA2", ("llada2_moe", "llada21_moe"), read_llama, LLADA2_NAMES, ROLE_ENDS,
    mask_tokens=("<|mask|>",), mask_id=156895, block=32, qk_norm=True,
    architectures=("LLaDA2MoeModelLM",),
)  # fmt: skip
# Nemotron-Labs-Diffusion 3B, 8B, 14B; tensor names are assumed
NEMOTRON = Family(
    "Nemotron-Labs-Diffusion", ("nemotron_labs_diffusion",), read_llama, NEMOTRON_NAMES,
    ("</s>", "<|im_end|>"), options=(("sliding_window", (None,)),), mask_id=100, block=32,
    causal_prefix=True,
)  # fmt: skip

FAMILIES: tuple[Family, ...] = (
    LLADA, DREAM, A2D_QWEN3, A2D_QWEN2, A2D_LLAMA, SDAR, SDAR_MOE, FAST_DLLM_V2, ILLADA, MMADA,
    LLADA_MOE, LLADA2, NEMOTRON,
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
