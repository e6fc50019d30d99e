"""Heads of reward models on diffusion models, stored as adapters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

import s3dlm
from s3dlm.errors import VerifierError
from s3dlm.models.transformer import Transformer
from s3dlm.verifier import as_verifier
from tests.models.test_lora import adapter, merged


@pytest.mark.parametrize("pooled", ["mean", "last_token"])
@pytest.mark.parametrize("process", [False, True])
def test_a_reward_head_on_a_diffusion_model(tmp_path: Path, pooled: str, process: bool) -> None:
    """As published: factors named as in the trained module, `config.json`, and a head beside them."""
    made = adapter(tmp_path / "adapter")
    factors, width = load_file(made / "adapter_model.safetensors"), 0
    base = s3dlm.load(str(merged(tmp_path / "whole", made, 2.0)))
    assert isinstance(base.denoiser, Transformer)
    width = base.denoiser.config.width
    shapes = {"reward_head.weight": (1, width), "reward_head.bias": (1,)}
    if process:
        shapes = {"step_proj.0.weight": (6, 6), "step_proj.0.bias": (6,),
                  "reward_head.0.weight": (5, width + 6), "reward_head.0.bias": (5,),
                  "reward_head.2.weight": (1, 5), "reward_head.2.bias": (1,)}  # fmt: skip
    head = {name: torch.randn(shape) / 4 for name, shape in shapes.items()}
    published = tmp_path / "published"
    published.mkdir()
    inside = {
        f"backbone.{key.replace('.weight', '.default.weight')}": t for key, t in factors.items()
    }
    save_file({**inside, **head}, published / "adapter.safetensors")
    config = {"base_model": "tiny", "lora": {"r": 4, "alpha": 8}, "pool_strategy": pooled}
    (published / "config.json").write_text(json.dumps(config))
    texts = ["Step 1: 3 + 4 = 7", "so it is 8, or perhaps another one"]
    verifier = as_verifier(f"orm:{published}")
    found = verifier.score_batch(["What is 3 + 4?"] * 2, texts, [None, None])
    for text, score in zip(texts, found, strict=True):
        prefix, body = base.tokenizer.chat("What is 3 + 4?"), base.tokenizer.encode(text)
        with torch.inference_mode():
            own = base.denoiser.body(torch.tensor([prefix + body]), None)[0, len(prefix) :]
        x = own[-1] if pooled == "last_token" else own.mean(0)
        if process:
            step = torch.tensor([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
            step = F.gelu(step @ head["step_proj.0.weight"].T + head["step_proj.0.bias"])
            x = torch.cat((x, step))
            x = F.gelu(x @ head["reward_head.0.weight"].T + head["reward_head.0.bias"])
            reward = (x @ head["reward_head.2.weight"].T + head["reward_head.2.bias"]).item()
        else:
            reward = (x @ head["reward_head.weight"].T + head["reward_head.bias"]).item()
        assert score.parts["reward"] == pytest.approx(reward, abs=1e-4)
        assert score.total == pytest.approx(torch.sigmoid(torch.tensor(reward)).item(), abs=1e-4)


def test_an_adapter_without_a_head_is_no_reward_model(tmp_path: Path) -> None:
    with pytest.raises(VerifierError, match="no reward model"):
        as_verifier(f"orm:{adapter(tmp_path / 'adapter')}")
