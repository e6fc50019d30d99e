"""Models that are not native: any function to logits, and what transformers loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from s3dlm.errors import ModelError
from s3dlm.models.base import Denoiser
from s3dlm.models.hf import LogitsModel
from s3dlm.models.registry import load
from tests.models.checkpoints import write_tokenizer

CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel


class FixedConfig(PretrainedConfig):
    model_type = "fixed"

    def __init__(self, vocab_size=300, mask_token_id=259, **other):
        self.vocab_size, self.mask_token_id = vocab_size, mask_token_id
        super().__init__(**other)


class FixedModel(PreTrainedModel):
    config_class = FixedConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        return (self.table(input_ids),)
"""


def sums(tokens: torch.Tensor) -> torch.Tensor:
    """Logits that hear every token of the row, so that padding cannot hide."""
    total = tokens.sum(1, keepdim=True).expand_as(tokens)
    return torch.stack((total, tokens), -1).float()


def test_a_function_to_logits_is_a_denoiser() -> None:
    model = LogitsModel(sums, mask_id=1, vocabulary=2, context=8)
    assert isinstance(model, Denoiser)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    assert torch.equal(model.head(model.encode(tokens)[0]), sums(tokens)[0])


def test_a_function_never_hears_padding() -> None:
    model = LogitsModel(sums, mask_id=1, vocabulary=2, context=8)
    tokens = torch.tensor([[1, 2, 7], [4, 5, 6], [3, 7, 7], [2, 2, 7]])
    keys = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    features = model.encode(tokens, keys)
    for row, length in enumerate(keys.sum(1).tolist()):
        assert torch.equal(features[row, :length], sums(tokens[row : row + 1, :length])[0])


def bert(folder: Path) -> transformers.BertForMaskedLM:
    config = transformers.BertConfig(
        vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip
    inner = transformers.BertForMaskedLM(config).eval()
    inner.save_pretrained(folder)
    write_tokenizer(folder, None)
    return inner


def test_whatever_transformers_loads_is_a_denoiser(tmp_path: Path) -> None:
    inner = bert(tmp_path)
    model = load(str(tmp_path))
    assert isinstance(model.denoiser, Denoiser)
    stated = (model.denoiser.mask_id, model.denoiser.vocabulary, model.denoiser.context)
    assert stated == (259, 300, 64)
    row = torch.tensor([[5, 6, 259, 7]])
    with torch.inference_mode():
        expected = inner(input_ids=row).logits
        assert torch.allclose(model.denoiser.encode(row), expected, atol=1e-5)
        padded = torch.tensor([[5, 6, 259, 7, 8, 8]])
        features = model.denoiser.encode(padded, torch.tensor([[1, 1, 1, 1, 0, 0]]).bool())
        assert torch.allclose(model.denoiser.head(features[:, :4]), expected, atol=1e-5)


def test_pickled_weights_are_refused_here_too(tmp_path: Path) -> None:
    inner = bert(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(inner.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights"):
        load(str(tmp_path))


def foreign(folder: Path) -> torch.Tensor:
    from safetensors.torch import save_file

    table = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    save_file({"table.weight": table}, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "modeling_fixed.py").write_text(CODE)
    names = {"AutoConfig": "modeling_fixed.FixedConfig", "AutoModel": "modeling_fixed.FixedModel"}
    config = {"model_type": "fixed", "auto_map": names, "vocab_size": 300, "mask_token_id": 259}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder, None)
    return table


def test_foreign_code_runs_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    folder = tmp_path / "fixed"
    folder.mkdir()
    table = foreign(folder)
    with pytest.raises(ModelError, match="trust_remote_code=True"):
        load(str(folder))
    model = load(str(folder), trust_remote_code=True)
    assert torch.equal(model.denoiser.encode(torch.tensor([[4, 259]]))[0], table[[4, 259]])


def test_a_model_without_a_mask_is_no_diffusion_model(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2, n_positions=64)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, None)
    stated = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del stated["mask_token"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    with pytest.raises(ModelError, match="no mask token"):
        load(str(tmp_path))
