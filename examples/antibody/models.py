"""Two pretrained antibody models from PyPI, as folders that `s3dlm.load` reads.

Both are masked language models with one token per residue. Their packages hold pickles, which are
read as plain tensors and written as safetensors; none of the packages' code is run. An antibody is
written as one line with `_` where the loop is missing: `between` makes the loop stand there.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

import s3dlm

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
HOLE = "_"


def sapiens(folder: Path) -> Path:
    """Sapiens for heavy chains (Prihoda et al. 2022): a RoBERTa of fairseq, 0.57 M parameters."""
    path = distribution("sapiens").locate_file("sapiens/models/v1/checkpoint_vh.pt")
    with torch.serialization.safe_globals([argparse.Namespace]):
        stored = torch.load(path, map_location="cpu", weights_only=True)["model"]
    weights = {_as_roberta(name): tensor for name, tensor in stored.items()}
    weights["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, 128)
    weights["lm_head.decoder.bias"] = weights["lm_head.bias"].clone()
    config = {
        "model_type": "roberta", "vocab_size": 25, "hidden_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 8, "intermediate_size": 256, "max_position_embeddings": 146,
        "type_vocab_size": 1, "layer_norm_eps": 1e-5, "bos_token_id": 0, "pad_token_id": 1,
        "eos_token_id": 2, "tie_word_embeddings": False,
    }  # fmt: skip
    return _write(folder, config, weights, ["<s>", "<pad>", "</s>", "<unk>", *RESIDUES, "<mask>"])


def antiberty(folder: Path) -> Path:
    """AntiBERTy (Ruffolo et al. 2021): a BERT of 26 M parameters."""
    path = Path(distribution("antiberty").locate_file("antiberty/trained_models"))
    source = path / "AntiBERTy_md_smooth"
    stored = torch.load(source / "pytorch_model.bin", map_location="cpu", weights_only=True)
    weights = {
        name: tensor
        for name, tensor in stored.items()
        if name.startswith(("bert.embeddings.", "bert.encoder.", "cls.predictions."))
        and name != "bert.embeddings.position_ids"
    }
    config = json.loads((source / "config.json").read_text())
    config = {**config, "architectures": ["BertForMaskedLM"], "tie_word_embeddings": False}
    return _write(folder, config, weights, (path / "vocab.txt").read_text().split())


FROM_PYPI = {"sapiens": sapiens, "antiberty": antiberty}


def load(name: str, cache: Path) -> s3dlm.Model:
    """One of the two, converted once; it fills the hole of a chain."""
    folder = cache / name
    if not (folder / "config.json").is_file():
        FROM_PYPI[name](folder)
    return between(s3dlm.load(str(folder), device="cpu"))


def _as_roberta(name: str) -> str:
    """A tensor of fairseq under its name in transformers."""
    for old, new in (
        ("decoder.sentence_encoder.embed_tokens", "roberta.embeddings.word_embeddings"),
        ("decoder.sentence_encoder.embed_positions", "roberta.embeddings.position_embeddings"),
        ("decoder.sentence_encoder.emb_layer_norm", "roberta.embeddings.LayerNorm"),
        ("decoder.sentence_encoder.layers", "roberta.encoder.layer"),
        ("self_attn.q_proj", "attention.self.query"),
        ("self_attn.k_proj", "attention.self.key"),
        ("self_attn.v_proj", "attention.self.value"),
        ("self_attn.out_proj", "attention.output.dense"),
        ("self_attn_layer_norm", "attention.output.LayerNorm"),
        ("fc1", "intermediate.dense"),
        ("fc2", "output.dense"),
        ("final_layer_norm", "output.LayerNorm"),
        ("decoder.lm_head.weight", "lm_head.decoder.weight"),
        ("decoder.lm_head", "lm_head"),
    ):
        name = name.replace(old, new)
    return name


def _write(folder: Path, config: Any, weights: dict[str, Tensor], vocabulary: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: tensor.clone() for name, tensor in weights.items()}  # tied tensors share memory
    save_file(own, folder / "model.safetensors")
    special = [token for token in vocabulary if len(token) > 1]
    names = {token.strip("<[]>").lower(): token for token in special}
    first, last = names.get("s", "[CLS]"), names.get("/s", "[SEP]")
    inner = Tokenizer(
        models.WordLevel({token: i for i, token in enumerate(vocabulary)}, unk_token=names["unk"])
    )
    inner.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token=first, eos_token=last, unk_token=names["unk"],
        mask_token=names["mask"], pad_token=names["pad"],
    )  # fmt: skip
    tokenizer.chat_template = first + "{{ messages[0].content }}" + last
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def between(model: s3dlm.Model) -> s3dlm.Model:
    """The model with its answer at the hole of the prompt, and residues only."""
    return replace(model, denoiser=Between(model), end_ids=frozenset())


class Between(s3dlm.Denoiser):
    """Rows come as chain with a hole, then loop; the network sees the loop in the hole."""

    def __init__(self, model: s3dlm.Model) -> None:
        self.inner = model.denoiser
        self.mask_id, self.vocabulary = self.inner.mask_id, self.inner.vocabulary
        self.context = self.inner.context + 1  # the hole itself is no token
        (self.hole,) = model.tokenizer.encode(HOLE)
        (self.last,) = model.end_ids
        residues = model.tokenizer.encode(RESIDUES)
        self.other = [i for i in range(self.vocabulary) if i not in residues]

    def encode(self, tokens: Tensor, keys: Tensor | None = None) -> Tensor:
        keys = torch.ones_like(tokens, dtype=torch.bool) if keys is None else keys
        order = self._order(tokens, keys)
        logits = self.inner.encode(tokens.gather(1, order)[:, :-1], keys[:, 1:])
        index = order[:, :-1, None].expand_as(logits)
        return logits.new_zeros(*tokens.shape, self.vocabulary).scatter(1, index, logits)

    def head(self, features: Tensor) -> Tensor:
        return features.index_fill(1, torch.tensor(self.other), -torch.inf)

    def _order(self, tokens: Tensor, keys: Tensor) -> Tensor:
        """Which position of a row the network sees first, second, …; the hole goes last."""
        place = torch.arange(tokens.shape[1]).expand_as(tokens)
        hole = (tokens == self.hole).int().argmax(1, keepdim=True)
        last = (tokens == self.last).int().argmax(1, keepdim=True)
        group = 2 * ((place > hole) & (place <= last)) + (place > last)
        group = torch.where(keys, group, 3).masked_fill(place == hole, 4)
        return group.argsort(dim=1, stable=True)
