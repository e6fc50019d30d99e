"""Dream's schedule, filters and confidences against its sampler, written here plainly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from s3dlm.job import random_stream
from s3dlm.models.base import Model
from s3dlm.models.sampling import restrict
from s3dlm.models.transformer import Transformer
from s3dlm.settings import Settings
from tests.fakes import ByteTokenizer, events_of
from tests.models.networks import MASK, random_network

LENGTH = 24
QUESTION = "why?"


def network() -> Transformer:
    return random_network(std=0.4, key_value_heads=2, qkv_bias=True, shift=True)


def filtered(logits: Tensor, top_p: float | None, top_k: int | None) -> Tensor:
    """Probabilities of one position's tokens, one token at a time."""
    order = logits.argsort(descending=True, stable=True).tolist()
    kept, mass = list(order), 0.0
    if top_p is not None:
        p = torch.softmax(logits, 0)
        kept = []
        for token in order:
            if kept and mass > top_p:
                break
            kept.append(token)
            mass += float(p[token])
    if top_k is not None:
        kept = kept[:top_k]
    allowed = torch.full_like(logits, -torch.inf)
    allowed[kept] = logits[kept]
    return torch.softmax(allowed, 0)


def plain_decode(
    model: Transformer,
    prompt: list[int],
    measure: str,
    rng: np.random.Generator,
    *,
    steps: int,
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    alg_temp: float = 0.0,
) -> list[int]:
    """Dream's loop: time steps, logits filtered after temperature, confidence of what is left. Random
    numbers are drawn in the search's order; a step without a reveal draws none."""
    x = torch.tensor([prompt + [MASK] * LENGTH])
    times = torch.linspace(1, 1e-3, steps + 1)
    for step in range(steps):
        masked = (x[0] == MASK).nonzero()[:, 0].tolist()
        count = int(len(masked) * (1 - times[step + 1] / times[step]))
        count = len(masked) if step == steps - 1 else count
        if not count:
            continue
        logits = model.head(model.encode(x)[0]).double()
        logits[:, MASK] = -torch.inf
        drawn = rng.random((1, LENGTH, 1))[0, :, 0]
        confidence, token = {}, {}
        for place in masked:
            p = filtered(logits[place] / (temperature or 1.0), top_p, top_k)
            point = drawn[place - len(prompt)]
            cut = int((p.cumsum(0) <= point).sum()) if temperature else int(p.argmax())
            two = p.topk(2).values
            token[place] = cut
            confidence[place] = {
                "low_confidence": float(p[cut]),
                "margin": float(two[0] - two[1]),
                "entropy": -float(torch.special.entr(p).sum()),
            }[measure]
        if alg_temp:  # the largest of tempered confidence plus Gumbel noise: multinomial without
            noise = rng.gumbel(size=(1, LENGTH))[0]  # replacement
            for place in masked:
                confidence[place] = confidence[place] / alg_temp + noise[place - len(prompt)]
        for place in sorted(masked, key=lambda one: -confidence[one])[:count]:
            x[0, place] = token[place]
    return x[0, len(prompt) :].tolist()


def our_decode(model: Transformer, measure: str, **settings: object) -> list[int]:
    whole = Model("random", model, ByteTokenizer(), frozenset())
    chosen = Settings(
        "baseline", gen_length=LENGTH, block_length=LENGTH, policy=measure, reveal="dream",
        probabilities="sampled", **{"temperature": 0.0, **settings},
    )  # fmt: skip
    *seen, _ = events_of(whole, QUESTION, settings=chosen, sample_id="a")
    tokens: list[int] = seen[-1].tokens[0].tolist()
    return tokens


def both(measure: str, **options: object) -> tuple[list[int], list[int]]:
    model = network()
    names = {"alg_temp": "position_temperature"}
    ours = our_decode(model, measure, **{names.get(k, k): v for k, v in options.items()})
    rng = random_stream(0, "a")
    prompt = ByteTokenizer().chat(QUESTION)
    return ours, plain_decode(model, prompt, measure, rng, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("measure", ["low_confidence", "margin", "entropy"])
@pytest.mark.parametrize("steps", [5, 16, 24])
@pytest.mark.parametrize(("top_p", "top_k"), [(None, None), (None, 50), (0.8, None), (0.7, 5)])
@torch.inference_mode()
def test_greedy_equals_dreams_sampler(
    measure: str, steps: int, top_p: float | None, top_k: int | None
) -> None:
    ours, expected = both(measure, steps=steps, top_p=top_p, top_k=top_k)
    assert ours == expected


@pytest.mark.parametrize("measure", ["low_confidence", "margin", "entropy"])
@pytest.mark.parametrize("alg_temp", [0.0, 0.1])
@pytest.mark.parametrize(("temperature", "top_p"), [(0.1, 0.9), (0.8, 0.9), (1.0, None)])
@torch.inference_mode()
def test_sampling_equals_dreams_sampler_with_the_same_random_numbers(
    measure: str, alg_temp: float, temperature: float, top_p: float | None
) -> None:
    options = {"temperature": temperature, "top_p": top_p, "top_k": 50, "alg_temp": alg_temp}
    ours, expected = both(measure, steps=12, **options)
    assert ours == expected


def test_filters_leave_at_least_one_token() -> None:
    logits = torch.tensor([[5.0, 1.0, 0.0, -torch.inf]])
    assert torch.isfinite(restrict(logits, 1.0, top_p=1e-9)).tolist() == [[True, *[False] * 3]]
    assert torch.isfinite(restrict(logits, 1.0, top_k=1)).tolist() == [[True, *[False] * 3]]
    assert torch.equal(restrict(logits, 1.0, top_k=99, top_p=1.0), logits)
