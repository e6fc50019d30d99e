"""The native families as networks of transformers with random weights: what our logits must be."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
import transformers
from torch import Tensor

from s3dlm.models.base import Model
from s3dlm.models.registry import load
from tests.fakes import ByteTokenizer
from tests.models.checkpoints import LLADA, write_folder

SMALL: dict[str, Any] = {
    "vocab_size": 301,  # odd on purpose
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "rms_norm_eps": 1e-6,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": 257,
}
LLADA_NAMES = {
    "model.embed_tokens": "model.transformer.wte", "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out", "model.layers": "model.transformer.blocks",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ff_norm",
    "self_attn.o_proj": "attn_out", "self_attn.": "", "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A configuration of a family."""

    stated: dict[str, Any]  # what config.json says beside the network's shape
    kind: str  # the network of transformers
    options: dict[str, Any] = field(default_factory=dict)  # its shape
    block: int | None = None  # no position sees what is behind its own block
    shift: bool = False
    names: dict[str, str] = field(default_factory=dict)  # parts of the tensors' names, renamed


def _llada(changes: dict[str, Any] | None = None, kind: str = "Llama", **options: Any) -> Case:
    shape = {"vocab_size": 320, "num_key_value_heads": 4, "rms_norm_eps": 1e-5}
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}
    return Case(LLADA | (changes or {}), kind, shape | rope | options, names=LLADA_NAMES)


def _dream(**options: Any) -> Case:
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}
    stated = {"model_type": "Dream", "architectures": ["DreamModel"]}
    stated |= {"auto_map": {"AutoModel": "modeling_dream.DreamModel"}}
    return Case(stated, "Qwen2", rope | {"max_position_embeddings": 131072} | options, shift=True)


def _yarn(**more: Any) -> dict[str, Any]:
    rope = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}
    return {"rope_parameters": rope | {"original_max_position_embeddings": 32} | more}


# LLaDA-MoE and LLaDA2 under the names that their own config.json and tensors have.
_LLAMA: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
    "vocab_size": 301, "num_hidden_layers": 3, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
    "rope_scaling": None, "tie_word_embeddings": False, "eos_token_id": 257,
}  # fmt: skip


def _llada_moe() -> Case:
    stated = _LLAMA | {
        "model_type": "llada", "architectures": ["LLaDAMoEModelLM"], "rope_theta": 50000.0,
        "dense_intermediate_size": 48, "expert_intermediate_size": 24, "num_experts": 6,
        "num_experts_per_tok": 3, "moe_layer_freq": [0, 1, 1], "norm_topk_prob": True, "qk_layernorm": True,
        "shared_expert_intermediate_size": None, "partial_rotary_factor": 1, "attention_bias": False,
    }  # fmt: skip
    shape = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "head_dim": 8}
    shape |= {"mlp_only_layers": [0], "num_hidden_layers": 3}
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 50000.0}}
    # Its code never makes the weights of the chosen experts add up to one, whatever is stated.
    return Case(stated, "Qwen3Moe", shape | rope | {"norm_topk_prob": False})


def _llada2(block: int, shared: int, groups: int, kept: int) -> Case:
    router = {"n_group": groups, "topk_group": kept, "num_experts_per_tok": 4}
    router |= {"routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "norm_topk_prob": True}
    stated = _LLAMA | router | {
        "model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"], "intermediate_size": 48,
        "head_dim": 16, "use_qkv_bias": False, "use_qk_norm": True, "use_bias": False, "num_experts": 16,
        "num_shared_experts": shared, "moe_intermediate_size": 24, "rope_theta": 600000.0,
        "partial_rotary_factor": 0.5, "use_sliding_window": False, "block_size": block,
    }  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 600000.0, "partial_rotary_factor": 0.5}
    shape = {
        "head_dim": 16,
        "use_qk_norm": True,
        "n_routed_experts": 16,
        "n_shared_experts": shared,
    }
    shape |= {"moe_intermediate_size": 24, "num_hidden_layers": 3, "rope_parameters": rope}
    names = {
        "embed_tokens": "word_embeddings", "self_attn.o_proj": "attention.dense",
        "self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm",
        "self_attn.qkv": "attention.query_key_value", "e_score_correction_bias": "expert_bias",
    }  # fmt: skip
    return Case(stated, "Glm4Moe", router | shape, block, names=names)


