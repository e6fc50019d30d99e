"""Dream's schedule, filters and confidences against its sampler, written here plainly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from s3dlm.models.dream import draw_positions, reveal_counts
from s3dlm.models.forward import Forward, Rows
from s3dlm.models.sampling import restrict
from s3dlm.models.transformer import Transformer, TransformerConfig

MASK, LENGTH = 256, 24
PROMPT = [3, 1, 4, 1, 5, 9, 2]


def network() -> Transformer:
    config = TransformerConfig(
        vocabulary=260, width=32, layers=2, heads=4, hidden=64, mask_id=MASK, context=128,
        key_value_heads=2, qkv_bias=True, shift=True,
    )  # fmt: skip
    built = Transformer(config)
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(0.0, 0.4, generator=random)
    return built.requires_grad_(False).eval()


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
    model: Transformer, steps: int, measure: str, top_p: float | None, top_k: int | None
) -> list[int]:
    x = torch.tensor([PROMPT + [MASK] * LENGTH])
    times = torch.linspace(1, 1e-3, steps + 1)
    for step in range(steps):
        logits = model.head(model.encode(x)[0]).double()
        logits[:, MASK] = -torch.inf
        masked = (x[0] == MASK).nonzero()[:, 0].tolist()
        count = int(len(masked) * (1 - times[step + 1] / times[step]))
        count = len(masked) if step == steps - 1 else count
        found = []
        for place in masked:
            p = filtered(logits[place], top_p, top_k)
            two = p.topk(2).values
            score = {
                "maskgit_plus": float(two[0]),
                "topk_margin": float(two[0] - two[1]),
                "entropy": -float(torch.special.entr(p).sum()),
            }[measure]
            found.append((-score, place, int(p.argmax())))
        for _, place, token in sorted(found)[:count]:
            x[0, place] = token
    return x[0, len(PROMPT) :].tolist()


def our_decode(
    model: Transformer, steps: int, measure: str, top_p: float | None, top_k: int | None
) -> list[int]:
    forward, canvas = Forward(model), np.full((1, LENGTH), MASK)
    for count in reveal_counts(LENGTH, steps):
        masked = canvas == MASK
        (found,) = forward(
            [
                Rows(
                    np.array(PROMPT), canvas, masked, 0, LENGTH, np.zeros((1, LENGTH, 1)), 0.0,
                    look_ahead=False, statistics=True, label="a test", top_k=top_k, top_p=top_p,
                    tempered=True,
                )
            ]
        )  # fmt: skip
        assert found.margin is not None
        assert found.entropy is not None
        score = {
            "maskgit_plus": found.draws_logp[:, :, 0],
            "topk_margin": found.margin,
            "entropy": -found.entropy,
        }[measure]
        ranked = np.where(masked, -score, np.inf).argsort(kind="stable")[:, :count]
        canvas = canvas.copy()
        canvas[0, ranked] = found.draws[0, ranked, 0]
    return canvas[0].tolist()


@pytest.mark.parametrize("measure", ["maskgit_plus", "topk_margin", "entropy"])
@pytest.mark.parametrize("steps", [5, 24, 40])
@pytest.mark.parametrize(("top_p", "top_k"), [(None, None), (None, 50), (0.8, None), (0.7, 5)])
@torch.inference_mode()
def test_greedy_equals_dreams_sampler(
    measure: str, steps: int, top_p: float | None, top_k: int | None
) -> None:
    model = network()
    expected = plain_decode(model, steps, measure, top_p, top_k)
    assert our_decode(model, steps, measure, top_p, top_k) == expected


def test_a_schedule_reveals_everything_once() -> None:
    for length in (1, 7, 64, 256):
        for steps in (1, 2, 16, 300):
            counts = reveal_counts(length, steps)
            assert len(counts) == steps
            assert sum(counts) == length
    assert reveal_counts(64, 16)[:3] == [3, 4, 4]  # rounded down, so later steps reveal more


def test_filtered_samples_follow_the_filtered_distribution() -> None:
    logits = torch.randn(1, 60, generator=torch.Generator().manual_seed(0)) * 2
    p = filtered(logits[0] / 0.7, 0.9, 12)
    again = torch.softmax(restrict(logits, 0.7, top_k=12, top_p=0.9)[0], 0)
    torch.testing.assert_close(again, p)
    assert 1 < int((again > 0).sum()) <= 12


def test_filters_leave_at_least_one_token() -> None:
    logits = torch.tensor([[5.0, 1.0, 0.0, -torch.inf]])
    assert torch.isfinite(restrict(logits, 1.0, top_p=1e-9)).tolist() == [[True, *[False] * 3]]
    assert torch.isfinite(restrict(logits, 1.0, top_k=1)).tolist() == [[True, *[False] * 3]]
    assert torch.equal(restrict(logits, 1.0, top_k=99, top_p=1.0), logits)


def test_positions_are_drawn_by_tempered_confidence() -> None:
    confidence = np.array([[0.0, -1.0, -2.0, 5.0]])
    masked = np.array([[True, True, True, False]])
    rng = np.random.default_rng(0)
    drawn = sum(draw_positions(confidence, masked, 1, 0.5, rng)[0] for _ in range(20_000))
    expected = np.exp(np.array([0.0, -2.0, -4.0]))
    assert drawn[3] == 0
    np.testing.assert_allclose(drawn[:3] / 20_000, expected / expected.sum(), atol=0.015)
    all_of_them = draw_positions(confidence, masked, 9, 0.5, rng)
    assert all_of_them.tolist() == masked.tolist()


# Guidance and suppression


@torch.inference_mode()
def test_guidance_moves_away_from_what_is_likely_without_the_prompt() -> None:
    model = network()
    canvas = np.full((2, 8), MASK)
    canvas[1, 3] = 7
    request = Rows(
        np.array(PROMPT), canvas, canvas == MASK, 0, 8, np.zeros((2, 8, 1)), 0.0,
        look_ahead=False, statistics=False, label="a test", guidance=1.5, suppressed=(9,),
    )  # fmt: skip
    (found,) = Forward(model)([request])
    for row in range(2):
        tokens = torch.tensor([PROMPT + canvas[row].tolist()])
        without = tokens.clone()
        without[0, : len(PROMPT)] = MASK
        given, bare = (model.head(model.encode(one)[0]).double() for one in (tokens, without))
        logits = bare + 2.5 * (given - bare)
        logits[:, [MASK, 9]] = -torch.inf
        logp = torch.log_softmax(logits[len(PROMPT) :].clamp(-100, 100), -1)
        masked = canvas[row] == MASK
        assert found.top[row][masked].tolist() == logp.argmax(-1)[masked].tolist()
        np.testing.assert_allclose(found.top_logp[row][masked], logp.amax(-1)[masked], atol=1e-4)
