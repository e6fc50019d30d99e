"""Models that are not native: any function to logits, and what transformers loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from s3dlm.errors import ModelError
from s3dlm.models.hf import LogitsModel
from s3dlm.models.registry import load
from tests.models.checkpoints import write_tokenizer

CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel


class FixedConfig(PretrainedConfig):
    model_type = "fixed"

    def __init__(self, vocab_size=300, mask_token_id=259, mode="both", **other):
        self.vocab_size, self.mask_token_id, self.mode = vocab_size, mask_token_id, mode
        super().__init__(**other)


class FixedModel(PreTrainedModel):
    config_class = FixedConfig

    def __init__(self, config):
        super().__init__(config)
        self.table = torch.nn.Embedding(config.vocab_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        own = self.table(input_ids)
        if self.config.mode == "causal":
            return (own.cumsum(1),)
        weight = attention_mask[..., None].to(own.dtype)
        if self.config.mode == "careless":
            weight = torch.ones_like(weight)
        return (own + (own * weight).sum(1, keepdim=True),)
"""


def sums(tokens: torch.Tensor) -> torch.Tensor:
    """Logits that hear every token of the row, so that padding cannot hide."""
    total = tokens.sum(1, keepdim=True).expand_as(tokens)
    return torch.stack((total, tokens), -1).float()


def test_a_function_to_logits_is_a_denoiser_and_never_hears_padding() -> None:
    model = LogitsModel(sums, mask_id=1, vocabulary=2, context=8)
    tokens = torch.tensor([[1, 2, 7], [4, 5, 6], [3, 7, 7], [2, 2, 7]])
    keys = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    assert torch.equal(model.head(model.encode(tokens)[0]), sums(tokens)[0])
    features = model.encode(tokens, keys)
    for row, length in enumerate(keys.sum(1).tolist()):
        assert torch.equal(features[row, :length], sums(tokens[row : row + 1, :length])[0])


SMALL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}


# kind: its network, and what its configuration has beside the shape
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {"max_position_embeddings": 64}),
    "roberta": ("Roberta", {"max_position_embeddings": 66, "pad_token_id": 1, "eos_token_id": None}),
    "modernbert": ("ModernBert", {
        "max_position_embeddings": 64, "local_attention": 8, "global_attn_every_n_layers": 2,
        "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3,
    }),
}  # fmt: skip


def masked_lm(kind: str, folder: Path) -> Any:
    """A small random masked language model of transformers in a folder."""
    torch.manual_seed(0)
    name, more = KINDS[kind]
    config = getattr(transformers, f"{name}Config")(**SMALL, **more)
    inner = getattr(transformers, f"{name}ForMaskedLM")(config)
    with torch.no_grad():
        for parameter in inner.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.2)
    inner.eval().save_pretrained(folder)
    write_tokenizer(folder, None)
    return inner


@pytest.mark.parametrize("kind", KINDS)
def test_masked_language_models_of_transformers_load(kind: str, tmp_path: Path) -> None:
    inner = masked_lm(kind, tmp_path)
    model = load(str(tmp_path))
    stated = (model.denoiser.mask_id, model.denoiser.vocabulary, model.denoiser.context)
    assert stated == (259, 300, 64)  # also of RoBERTa, whose table has 66 positions
    assert 257 in model.end_ids  # the tokenizer's, whatever config.json says
    row = torch.tensor([[5, 6, 259, 7]])
    with torch.inference_mode():
        expected = inner(input_ids=row).logits
        assert torch.allclose(model.denoiser.encode(row), expected, atol=1e-5)
        padded = torch.tensor([[5, 6, 259, 7, 8, 8]])
        features = model.denoiser.encode(padded, torch.tensor([[1, 1, 1, 1, 0, 0]]).bool())
        assert torch.allclose(model.denoiser.head(features[:, :4]), expected, atol=1e-5)
        longest = torch.full((1, model.denoiser.context), 259)
        assert model.denoiser.encode(longest).shape == (1, 64, 300)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Makes a checkpoint with code of its own."""
    modules = str(tmp_path / "modules")
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", modules)

    def make(mode: str) -> Path:
        folder = tmp_path / "fixed"
        folder.mkdir()
        table = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
        save_file({"table.weight": table}, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "modeling_fixed.py").write_text(CODE)
        names = {
            "AutoConfig": "modeling_fixed.FixedConfig",
            "AutoModel": "modeling_fixed.FixedModel",
        }
        stated = {"vocab_size": 300, "mask_token_id": 259, "mode": mode}
        config = {"model_type": "fixed", "auto_map": names} | stated
        (folder / "config.json").write_text(json.dumps(config))
        write_tokenizer(folder, None)
        return folder

    return make


def test_foreign_code_runs_only_when_allowed(foreign: Callable[[str], Path]) -> None:
    folder = foreign("both")
    with pytest.raises(ModelError, match=r"'fixed', which is not supported; supported are llada"):
        load(str(folder))
    model = load(str(folder), trust_remote_code=True)
    own = load_file(folder / "model.safetensors")["table.weight"][[4, 259]]
    found = model.denoiser.encode(torch.tensor([[4, 259]]))[0]
    torch.testing.assert_close(found, own + own.sum(0))


@pytest.mark.parametrize(
    ("mode", "reason"), [("causal", "is a causal model"), ("careless", "when a row is padded")]
)
def test_foreign_code_is_checked_at_load(
    mode: str, reason: str, foreign: Callable[[str], Path]
) -> None:
    with pytest.raises(ModelError, match=reason):
        load(str(foreign(mode)), trust_remote_code=True)


def test_a_plain_causal_checkpoint_never_loads(tmp_path: Path) -> None:
    config = transformers.Qwen2Config(
        vocab_size=300, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, intermediate_size=32, max_position_embeddings=64,
    )  # fmt: skip
    transformers.Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, None)
    with pytest.raises(ModelError, match="'qwen2', a plain causal model"):
        load(str(tmp_path))
    with pytest.raises(ModelError, match="is a causal model"):
        load(str(tmp_path), trust_remote_code=True)


def test_tensors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    masked_lm("bert", tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    name = next(key for key in tensors if key.endswith("query.weight"))
    save_file({k: v for k, v in tensors.items() if k != name}, weights, {"format": "pt"})
    with pytest.raises(ModelError, match=r"1 tensors are missing .* would be random"):
        load(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    save_file(tensors, weights, {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config | {"intermediate_size": 48}))
    with pytest.raises(ModelError, match=r"cannot load|wrong shape"):
        load(str(tmp_path))
