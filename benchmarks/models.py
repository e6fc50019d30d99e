"""The two models of the benchmarks: the shipped one, and one whose vocabulary is LLaDA's."""

from __future__ import annotations

from dataclasses import replace

import torch

import s3dlm
from s3dlm.models.base import Model
from s3dlm.models.transformer import Transformer, TransformerConfig

WIDE_VOCABULARY = 126_464  # LLaDA-8B's
WIDE_MASK = 126_336


def tiny(context: int | None = None) -> Model:
    model = s3dlm.load("tiny")
    if context is not None:
        model.denoiser.context = context
    return model


def wide(dtype: torch.dtype = torch.float32) -> Model:
    """Random weights, real vocabulary: wide enough that head and softmax weigh as they do at 8 B."""
    torch.manual_seed(0)
    config = TransformerConfig(
        vocabulary=WIDE_VOCABULARY,
        width=768,
        layers=6,
        heads=12,
        hidden=2048,
        mask_id=WIDE_MASK,
        context=1024,
    )
    network = Transformer(config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.05)
    small = tiny()
    network = network.to(dtype)
    return replace(small, name="wide", denoiser=network, end_ids=frozenset(), tokenizer=Letters())


class Letters:
    """Bytes in, letters out: what a random model writes must only be readable, not sensible."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return " ".join(str(one % 997) for one in ids)

    def chat(self, user: str, prefill: str = "") -> list[int]:
        return self.encode(user + prefill)