_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
_EXPERTS |= {"head_dim": 16, "norm_topk_prob": True}
_FAST = {"model_type": "Fast_dLLM_Qwen"}
CASES = {
    "llada": _llada(),
    "llada, grouped": _llada({"n_kv_heads": 2}, num_key_value_heads=2),
    "llada, bias": _llada({"include_qkv_bias": True}, "Qwen2"),
    "llada, tied": _llada({"weight_tying": True}, tie_word_embeddings=True),
    "mmada": _llada({"model_type": "mmada", "new_vocab_size": 320, "llm_vocab_size": 262}),
    "dream": _dream(),
    "dream, one key head": _dream(num_key_value_heads=1),
    "dream, tied": _dream(tie_word_embeddings=True),
    "a2d-qwen3": Case({"model_type": "a2d-qwen3"}, "Qwen3", {"head_dim": 16}),
    "a2d-qwen3, tied": Case({"model_type": "a2d-qwen3"}, "Qwen3", {"head_dim": 8, "tie_word_embeddings": True}),
    "a2d-qwen2": Case({"model_type": "a2d-qwen2"}, "Qwen2"),
    "a2d-llama": Case({"model_type": "a2d-llama"}, "Llama"),
    "a2d-llama, yarn": Case({"model_type": "a2d-llama"}, "Llama", _yarn()),
    "sdar": Case({"model_type": "sdar", "block_size": 4}, "Qwen3", {"head_dim": 16}, 4),
    "sdar, 16": Case({"model_type": "sdar", "block_size": 16}, "Qwen3", {"head_dim": 8}, 16),
    "sdar_moe": Case({"model_type": "sdar_moe", "block_size": 4}, "Qwen3Moe", _EXPERTS, 4),
    "llada_moe": _llada_moe(),
    "llada2": _llada2(8, shared=1, groups=4, kept=2),
    "llada2, two shared experts": _llada2(4, shared=2, groups=2, kept=1),
    "illada": Case({"model_type": "illada"}, "Llama", {"tie_word_embeddings": True}),
    "fast-dllm v2": Case(_FAST | {"architectures": ["Fast_dLLM_QwenForCausalLM"]}, "Qwen2", {}, 32, True),
    "fast-dllm v2, 8": Case(_FAST | {"bd_size": 8}, "Qwen2", {}, 8, True),
}  # fmt: skip
YARN: dict[str, Any] = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 24,
    "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.3,
}  # fmt: skip


def _nemotron(block: int, **rope: Any) -> Case:
    shape = {"max_position_embeddings": 192, "head_dim": 16, "rope_parameters": YARN | rope}
    stated = {"model_type": "nemotron_labs_diffusion", "block_size": block}
    names = {"model.": "encoder.", "lm_head.": "diffusion_head."}
    return Case(stated, "Ministral3", shape, block, names=names)


# What is before the open block is read causally: these are never run on whole rows.
CAUSAL_PREFIX = {
    "nemotron": _nemotron(8),
    "nemotron, 32": _nemotron(32, mscale=2.0, factor=4.0),
    "nemotron, queries alone": _nemotron(8, rope_type="default"),
}
EVERY = CASES | CAUSAL_PREFIX


@cache
def reference(case: str) -> Any:
    """The network of transformers with random weights."""
    kind = EVERY[case].kind
    config = getattr(transformers, f"{kind}Config")(**SMALL | EVERY[case].options)
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    network = getattr(transformers, f"{kind}ForCausalLM")(config).eval().requires_grad_(False)
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0.0, 0.15)
        else:
            parameter.uniform_(0.5, 1.5)
    for name, buffer in network.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.normal_(0.0, 0.2)
    return network


def stored(case: str) -> dict[str, Tensor]:
    """Its tensors as published checkpoints name them: each expert by itself."""
    network = reference(case)
    tensors = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    if network.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    for name in [name for name in tensors if name.endswith("experts.gate_up_proj")]:
        prefix = name.removesuffix("gate_up_proj")
        down = tensors.pop(f"{prefix}down_proj")
        for expert, both in enumerate(tensors.pop(name)):
            gate, up = both.chunk(2)
            tensors[f"{prefix}{expert}.gate_proj.weight"] = gate.clone()
            tensors[f"{prefix}{expert}.up_proj.weight"] = up.clone()
            tensors[f"{prefix}{expert}.down_proj.weight"] = down[expert].clone()

    if "self_attn.qkv" in EVERY[case].names:
        for name in [name for name in tensors if name.endswith("q_proj.weight")]:
            parts = [tensors.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
            tensors[name.replace("q_proj", "qkv")] = torch.cat(parts)

    def renamed(name: str) -> str:
        for ours, theirs in EVERY[case].names.items():
            name = name.replace(ours, theirs)
        return name

    return {renamed(name): tensor for name, tensor in tensors.items()}


def folder_of(case: str, folder: Path, shards: int = 1) -> Path:
    """Its checkpoint."""
    whole = {"d_model", "hidden_size"} & EVERY[case].stated.keys()
    config = {} if whole else reference(case).config.to_dict()
    config.pop("layer_types", None)
    config = json.loads(json.dumps(config, default=str)) | EVERY[case].stated
    return write_folder(folder, config | {"mask_token_id": 259}, stored(case), shards=shards)


@cache
def loaded(case: str, block: int | None = None) -> Model:
    """Our model of it."""
    return load(str(folder_of(case, Path(mkdtemp()) / "model", shards=2)), block=block)


@cache
def in_bytes(case: str, block: int | None = None) -> Model:
    """Our model of it, which talks in bytes."""
    model = loaded(case, block)
    return dataclasses.replace(model, tokenizer=ByteTokenizer(), end_ids=frozenset())


@torch.no_grad()
def attending(network: Any, row: list[int], hidden: Tensor) -> Tensor:
    """Its logits (length, vocabulary) of a row in which some positions do not see some others."""
    mask = torch.zeros(1, 1, len(row), len(row)).masked_fill(hidden, -torch.inf)
    logits: Tensor = network(input_ids=torch.tensor([row]), attention_mask=mask).logits[0]
    return logits


def expected(case: str, row: list[int]) -> Tensor:
    """Logits (length, vocabulary) of the reference with the family's attention and shift."""
    block = torch.arange(len(row)) // (EVERY[case].block or len(row))
    logits = attending(reference(case), row, block[:, None] < block[None, :])
    return torch.cat((logits[:1], logits[:-1])) if EVERY[case].shift else logits
