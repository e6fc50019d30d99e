"""What DiffusionGemma at full size takes, without its weights: `python -m tools.diffusion_gemma_plan [config.json]`.

The network is built on the meta device and one pass over four canvases is run there, so shapes are checked and
no memory is asked for. Without a file the sizes are those of 26B-A4B as far as they are known here.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from s3dlm.extras.diffusion_gemma import DiffusionGemma
from s3dlm.models.base import Noise

SIZES = {"hidden_size": 2816, "intermediate_size": 2112, "num_hidden_layers": 30,
         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
         "num_global_key_value_heads": 2, "sliding_window": 1024, "num_experts": 128,
         "top_k_experts": 8, "moe_intermediate_size": 704}  # fmt: skip
PARTICLES, PROMPT, BFLOAT16, FLOAT32 = 4, 1024, 2, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, nargs="?", help="a config.json")
    file = parser.parse_args().config
    stated = json.loads(file.read_text()) if file else {"text_config": SIZES}
    config = DiffusionGemmaConfig(**stated)
    with torch.device("meta"):
        inner = DiffusionGemmaForBlockDiffusion(config).bfloat16().eval()
        inner.requires_grad_(False)
    canvas, text = int(config.canvas_length), config.text_config
    denoiser = DiffusionGemma(inner, Noise(canvas=canvas))
    tokens = torch.zeros(PARTICLES, canvas, dtype=torch.long, device="meta")
    with torch.device("meta"):
        features = denoiser.encode_canvas(list(range(PROMPT)), tokens, None)
    assert features.shape == (PARTICLES, canvas, text.hidden_size)
    cache = denoiser._prefixes[tuple(range(PROMPT))]
    keys = sum(one.keys.numel() + one.values.numel() for one in cache.layers)
    weights = sum(weight.numel() for weight in {id(w): w for w in inner.parameters()}.values())
    plan = {
        "weights, bfloat16": weights * BFLOAT16,
        f"keys and values of a prompt of {PROMPT}, shared": keys * BFLOAT16,
        "vectors of a particle, float32": canvas * text.hidden_size * FLOAT32,
        "instead of its logits, bfloat16": canvas * text.vocab_size * BFLOAT16,
    }
    print(f"{weights:,} parameters; one pass of {PARTICLES} canvases: {tuple(features.shape)}")
    for name, size in plan.items():
        print(f"{size / 2**20:>12,.1f} MiB  {name}")


if __name__ == "__main__":
    main()
