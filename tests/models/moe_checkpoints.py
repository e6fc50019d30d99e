"""Small random checkpoints of the two mixtures of experts, under the names that theirs have."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from tests.models.checkpoints import random_tensors

Shapes = dict[str, tuple[int, ...]]

LLADA_MOE: dict[str, Any] = {
    "model_type": "llada",
    "architectures": ["LLaDAMoEModelLM"],
    "vocab_size": 301,
    "hidden_size": 32,
    "dense_intermediate_size": 48,
    "expert_intermediate_size": 24,
    "shared_expert_intermediate_size": None,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_theta": 50000.0,
    "partial_rotary_factor": 1,
    "rope_scaling": None,
    "attention_bias": False,
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "norm_topk_prob": None,
    "qk_layernorm": True,
    "moe_layer_freq": [0, 1, 1],
    "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax",
    "routed_scaling_factor": 1,
    "router_num_group": None,
    "router_topk_group": None,
    "pad_token_id": 1,
    "eos_token_id": 257,
}

LLADA2: dict[str, Any] = {
    "model_type": "llada2_moe",
    "architectures": ["LLaDA2MoeModelLM"],
    "vocab_size": 301,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "use_qkv_bias": False,
    "use_qk_norm": True,
    "use_bias": False,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "rope_theta": 600000.0,
    "partial_rotary_factor": 0.5,
    "rope_scaling": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "num_experts": 16,
    "num_shared_experts": 1,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "pad_token_id": 1,
    "eos_token_id": 257,
}


def llada_moe_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    width = config["hidden_size"]
    size = width // config["num_attention_heads"]
    queries, keys = width, size * config["num_key_value_heads"]
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        shapes[f"{layer}input_layernorm.weight"] = (width,)
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            shapes[f"{layer}self_attn.{name}.weight"] = (rows, width)
        shapes[f"{layer}self_attn.o_proj.weight"] = (width, queries)
        for name in ("q_norm", "k_norm"):
            shapes[f"{layer}self_attn.{name}.weight"] = (size,)
        shapes[f"{layer}post_attention_layernorm.weight"] = (width,)
        if not config["moe_layer_freq"][index]:
            shapes |= _feed(f"{layer}mlp.", config["dense_intermediate_size"], width)
            continue
        shapes[f"{layer}mlp.gate.weight"] = (config["num_experts"], width)
        for expert in range(config["num_experts"]):
            hidden = config["expert_intermediate_size"]
            shapes |= _feed(f"{layer}mlp.experts.{expert}.", hidden, width)
        if config["shared_expert_intermediate_size"]:
            hidden = config["shared_expert_intermediate_size"]
            shapes |= _feed(f"{layer}shared_expert.", hidden, width)
    shapes["model.norm.weight"] = (width,)
    shapes["lm_head.weight"] = (config["vocab_size"], width)
    return random_tensors(shapes, seed)


def llada2_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    width, size, hidden = config["hidden_size"], config["head_dim"], config["moe_intermediate_size"]
    heads, few = config["num_attention_heads"], config["num_key_value_heads"]
    shapes: Shapes = {"model.word_embeddings.weight": (config["vocab_size"], width)}
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        shapes[f"{layer}input_layernorm.weight"] = (width,)
        shapes[f"{layer}attention.query_key_value.weight"] = ((heads + 2 * few) * size, width)
        for name in ("query_layernorm", "key_layernorm"):
            shapes[f"{layer}attention.{name}.weight"] = (size,)
        shapes[f"{layer}attention.dense.weight"] = (width, heads * size)
        shapes[f"{layer}post_attention_layernorm.weight"] = (width,)
        if index < config["first_k_dense_replace"]:
            shapes |= _feed(f"{layer}mlp.", config["intermediate_size"], width)
            continue
        shapes[f"{layer}mlp.gate.weight"] = (config["num_experts"], width)
        shapes[f"{layer}mlp.gate.expert_bias"] = (config["num_experts"],)
        for expert in range(config["num_experts"]):
            shapes |= _feed(f"{layer}mlp.experts.{expert}.", hidden, width)
        shared = config["num_shared_experts"] * hidden
        shapes |= _feed(f"{layer}mlp.shared_experts.", shared, width)
    shapes["model.norm.weight"] = (width,)
    shapes["lm_head.weight"] = (config["vocab_size"], width)
    return random_tensors(shapes, seed)


def _feed(prefix: str, hidden: int, width: int) -> Shapes:
    return {
        f"{prefix}gate_proj.weight": (hidden, width),
        f"{prefix}up_proj.weight": (hidden, width),
        f"{prefix}down_proj.weight": (width, hidden),
    }
