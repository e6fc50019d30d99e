"""Small networks with random weights, and requests for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from s3dlm.models.base import Model
from s3dlm.models.family import Experts
from s3dlm.models.forward import Prediction, Rows
from s3dlm.models.transformer import Transformer, TransformerConfig
from tests.fakes import ByteTokenizer

MASK, END = 256, 257
LLADA2 = Experts(
    count=8, chosen=2, hidden=16, shared=16, first_layer=1, sigmoid=True, groups=4, kept_groups=2,
    renormalised=True, scale=2.5,
)  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {  # all that networks differ in
    "plain": {},
    "grouped": {"key_value_heads": 2, "qk_norm": True},
    "shifted": {"shift": True, "qkv_bias": True, "tied": True},
    "shifted, block-causal": {"shift": True, "causal_block": 8},
    "block-causal": {"causal_block": 8, "key_value_heads": 2},
    "large vocabulary": {"vocabulary": 2048},
    "text only": {"text_vocabulary": 258},
    "experts": {"experts": Experts(count=4, chosen=2, hidden=16)},
    "experts as in LLaDA2": {"experts": LLADA2, "key_value_heads": 2, "causal_block": 8},
}


def random_network(
    kind: type[Transformer] = Transformer,
    *,
    cache: bool = True,
    dual: int | None = None,
    std: float = 0.2,
    **shape: Any,
) -> Transformer:
    default: dict[str, Any] = {
        "vocabulary": 260, "width": 32, "layers": 2, "heads": 4, "hidden": 48, "mask_id": MASK,
        "context": 256,
    }  # fmt: skip
    network = kind(TransformerConfig(**default | shape))
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(float(parameter.ndim == 1), std, generator=random)
    network.dual_cache = dual
    if not cache:
        network.reader = lambda: None  # type: ignore[method-assign]
    return network.requires_grad_(False).eval()


def random_model(*ends: int, **options: Any) -> Model:
    return Model("random", random_network(**options), ByteTokenizer(), frozenset(ends))


def make_rows(prompt: int, canvas: int = 16, count: int = 3, seed: int = 0, **changes: Any) -> Rows:
    """Canvases whose first three tokens are known, with an open block of eight."""
    random = np.random.default_rng(seed)
    tokens = np.full((count, canvas), MASK)
    tokens[:, :3] = random.integers(0, 250, (count, 3))
    options: dict[str, Any] = {
        "temperature": 0.7, "look_ahead": True, "statistics": True, "label": "a test",
    }  # fmt: skip
    return Rows(
        random.integers(0, 250, prompt), tokens, tokens == MASK, np.full(count, 0), np.full(count, 8),
        random.random((count, 8, 4)), **options | changes,
    )  # fmt: skip


def assert_close(one: Prediction, other: Prediction) -> None:
    np.testing.assert_array_equal(one.top, other.top)
    np.testing.assert_array_equal(one.draws, other.draws)
    for name in ("top_logp", "draws_logp", "margin", "entropy"):
        if getattr(one, name) is not None:
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=2e-5)
