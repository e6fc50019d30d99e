"""Our network against the architecture's definition, for both families."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from s3dlm.models import families, registry
from s3dlm.models.transformer import Transformer, TransformerConfig
from tests.models.checkpoints import (
    DREAM,
    LLADA,
    llada_tensors,
    llama_tensors,
    reference_logits,
    write_folder,
)
from tests.models.networks import random_network
from tools.networks import export, initialise

CASES = {
    "llada": (LLADA, llada_tensors, families.LLADA),
    "llada, grouped": (LLADA | {"n_kv_heads": 2}, llada_tensors, families.LLADA),
    "llada, bias": (LLADA | {"include_qkv_bias": True}, llada_tensors, families.LLADA),
    "llada, tied": (LLADA | {"weight_tying": True}, llada_tensors, families.LLADA),
    "dream": (DREAM, llama_tensors, families.DREAM),
    "dream, one key head": (DREAM | {"num_key_value_heads": 1}, llama_tensors, families.DREAM),
    "dream, tied": (DREAM | {"tie_word_embeddings": True}, llama_tensors, families.DREAM),
}
ROWS = [[3, 1, 4, 1, 5, 259, 259, 259, 9, 2, 6], [259] * 16, [7], list(range(20, 60))]


def load(folder: Path, case: str) -> Transformer:
    config, tensors, _ = CASES[case]
    write_folder(folder, config, tensors(config))
    network = registry.load(str(folder), device="cpu").denoiser
    assert isinstance(network, Transformer)
    return network


def logits(network: Transformer, tokens: torch.Tensor, keys: torch.Tensor | None) -> torch.Tensor:
    features = network.encode(tokens, keys)
    return network.head(features.flatten(0, 1)).view(*tokens.shape, -1)


@pytest.mark.parametrize("case", CASES)
def test_rows_alone_and_padded_equal_the_definition(case: str, tmp_path: Path) -> None:
    config, tensors, _ = CASES[case]
    network = load(tmp_path, case)
    expected = [reference_logits(config, tensors(config), row) for row in ROWS]
    for row, theirs in zip(ROWS, expected, strict=True):
        ours = logits(network, torch.tensor([row]), None)[0]
        assert ours.shape == theirs.shape
        assert (ours - theirs).abs().max() <= 1e-5
    for padding in (0, 5, 13):
        tokens = torch.full((len(ROWS), 40 + padding), 17)  # which would be heard if attended to
        keys = torch.zeros_like(tokens, dtype=torch.bool)
        for i, row in enumerate(ROWS):
            tokens[i, : len(row)], keys[i, : len(row)] = torch.tensor(row), True
        ours = logits(network, tokens, keys)
        for i, theirs in enumerate(expected):
            assert (ours[i, : len(theirs)] - theirs).abs().max() <= 1e-5


def test_query_and_key_norms_make_their_scale_irrelevant() -> None:
    network = random_network(key_value_heads=2, qk_norm=True, norm_epsilon=0.0)
    tokens = torch.arange(20)[None]
    before = network.encode(tokens)
    for block in network.blocks:
        block.qkv.weight[: 6 * 8] *= 8  # 4 query and 2 key heads of width 8
    assert torch.allclose(before, network.encode(tokens), atol=1e-5)


def test_bfloat16_stays_near_float32(tmp_path: Path) -> None:
    network = load(tmp_path, "llada")
    tokens = torch.tensor([ROWS[3]])
    exact = network.encode(tokens)
    rough = network.bfloat16().encode(tokens)
    assert rough.dtype == torch.bfloat16
    assert (exact - rough.float()).abs().max() < 0.1 * exact.abs().max()


@pytest.mark.parametrize("case", CASES)
def test_export_gives_back_the_stored_tensors(case: str, tmp_path: Path) -> None:
    config, tensors, family = CASES[case]
    stored, ours = tensors(config), export(load(tmp_path, case), family.names)
    assert stored.keys() == ours.keys()
    assert all(torch.equal(stored[name], ours[name]) for name in stored)


def test_the_network_can_be_trained() -> None:
    config = TransformerConfig(
        vocabulary=40, width=32, layers=2, heads=4, hidden=64, mask_id=39, context=64, qkv_bias=True
    )
    network = Transformer(config)
    initialise(network, torch.Generator().manual_seed(0))
    text = torch.arange(24).repeat(4, 1)
    tokens = text.clone()
    tokens[:, ::3] = 39
    with torch.inference_mode():
        network.encode(tokens)  # what inference caches must not poison training
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(network(tokens).flatten(0, 1), text.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert losses[-1] < 1 < losses[0]
