"""Nemotron-Labs-Diffusion against transformers' Ministral 3 with its mask written out, and YaRN against
transformers' own; random weights only."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.models.family import TransformerConfig
from s3dlm.models.forward import Forward
from s3dlm.models.layers import rope_cos_sin
from s3dlm.models.registry import load
from s3dlm.models.rope import read_rope
from tests.fakes import ByteTokenizer
from tests.models.networks import make_rows
from tests.models.references import CAUSAL_PREFIX, YARN, attending, in_bytes, reference
from tests.models.test_block_decoding import LENGTH, MASK, ours, question


def logits(case: str, row: list[int], opening: int) -> Tensor:
    """Of a row whose open block begins here: before it each position sees what precedes it, in it all."""
    place = torch.arange(len(row))
    hidden = (place[None, :] > place[:, None]) & (place[:, None] < opening)
    found = attending(reference(case), row, hidden).double()
    found[:, MASK] = -torch.inf
    return found


def sampler(case: str, prompt: list[int], block: int, least: float) -> list[int]:
    """Blocks of masks behind what is finished; a pass reveals all above the threshold, or the best."""
    x = list(prompt)
    while len(x) - len(prompt) < LENGTH:
        opening = len(x)
        x += [MASK] * block
        while places := [i for i in range(opening, len(x)) if x[i] == MASK]:
            best = logits(case, x, opening).softmax(-1).max(-1)
            top = max(places, key=lambda i: float(best.values[i]))
            for i in places:
                if i == top or float(best.values[i]) > least:
                    x[i] = int(best.indices[i])
    return x[len(prompt) :][:LENGTH]


@pytest.mark.parametrize("case", CAUSAL_PREFIX)
@pytest.mark.parametrize("prompt", [5, 32, 61])
def test_greedy_is_the_sampler_of_its_ports(case: str, prompt: int) -> None:
    block, ids = CAUSAL_PREFIX[case].block, ByteTokenizer().chat(question(prompt))
    assert block
    expected = sampler(case, ids, block, 0.05)
    assert ours(in_bytes(case), prompt, reveal="threshold", reveal_threshold=0.05) == expected


@pytest.mark.parametrize("case", CAUSAL_PREFIX)
@pytest.mark.parametrize("done", [0, 1, 2])
def test_predictions_are_those_of_ministral(case: str, done: int) -> None:
    """Rows of two prompts in one call, with finished blocks; and again, from what was cached."""
    block = CAUSAL_PREFIX[case].block
    assert block
    start = done * block
    rows = []
    for prompt in (7, 30):
        one = make_rows(prompt, canvas=start + block, seed=prompt, temperature=0.0)
        canvas = np.random.default_rng(prompt).integers(0, 250, one.canvas.shape)
        canvas[:, start + 3 :] = MASK
        rows.append(
            dataclasses.replace(
                one, canvas=canvas, masked=canvas == MASK, start=one.start + start, stop=one.start + start + block,
                uniforms=np.zeros((3, block, 1)),
            )
        )  # fmt: skip
    forward = Forward(in_bytes(case).denoiser)
    for _ in range(2):
        for one, found in zip(rows, forward(rows), strict=True):
            for row in range(3):
                whole = [*one.prompt.tolist(), *one.canvas[row].tolist()]
                theirs = logits(case, whole, one.prompt.size + start).log_softmax(-1).amax(-1)
                theirs = theirs[one.prompt.size :][torch.from_numpy(one.masked[row])]
                mine = torch.from_numpy(found.top_logp[row][one.masked[row]])
                assert (mine - theirs).abs().max() <= 2e-4


def test_what_cannot_be_computed_right_is_refused() -> None:
    model = in_bytes("nemotron")
    with pytest.raises(ModelError, match="one device, and without guidance"):
        s3dlm.generate(model, "why?", gen_length=8, steps=8, guidance=1.0)
    with pytest.raises(ModelError, match="needs its blocks"):
        load(model.name, block=0)


@pytest.mark.parametrize(
    "change",
    [
        {}, {"truncate": False}, {"mscale": 0.7}, {"mscale": None}, {"attention_factor": 1.25},
        {"beta_fast": None, "beta_slow": None, "factor": 16.0, "rope_theta": 1e6,
         "original_max_position_embeddings": 16384},
        {"original_max_position_embeddings": 2, "rope_theta": 100.0}, {"partial_rotary_factor": 0.5},
    ],
)  # fmt: skip
@pytest.mark.parametrize("written", ["rope_parameters", "rope_scaling"])
def test_yarn_is_that_of_transformers(change: dict[str, Any], written: str) -> None:
    rope = YARN | {"llama_4_scaling_beta": None} | change
    rope = {name: value for name, value in rope.items() if value is not None}
    shape: dict[str, Any] = {
        "hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 192,
    }  # fmt: skip
    theirs = LlamaConfig(**shape, rope_parameters=dict(rope))
    speeds, factor = ROPE_INIT_FUNCTIONS["yarn"](theirs, torch.device("cpu"))
    theta, width, yarn = read_rope(shape | {written: rope}, "A2D Llama")
    config = TransformerConfig(
        vocabulary=8, width=128, layers=1, heads=2, hidden=8, mask_id=7, context=192,
        rope_theta=theta, rope_width=width, yarn=yarn,
    )  # fmt: skip
    cos, sin, scale = rope_cos_sin(config, 150, torch.device("cpu"))
    half = len(speeds)
    angles = torch.arange(150.0)[:, None] * speeds
    assert scale is None
    assert cos.shape[-1] == 2 * half
    assert torch.allclose(cos[:, 0, :half], angles.cos() * factor, atol=3e-5)
    assert torch.allclose(sin[:, 0, half:], angles.sin() * factor, atol=3e-5)
