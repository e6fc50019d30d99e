"""Small random checkpoints."""

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

SPECIAL = {256: "<|startoftext|>", 257: "<|endoftext|>", 258: "<|eot_id|>", 259: "<|mdm_mask|>"}
TEMPLATE = (
    "{% for message in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "[{{ message['role'] }}] {{ message['content'] }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def llada_tensors(config: dict[str, Any], seed: int = 0) -> dict[str, Tensor]:
    """Random weights, near one where a tensor scales, under the names that its files have."""
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, slot in layout(read_llada(config, FAMILY, 259), LLADA_NAMES).items():
        noise = torch.randn(slot.shape, generator=generator)
        norm = len(slot.shape) == 1 and not name.endswith("bias")
        tensors[name] = 1 + noise / 10 if norm else noise / math.sqrt(slot.shape[-1])
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
