"""Our greedy baseline against LLaDA's decoding loop, written here plainly from its description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import s3dlm
from s3dlm.job import random_stream
from s3dlm.models.base import Model
from s3dlm.models.transformer import Transformer
from s3dlm.result import Result
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer, events_of
from tests.models.networks import MASK, random_model, random_network

LENGTH = 24


def network() -> Transformer:
    return random_network(std=0.4)


def llada_generate(
    model: Transformer,
    prompt: list[int],
    steps: int,
    block_length: int,
    random_confidence: Callable[[int], np.ndarray] | None = None,
    *,
    cfg: float = 0.0,
    never: int | None = None,
    last: tuple[int, ...] = (),
) -> list[int]:
    """Full-sequence logits, full softmax, argmax, top-k of the open block; temperature 0.

    `cfg` is its cfg_scale, `never` the token of logits_eos_inf, `last` those of
    confidence_eos_eot_inf, whose confidences are taken as 0.
    """
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
            if cfg:
                without = x.clone()
                without[0, : len(prompt)] = MASK
                plain = model.head(model.encode(without)[0])
                logits = plain + (cfg + 1) * (logits - plain)
            logits[:, MASK] = -torch.inf
            if never is not None:
                logits[:, never] = -torch.inf
            best = logits.argmax(-1)
            logits[:, list(last)] = -torch.inf
            confidence = torch.softmax(logits.double(), -1).gather(-1, best[:, None])[:, 0]
            if random_confidence is not None:
                confidence = torch.zeros_like(confidence)
                drawn = random_confidence(block * per_block + step)
                confidence[start:stop] = torch.from_numpy(drawn)
            confidence[:start] = confidence[stop:] = -torch.inf
            confidence[x[0] != MASK] = -torch.inf
            chosen = confidence.sort(descending=True, stable=True).indices[:count]
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
    denoiser, rng = network(), random_stream(0, "why?")

    def drawn(step: int) -> np.ndarray:
        rng.random((1, block_length, 1))  # the search draws a uniform for every sample first
        return rng.random((1, block_length))[0]

    how = {"steps": steps, "block_length": block_length}
    chance = drawn if policy == "random" else None
    expected = llada_generate(
        denoiser, ByteTokenizer().chat("why?"), **how, random_confidence=chance
    )
    assert decoded(denoiser, set(), policy=policy, **how)[0] == expected


def decoded(denoiser: Transformer, ends: set[int], **options: Any) -> tuple[list[int], Result]:
    model = Model("random", denoiser, ByteTokenizer(), frozenset(ends))
    usual = {"gen_length": LENGTH, "steps": 12, "block_length": 8}
    settings = Settings("baseline", temperature=0, **usual | options)
    *steps_seen, result = events_of(model, "why?", settings=settings, sample_id="why?")
    tokens: list[int] = steps_seen[-1].tokens[0].tolist()
    return tokens, result


@pytest.mark.parametrize("scale", [0.5, 1.5, 4.0])
@torch.inference_mode()
def test_guidance_is_lladas_and_costs_two_forward_passes(scale: float) -> None:
    denoiser, prompt = network(), ByteTokenizer().chat("why?")
    tokens, result = decoded(denoiser, set(), guidance=scale)
    assert tokens == llada_generate(denoiser, prompt, 12, 8, cfg=scale)
    assert tokens != llada_generate(denoiser, prompt, 12, 8)
    assert result.nfe == 2 * decoded(denoiser, set())[1].nfe
    assert result.nfe == 24
    assert result.nfe_logical == result.settings.most_nfe == 26  # no pass after the last step


def usual_tokens() -> list[int]:
    return decoded(network(), set())[0]


@torch.inference_mode()
def test_an_end_token_that_is_never_predicted() -> None:
    denoiser, prompt = network(), ByteTokenizer().chat("why?")
    for end in sorted(set(usual_tokens())):
        tokens, _ = decoded(denoiser, {end}, end_tokens="never")
        assert tokens == llada_generate(denoiser, prompt, 12, 8, never=end)
        assert end not in tokens


@torch.inference_mode()
def test_end_tokens_that_are_revealed_last() -> None:
    """A finished answer is filled up with its end token, so it is compared up to there."""
    denoiser, prompt = network(), ByteTokenizer().chat("why?")
    usual, changed = usual_tokens(), 0
    for pair in zip(sorted(set(usual)), sorted(set(usual))[1:], strict=False):
        tokens, _ = decoded(denoiser, set(pair), end_tokens="last")
        expected = llada_generate(denoiser, prompt, 12, 8, last=pair)
        stop = next((at for at, one in enumerate(expected) if one in pair), LENGTH)
        assert tokens[: stop + 1] == expected[: stop + 1]
        changed += expected != usual
    assert changed > 3


def test_with_guidance_batched_is_unbatched() -> None:
    """Also beside rows that are not guided, and with the cache that those use."""
    for block in (None, 8):
        model = random_model(257, causal_block=block)
        asked = [
            s3dlm.Job(question, settings=Settings(
                "s3", gen_length=16, steps=8, block_length=8, particles=2, temperature=1.0, guidance=scale
            ))
            for question, scale in (("why?", 0.0), ("how?", 1.5), ("what is it?", 0.7), ("who?", 0.0))
        ]  # fmt: skip
        together = {i: one for i, one in s3dlm.run(model, asked) if isinstance(one, Result)}
        for index, job in enumerate(asked):
            alone = next(one for _, one in s3dlm.run(model, [job]) if isinstance(one, Result))
            assert together[index].text == alone.text
            assert [s.nll for s in together[index].survivors] == [s.nll for s in alone.survivors]
