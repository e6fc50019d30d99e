"""Every family's logits against a reference network, and how a checkpoint is recognised."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import s3dlm
from s3dlm.errors import ModelError, SettingsError
from s3dlm.models import families
from s3dlm.models.base import Model
from s3dlm.models.folder import KNOWN
from s3dlm.models.registry import load
from s3dlm.models.transformer import Transformer
from tests.models.checkpoints import edit_json, write_folder
from tests.models.references import CASES, YARN, expected, folder_of, loaded, stored
from tools.networks import export

NEAR = 2e-4
ROWS = [[3, 1, 4, 1, 5, 259, 259, 259, 9, 2, 6], [259] * 16, [7], list(range(20, 60))]


@torch.inference_mode()
def found(model: Model, rows: list[list[int]], width: int | None = None) -> list[Tensor]:
    """Logits of rows in one batch, padded with a token that would be noticed."""
    width = max(map(len, rows)) if width is None else width
    tokens = torch.full((len(rows), width), 17)
    keys = torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        tokens[index, : len(row)], keys[index, : len(row)] = torch.tensor(row), True
    features = model.denoiser.encode(tokens, keys)
    logits = model.denoiser.head(features.flatten(0, 1)).view(*tokens.shape, -1)
    return [one[: len(row)] for one, row in zip(logits, rows, strict=True)]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_reference_and_tensors_those_of_the_file(case: str) -> None:
    model = loaded(case)
    assert isinstance(model.denoiser, Transformer)
    for row, batched in zip(ROWS, found(model, ROWS, width=57), strict=True):
        theirs = expected(case, row)
        (alone,) = found(model, [row])
        assert (alone - theirs).abs().max() <= NEAR
        assert (batched - theirs).abs().max() <= NEAR
    family = families.find_family(CASES[case].stated)
    assert family is not None
    given, ours = stored(case), export(model.denoiser, family.names)
    assert given.keys() == ours.keys()
    assert all(torch.equal(given[name], ours[name]) for name in given)


def test_mmada_never_predicts_an_image_token(tmp_path: Path) -> None:
    tensors = stored("mmada")
    tensors["model.transformer.ff_out.weight"][262:] *= 100  # image tokens would win everywhere
    config = CASES["mmada"].stated
    model = load(str(write_folder(tmp_path / "mmada", config, tensors)))
    assert found(model, [ROWS[0]])[0].argmax(-1).min() >= 262
    result = s3dlm.generate(
        model, "why?", method="greedy", gen_length=16, steps=16, block_length=16
    )
    assert all(i < 262 for i in model.tokenizer.encode(result.text))


# Which family, which mask, which blocks


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"model_type": "llada", "d_model": 8}, families.LLADA),
        ({"model_type": "llada", "architectures": ["LLaDAMoEModelLM"]}, families.LLADA_MOE),
        ({"model_type": "llada", "hidden_size": 8}, families.ILLADA),
        ({"model_type": "Dream"}, families.DREAM),
        ({"model_type": "anything", "architectures": ["LLaDA2MoeModelLM"]}, families.LLADA2),
        ({"model_type": "qwen3"}, None),
        ({"model_type": None, "architectures": "x"}, None),
    ],
)
def test_a_family_is_found_by_architecture_then_by_type(
    config: dict[str, Any], family: object
) -> None:
    assert families.find_family(config) is family


def test_the_mask_id_comes_from_config_then_tokenizer_then_table_then_argument(
    tmp_path: Path,
) -> None:
    folder = folder_of("a2d-qwen3", tmp_path / "a")
    edit_json(folder / "config.json", mask_token_id=250)
    assert load(str(folder)).denoiser.mask_id == 250
    edit_json(folder / "config.json", mask_token_id=None)
    assert load(str(folder)).denoiser.mask_id == 259  # the tokenizer's
    with pytest.raises(SettingsError, match="mask_id=7 contradicts the tokenizer"):
        load(str(folder), mask_id=7)
    edit_json(folder / "tokenizer_config.json", mask_token=None)
    with pytest.raises(ModelError, match=r"neither config.json nor the tokenizer.*--load mask_id"):
        load(str(folder))
    assert load(str(folder), mask_id=7).denoiser.mask_id == 7
    folder = folder_of("illada", tmp_path / "b")
    edit_json(folder / "tokenizer_config.json", mask_token=None)
    edit_json(folder / "config.json", mask_token_id=None)
    assert load(str(folder)).denoiser.mask_id == 5  # the table's
    assert load(str(folder), mask_id=6).denoiser.mask_id == 6


@pytest.mark.parametrize(
    ("name", "given", "size"), [("mdlm", None, None), ("bd3lm", None, 32), ("bd3lm-16", 16, 16), ("bd3lm-0", 0, None)]
)  # fmt: skip
def test_blocks_of_bd3lm_checkpoints_and_by_hand(
    name: str, given: int | None, size: int | None, tmp_path: Path
) -> None:
    network = load(str(folder_of("a2d-qwen3", tmp_path / name)), block=given).denoiser
    assert network.causal_block == size
    assert (network.reader() is None) == (size is None)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a2d-llama", {"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling of type 'llama3'"),
    ("a2d-llama", {"rope_scaling": {"rope_type": "yarn"}}, "needs a number 'factor'"),
    ("a2d-llama", {"rope_parameters": [1]}, "needs an object as 'rope_parameters'"),
    ("a2d-llama", {"hidden_act": "gelu"}, "hidden_act='gelu'"),
    ("a2d-llama", {"attention_bias": True}, "attention_bias=True"),
    ("a2d-llama", {"use_sliding_window": True}, "use_sliding_window=True"),
    ("a2d-llama", {"num_hidden_layers": 10**9}, "layers=1000000000 is not allowed: .* equal to 512"),
    ("a2d-llama", {"num_hidden_layers": 400}, "describes about 3600 tensors"),
    ("a2d-llama", {"vocab_size": -1}, "vocabulary=-1 is not allowed"),
    ("a2d-llama", {"hidden_size": "32"}, "needs a whole number 'hidden_size'"),
    ("a2d-llama", {"num_hidden_layers": True}, "needs a whole number 'num_hidden_layers'"),
    ("a2d-llama", {"num_attention_heads": 0}, "heads=0 is not allowed"),
    ("a2d-llama", {"mask_token_id": "x"}, "needs a whole number 'mask_token_id'"),
    ("a2d-llama", {"mask_token_id": 1.5}, "needs a whole number 'mask_token_id'"),
    ("a2d-llama", {"eos_token_id": ["x"]}, "eos_token_id="),
    ("a2d-llama", {"tie_word_embeddings": "yes"}, "needs true or false as 'tie_word_embeddings'"),
    ("a2d-llama", {"num_experts": 10**6, "num_experts_per_tok": 1, "moe_intermediate_size": 1}, "count=1000"),
    ("a2d-llama", {"model_type": "a2d-qwen3"}, "4 missing: model.layers.0.self_attn.q_norm"),
    ("llada", {"block_type": "sequential"}, "block_type='sequential'"),
    ("llada", {"alibi": True}, "alibi=True"),
    ("llada", {"d_model": None}, "needs a whole number 'd_model'"),
    ("llada", {"n_heads": 5}, "not a multiple"),
    ("llada", {"mask_token_id": 400}, "mask_id=400"),
    ("llada", {"n_layers": 4}, "18 missing: .* and 13 more"),
    ("llada", {"mlp_hidden_size": 47}, r"6 wrongly shaped: .*ff_proj.weight is \[48, 32\], must be \[47, 32\]"),
    ("nemotron", {"sliding_window": 4096}, "sliding_window=4096"),
    ("nemotron", {"rope_parameters": YARN | {"rope_type": "longrope"}}, "of type 'longrope'"),
    ("nemotron", {"rope_parameters": YARN | {"factor": 0.5}}, "factor=0.5 is not allowed"),
    ("nemotron", {"rope_parameters": YARN | {"factor": None}}, "needs a number 'factor'"),
    ("nemotron", {"rope_parameters": YARN | {"rope_theta": 1}}, "must be above 1 with YaRN"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "change", "said"), REFUSED)
def test_a_folder_that_does_not_fit_is_refused_in_one_line(
    case: str, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(loaded(case).name, tmp_path / "a")
    edit_json(folder / "config.json", **change)
    with pytest.raises(ModelError, match=said) as error:
        load(str(folder))
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)


def test_every_known_model_is_of_a_native_family_or_of_an_extra() -> None:
    native = {family.name for family in families.FAMILIES}
    assert {row.family for row in KNOWN.values()} - native == {"DiffusionGemma"}
