"""Our greedy baseline against LLaDA's decoding loop, written here plainly from its description."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import s3dlm
from s3dlm.jobs import random_stream
from s3dlm.models.base import Model
from s3dlm.models.transformer import Transformer, TransformerConfig
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer

MASK, LENGTH = 256, 24


def network() -> Transformer:
    torch.manual_seed(3)
    config = TransformerConfig(
        width=32,
        layers=2,
        heads=4,
        key_value_heads=4,
        hidden=64,
        vocabulary=260,
        context=128,
        mask_id=MASK,
    )
    model = Transformer(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()


def llada_generate(
    model: Transformer,
    prompt: list[int],
    steps: int,
    block_length: int,
    random_confidence: Callable[[int], np.ndarray] | None,
) -> list[int]:
    """Full-sequence logits, full softmax, argmax, top-k of the open block; temperature 0."""
    x = torch.tensor([prompt + [MASK] * LENGTH])
    blocks = LENGTH // block_length
    per_block = steps // blocks
    for block in range(blocks):
        start = len(prompt) + block * block_length
        stop = start + block_length
        hidden = int((x[:, start:stop] == MASK).sum())
        counts = [hidden // per_block + (i < hidden % per_block) for i in range(per_block)]
        for step, count in enumerate(counts):
            logits = model.head(model.encode(x)[0])
            logits[:, MASK] = -torch.inf
            best = logits.argmax(-1)
            confidence = torch.softmax(logits.double(), -1).gather(-1, best[:, None])[:, 0]
            if random_confidence is not None:
                confidence = torch.zeros_like(confidence)
                drawn = random_confidence(block * per_block + step)
                confidence[start:stop] = torch.from_numpy(drawn)
            confidence[:start] = confidence[stop:] = -torch.inf
            confidence[x[0] != MASK] = -torch.inf
            chosen = confidence.topk(count).indices
            x[0, chosen] = best[chosen]
    return x[0, len(prompt) :].tolist()


@pytest.mark.parametrize("policy", ["low_confidence", "random"])
@pytest.mark.parametrize(
    ("block_length", "steps"), [(24, 24), (24, 7), (12, 8), (8, 12), (4, 6), (2, 24)]
)
@torch.inference_mode()
def test_the_greedy_baseline_is_lladas_loop_token_for_token(
    policy: str, block_length: int, steps: int
) -> None:
    denoiser = network()
    model = Model("random", denoiser, ByteTokenizer(), frozenset())
    settings = Settings(
        method="baseline", temperature=0, gen_length=LENGTH, steps=steps, block_length=block_length, policy=policy
    )  # fmt: skip
    rng = random_stream(settings.seed, "why?")

    def drawn(step: int) -> np.ndarray:
        rng.random((1, block_length, 1))  # the search draws a uniform for every sample first
        return rng.random((1, block_length))[0]

    expected = llada_generate(
        denoiser,
        model.tokenizer.chat("why?"),
        steps,
        block_length,
        drawn if policy == "random" else None,
    )
    *steps_seen, _ = s3dlm.stream(model, "why?", settings=settings, sample_id="why?")
    assert steps_seen[-1].tokens[0].tolist() == expected
