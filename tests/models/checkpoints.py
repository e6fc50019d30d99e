"""Small random checkpoints; the names and shapes of those with experts are written out, since their logits are
compared with stored ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from s3dlm.models.checkpoint import layout
from s3dlm.models.families import LLADA as FAMILY
from s3dlm.models.families import LLADA_NAMES, read_llada

Shapes = dict[str, tuple[int, ...]]

LLADA: dict[str, Any] = {
    "model_type": "llada", "architectures": ["LLaDAModelLM"],
    "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"},
    "d_model": 32, "n_heads": 4, "n_kv_heads": 4, "n_layers": 2, "mlp_hidden_size": 48,
    "mlp_ratio": 4, "rope_theta": 500000.0, "max_sequence_length": 64, "vocab_size": 300,
    "embedding_size": 320, "weight_tying": False, "rms_norm_eps": 1e-5, "include_bias": False,
    "include_qkv_bias": False, "block_type": "llama", "layer_norm_type": "rms",
    "activation_type": "silu", "rope": True, "alibi": False, "mask_token_id": 259,
    "eos_token_id": 257,
}  # fmt: skip

_LLAMA: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_scaling": None, "tie_word_embeddings": False, "eos_token_id": 257,
}  # fmt: skip

LLADA_MOE: dict[str, Any] = _LLAMA | {
    "model_type": "llada", "architectures": ["LLaDAMoEModelLM"], "vocab_size": 301,
    "dense_intermediate_size": 48, "expert_intermediate_size": 24,
    "shared_expert_intermediate_size": None, "num_hidden_layers": 3, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "partial_rotary_factor": 1,
    "attention_bias": False, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": None,
    "qk_layernorm": True, "moe_layer_freq": [0, 1, 1], "moe_router_enable_expert_bias": False,
    "moe_router_score_function": "softmax", "routed_scaling_factor": 1, "router_num_group": None,
    "router_topk_group": None, "pad_token_id": 1,
}  # fmt: skip

LLADA2: dict[str, Any] = _LLAMA | {
    "model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"], "vocab_size": 301,
    "intermediate_size": 48, "num_hidden_layers": 3, "head_dim": 16, "use_qkv_bias": False,
    "use_qk_norm": True, "use_bias": False, "max_position_embeddings": 64, "rope_theta": 600000.0,
    "partial_rotary_factor": 0.5, "use_sliding_window": False, "num_experts": 16,
    "num_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
    "routed_scaling_factor": 2.5, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
    "norm_topk_prob": True, "pad_token_id": 1,
}  # fmt: skip

SPECIAL = {256: "<|startoftext|>", 257: "<|endoftext|>", 258: "<|eot_id|>", 259: "<|mdm_mask|>"}
TEMPLATE = (
    "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "[{{ message['role'] }}] {{ message['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def llada_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    slots = layout(read_llada(config, FAMILY, config["mask_token_id"]), LLADA_NAMES)
    return random_tensors({name: slot.shape for name, slot in slots.items()}, seed)


def moe_tensors(config: dict[str, Any]) -> dict[str, Tensor]:
    """LLaDA-MoE and LLaDA2, each under the names that its checkpoints have, in the order of old: the
    expected values belong to these very numbers."""
    width, fused = config["hidden_size"], config["model_type"] == "llada2_moe"
    size = config.get("head_dim") or width // config["num_attention_heads"]
    queries, keys = (size * config[f"num_{part}_heads"] for part in ("attention", "key_value"))
    table = "model.word_embeddings.weight" if fused else "model.embed_tokens.weight"
    shapes: Shapes = {table: (config["vocab_size"], width)}
    for index in range(config["num_hidden_layers"]):
        attention = {
            "attention.query_key_value": (queries + 2 * keys, width),
            "attention.query_layernorm": (size,), "attention.key_layernorm": (size,),
            "attention.dense": (width, queries),
        } if fused else {
            "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries),
            "self_attn.q_norm": (size,), "self_attn.k_norm": (size,),
        }  # fmt: skip
        norms: Shapes = {
            "input_layernorm": (width,),
            **attention,
            "post_attention_layernorm": (width,),
        }
        layer = f"model.layers.{index}."
        shapes |= {f"{layer}{name}.weight": shape for name, shape in norms.items()}
        shapes |= _feeds(config, layer, index)
    shapes |= {"model.norm.weight": (width,), "lm_head.weight": (config["vocab_size"], width)}
    return random_tensors(shapes, 0)


def _feeds(config: dict[str, Any], layer: str, index: int) -> Shapes:
    """The feed-forward part of a layer: dense, or a mixture of experts."""
    width, dense = config["hidden_size"], config.get("first_k_dense_replace", 0)
    mixture = config.get("moe_layer_freq", [0] * dense + [1] * 9)[index]

    def feed(prefix: str, hidden: int) -> Shapes:
        shapes = {f"{prefix}{name}_proj.weight": (hidden, width) for name in ("gate", "up")}
        return {**shapes, f"{prefix}down_proj.weight": (width, hidden)}

    if "num_experts" not in config or not mixture:
        hidden = config.get("intermediate_size") or config["dense_intermediate_size"]
        return feed(f"{layer}mlp.", hidden)
    hidden = config.get("moe_intermediate_size") or config["expert_intermediate_size"]
    shapes: Shapes = {f"{layer}mlp.gate.weight": (config["num_experts"], width)}
    if "n_group" in config:
        shapes[f"{layer}mlp.gate.expert_bias"] = (config["num_experts"],)
    for expert in range(config["num_experts"]):
        shapes |= feed(f"{layer}mlp.experts.{expert}.", hidden)
    if "num_shared_experts" in config:
        shapes |= feed(f"{layer}mlp.shared_experts.", config["num_shared_experts"] * hidden)
    if config.get("shared_expert_intermediate_size"):
        shapes |= feed(f"{layer}shared_expert.", config["shared_expert_intermediate_size"])
    return shapes


def random_tensors(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        norm = len(shape) == 1 and not name.endswith("bias")
        tensors[name] = 1 + noise / 10 if norm else noise / math.sqrt(shape[-1])
    return tensors


def write_folder(
    folder: Path,
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    shards: int = 1,
    template: str | None = TEMPLATE,
) -> Path:
    """A model folder as the hub has them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, template)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    where = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[shard::shards]}
        save_file(part, folder / name)
        where |= dict.fromkeys(part, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return folder


def edit_json(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file; None removes one."""
    stated = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: stated[name] for name in stated if stated[name] is not None}))


def byte_vocabulary() -> dict[str, int]:
    return {byte: i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}


def write_tokenizer(folder: Path, template: str | None) -> None:
    """Bytes, and the special tokens after them."""
    tokenizer = Tokenizer(models.BPE(vocab=byte_vocabulary(), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    data = json.loads(tokenizer.to_str())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"] = [
        {"id": i, "content": text, "special": True} | flags for i, text in sorted(SPECIAL.items())
    ]
    (folder / "tokenizer.json").write_text(json.dumps(data))
    stated: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|startoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mdm_mask|>",
        "model_max_length": 64,
    }
    if template is not None:
        stated["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
