"""Every family's logits against a reference network, and how a checkpoint is recognised."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import s3dlm
from s3dlm.errors import ModelError, SettingsError
from s3dlm.models import families
from s3dlm.models.base import Model
from s3dlm.models.registry import load
from s3dlm.models.transformer import Transformer
from tests.models.checkpoints import (
    LLADA,
    LLADA2,
    LLADA_MOE,
    edit_json,
    llada_tensors,
    llama_tensors,
    reference_logits,
    write_folder,
)

NEAR = 2e-4
ROWS = [[3, 1, 4, 1, 5, 259, 259, 259, 9, 2, 6], [259] * 16, [7, 8, 9], list(range(20, 60))]
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
MOE = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

# name: (what config.json says beside the network's shape, network of transformers, its options)
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "a2d-qwen3": ({"model_type": "a2d-qwen3"}, "Qwen3", {"head_dim": 16}),
    "a2d-qwen3, tied": (
        {"model_type": "a2d-qwen3"}, "Qwen3", {"head_dim": 8, "tie_word_embeddings": True},
    ),
    "a2d-qwen2": ({"model_type": "a2d-qwen2"}, "Qwen2", {}),
    "a2d-qwen2, one key head": ({"model_type": "a2d-qwen2"}, "Qwen2", {"num_key_value_heads": 1}),
    "a2d-llama": ({"model_type": "a2d-llama"}, "Llama", {}),
    "a2d-llama, all key heads": ({"model_type": "a2d-llama"}, "Llama", {"num_key_value_heads": 4}),
    "a2d-llama, yarn": (
        {"model_type": "a2d-llama"}, "Llama",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
                             "original_max_position_embeddings": 32}},
    ),
    "sdar": ({"model_type": "sdar", "block_size": 4}, "Qwen3", {"head_dim": 16}),
    "sdar, 16": ({"model_type": "sdar", "block_size": 16}, "Qwen3", {"head_dim": 8}),
    "sdar_moe": (
        {"model_type": "sdar_moe", "block_size": 4}, "Qwen3Moe",
        MOE | {"head_dim": 16, "norm_topk_prob": True},
    ),
    "illada": ({"model_type": "illada"}, "Llama", {"tie_word_embeddings": True}),
    "fast-dllm v2": (
        {"model_type": "Fast_dLLM_Qwen", "architectures": ["Fast_dLLM_QwenForCausalLM"]}, "Qwen2", {},
    ),
    "fast-dllm v2, 8": ({"model_type": "Fast_dLLM_Qwen", "bd_size": 8}, "Qwen2", {}),
}  # fmt: skip
BLOCKS = {"sdar": 4, "sdar, 16": 16, "sdar_moe": 4, "fast-dllm v2": 32, "fast-dllm v2, 8": 8}
SHIFTED = {"fast-dllm v2", "fast-dllm v2, 8"}


def reference(case: str) -> Any:
    """The network of transformers with random weights."""
    _, kind, options = CASES[case]
    config = getattr(transformers, f"{kind}Config")(**SMALL | options)
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    network = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.15)
            else:
                parameter.uniform_(0.5, 1.5)
    return network


def stored(network: Any) -> dict[str, Tensor]:
    """Its tensors as published checkpoints name them: each expert by itself."""
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
    return tensors


def folder_of(case: str, network: Any, folder: Path, shards: int = 1) -> Path:
    stated = network.config.to_dict()
    stated.pop("layer_types", None)
    config = json.loads(json.dumps(stated, default=str)) | CASES[case][0] | {"mask_token_id": 259}
    return write_folder(folder, config, stored(network), shards=shards)


@torch.inference_mode()
def expected(case: str, network: Any, row: list[int]) -> Tensor:
    """Logits (length, vocabulary) of the reference with the family's attention and shift."""
    block = torch.arange(len(row)) // BLOCKS.get(case, len(row))
    hidden = block[:, None] < block[None, :]
    mask = torch.zeros(1, 1, len(row), len(row)).masked_fill(hidden, -torch.inf)
    logits: Tensor = network(input_ids=torch.tensor([row]), attention_mask=mask).logits[0]
    return torch.cat((logits[:1], logits[:-1])) if case in SHIFTED else logits


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
def test_logits_are_those_of_the_reference(case: str, tmp_path: Path) -> None:
    network = reference(case)
    model = load(str(folder_of(case, network, tmp_path / "model", shards=2)))
    assert isinstance(model.denoiser, Transformer)
    together = found(model, ROWS, width=57)
    for row, batched in zip(ROWS, together, strict=True):
        theirs = expected(case, network, row)
        (alone,) = found(model, [row])
        assert (alone - theirs).abs().max() <= NEAR
        assert (batched - theirs).abs().max() <= NEAR


MOE_CASES: dict[str, dict[str, Any]] = {
    "llada_moe": LLADA_MOE,
    "llada_moe, shared": LLADA_MOE | {"shared_expert_intermediate_size": 40},
    "llada2": LLADA2 | {"block_size": 8},
    "llada2, two shared experts": LLADA2
    | {"num_shared_experts": 2, "n_group": 2, "topk_group": 1, "block_size": 4},
}


