"""Adaptive reveal: the rule against a literal version, and particles at their own pace."""

from __future__ import annotations

import pytest
import torch

import s3dlm
from s3dlm.models.base import Model
from s3dlm.settings import Settings
from tests.fakes import END, MASK, QUESTION, fake_model, search
from tests.fakes import small as usual

# 3 blocks, the last one shorter.
SMALL = {
    "gen_length": 56, "block_length": 24, "temperature": 1.0, "reveal": "threshold",
    "reveal_threshold": 0.22,
}  # fmt: skip


def small(method: str, **options: object) -> Settings:
    return usual(method, SMALL, **options)


def unsure(**options: float) -> Model:
    """A model whose confidence differs from step to step."""
    return fake_model(push=7.0, noise=4.0, **options)


def literal(model: Model, least: float, length: int, block: int) -> tuple[str, int]:
    """Fast-dLLM's greedy decoding, block by block: all from the threshold up are revealed, and the most
    confident one in any case. The text and the forward passes it took."""
    prompt = model.tokenizer.chat(QUESTION)
    canvas, passes = [MASK] * length, 0
    for start in range(0, length, block):
        places = range(start, min(start + block, length))
        while hidden := [place for place in places if canvas[place] == MASK]:
            known = canvas[: canvas.index(MASK)]
            if END in known:
                break  # the text is complete
            logits = model.denoiser.encode(torch.tensor([prompt + canvas]))[0, len(prompt) :]
            logits[:, MASK] = -torch.inf
            passes += 1
            best = logits.double().softmax(-1).max(-1)
            surest = max(hidden, key=lambda place: float(best.values[place]))
            for place in hidden:
                if place == surest or best.values[place] >= least:
                    canvas[place] = int(best.indices[place])
    text = canvas[: canvas.index(END)] if END in canvas else canvas
    return model.tokenizer.decode(text), passes


@pytest.mark.parametrize("block", [8, 24, 56])
@pytest.mark.parametrize("number", [0.22, 0.4])
def test_greedy_is_the_literal_rule_token_for_token(number: float, block: int) -> None:
    settings = small("greedy", block_length=block, reveal_threshold=number)
    result = s3dlm.generate(unsure(), QUESTION, settings=settings)
    assert (result.text, result.nfe) == literal(unsure(), number, 56, block)
    assert result.nfe < 56


def test_particles_reveal_at_their_own_pace_and_open_their_own_blocks() -> None:
    settings = small("best_of_k", gen_length=48)
    steps, _ = search(settings, unsure())
    hidden = [(step.tokens == MASK).sum(axis=1) for step in steps]
    assert any(len(set(one.tolist())) > 2 for one in hidden)
    opened = [{int(row.argmax()) // 24 for row in step.tokens == MASK} for step in steps]
    assert any(len(one) > 1 for one in opened)


def test_settings_change_from_one_rule_to_another() -> None:
    scheduled = Settings("s3", steps=32, gen_length=64, policy="margin")
    adaptive = scheduled.replace(reveal="threshold", reveal_threshold=0.9)
    assert adaptive.decoding.steps == 64  # the most
    assert "steps" not in adaptive.to_json()
    assert Settings.from_json(adaptive.to_json()) == adaptive
    assert adaptive.replace(method="hex").decoding.reveal == "threshold"