@pytest.mark.parametrize("case", MOE_CASES)
def test_mixtures_of_experts_give_the_values_of_their_authors_network(
    case: str, tmp_path: Path
) -> None:
    """expected_moe.json holds every 25th logit of some positions, made with the authors' code."""
    config = MOE_CASES[case]
    model = load(str(write_folder(tmp_path / "model", config, llama_tensors(config), shards=2)))
    values = json.loads((Path(__file__).parent / "expected_moe.json").read_text())[case]
    rows = [one["row"] for one in values]
    for one, batched in zip(values, found(model, rows), strict=True):
        (alone,) = found(model, [one["row"]])
        theirs = torch.tensor(one["logits"])
        assert (alone[one["places"], ::25] - theirs).abs().max() <= NEAR
        assert (batched[one["places"], ::25] - theirs).abs().max() <= NEAR


def test_mmada_never_predicts_an_image_token(tmp_path: Path) -> None:
    config = LLADA | {"model_type": "mmada", "new_vocab_size": 320, "llm_vocab_size": 262}
    tensors = llada_tensors(config)
    tensors["model.transformer.ff_out.weight"][262:] *= 100  # image tokens would win everywhere
    model = load(str(write_folder(tmp_path / "mmada", config, tensors)))
    assert isinstance(model.denoiser, Transformer)
    theirs = reference_logits(config, tensors, ROWS[0])
    assert (found(model, [ROWS[0]])[0] - theirs).abs().max() <= 1e-3
    settings = s3dlm.Settings(
        method="baseline", temperature=0.0, gen_length=16, steps=16, block_length=16
    )
    text = s3dlm.generate(model, "why?", settings=settings).text
    assert theirs.argmax(-1).min() >= 262
    assert all(i < 262 for i in model.tokenizer.encode(text))


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
    folder = folder_of("a2d-qwen3", reference("a2d-qwen3"), tmp_path / "a")
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
    edit_json(folder / "config.json", model_type="illada")
    with pytest.raises(ModelError, match="unexpected"):  # a known mask id, but other tensors
        load(str(folder))


def test_a_table_knows_the_masks_that_no_file_states(tmp_path: Path) -> None:
    folder = folder_of("illada", reference("illada"), tmp_path / "a")
    edit_json(folder / "tokenizer_config.json", mask_token=None)
    edit_json(folder / "config.json", mask_token_id=None)
    assert load(str(folder)).denoiser.mask_id == 5
    assert load(str(folder), mask_id=6).denoiser.mask_id == 6


def test_blocks_of_bd3lm_checkpoints_and_by_hand(tmp_path: Path) -> None:
    def block(name: str, **options: int) -> int | None:
        folder = folder_of("a2d-qwen3", reference("a2d-qwen3"), tmp_path / name)
        network = load(str(folder), **options).denoiser  # type: ignore[arg-type]
        assert network.prefix_cache == (network.causal_block is not None)
        return network.causal_block

    assert block("Qwen3-diffusion-mdlm") is None
    assert block("Qwen3-diffusion-bd3lm") == 32
    assert block("Qwen3-diffusion-bd3lm-16", block=16) == 16
    assert block("Qwen3-diffusion-bd3lm-none", block=0) is None


@pytest.fixture(scope="module")
def llama_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of("a2d-llama", reference("a2d-llama"), tmp_path_factory.mktemp("llama") / "a")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling of type 'llama3'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "needs a number 'factor'"),
        ({"rope_parameters": [1]}, "needs an object as 'rope_parameters'"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"attention_bias": True}, "attention_bias=True"),
        ({"use_sliding_window": True}, "use_sliding_window=True"),
        ({"num_hidden_layers": 10**9}, "layers=1000000000 must be a whole number"),
        ({"num_hidden_layers": 400}, "describes about 3600 tensors"),
        ({"vocab_size": -1}, "vocabulary=-1 must be"),
        ({"hidden_size": "32"}, "needs a whole number 'hidden_size'"),
        ({"num_hidden_layers": True}, "needs a whole number 'num_hidden_layers'"),
        ({"num_attention_heads": 0}, "heads=0 must be"),
        ({"mask_token_id": "x"}, "needs a whole number 'mask_token_id'"),
        ({"mask_token_id": 1.5}, "needs a whole number 'mask_token_id'"),
        ({"eos_token_id": ["x"]}, "eos_token_id="),
        ({"tie_word_embeddings": "yes"}, "needs true or false as 'tie_word_embeddings'"),
        (
            {"num_experts": 10**6, "num_experts_per_tok": 1, "moe_intermediate_size": 1},
            "count=1000",
        ),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_one_line(
    change: dict[str, Any], said: str, llama_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(llama_folder, tmp_path / "a")
    edit_json(folder / "config.json", **change)
    with pytest.raises(ModelError, match=said) as error:
        load(str(folder))
    assert len(str(error.value)) < 500
    assert "\n" not in str(error.value)


def test_every_family_is_listed_with_what_was_proven() -> None:
    from s3dlm.models import known

    rows = {row["family"]: row for row in known.families()}
    assert len(rows) == len(families.FAMILIES) + 2  # those that transformers runs
    assert rows["SDAR"]["attention"] == "block-causal, 4"
    assert (
        rows["Nemotron-Labs-Diffusion"]["attention"] == "causal prefix, bidirectional block of 32"
    )
    assert rows["iLLaDA"]["mask_id"] == "config.json, else tokenizer, else 5"
    assert all(
        "greedy decoding: " in str(row["proven"]) and row["support"] for row in rows.values()
    )
    assert {row.family for row in known.KNOWN.values()} <= set(rows)
