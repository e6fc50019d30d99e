"""Load and run a model of LLaDA-8B's size without having its weights.

Writes a random checkpoint with LLaDA-8B's config (16 GB in six shards), loads it, runs a few steps
of `s3` on it, prints load time, peak memory and time per step, and deletes it. The answer is noise;
what this shows is that loading, memory and a search hold at full size.

    python -m tools.full_size --folder /somewhere/with/18/GB
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import s3dlm
from s3dlm.models.checkpoint import layout
from s3dlm.models.families import LLADA_NAMES
from s3dlm.models.family import TransformerConfig
from s3dlm.models.folder import BUNDLED
from s3dlm.models.transformer import Transformer
from tools.networks import llada_config

GIB = 2**30
SHARDS = 6


def config(layers: int) -> TransformerConfig:
    """The numbers of LLaDA-8B's config.json."""
    return TransformerConfig(
        vocabulary=126464, width=4096, layers=layers, heads=32, hidden=12288, mask_id=126336,
        context=4096, rope_theta=500_000.0,
    )  # fmt: skip


def write_checkpoint(folder: Path, shape: TransformerConfig) -> int:
    """Random weights in shards, with the tokenizer of `tiny`; the bytes written."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(BUNDLED["tiny"] / name, folder / name)
    described = json.loads((folder / "tokenizer_config.json").read_text())
    described.pop("mask_token", None)  # LLaDA's mask is not among the ids of `tiny`
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    (folder / "config.json").write_text(json.dumps(llada_config(shape, end_id=126081)))
    slots, noise = layout(shape, LLADA_NAMES), _noise()
    names, where, total = list(slots), {}, 0
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        part = {}
        for name in names[shard::SHARDS]:
            part[name] = _random(slots[name].shape, noise)
            total += part[name].nbytes
        save_file(part, folder / file)
        where |= dict.fromkeys(part, file)
        print(f"wrote {file}", flush=True)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def _noise() -> torch.Tensor:
    """Random numbers that are used again and again: eight billion fresh ones would take minutes."""
    random = torch.Generator().manual_seed(0)
    return torch.rand(2**22 + 7, generator=random).sub_(0.5).mul_(0.06).bfloat16()


def _random(shape: tuple[int, ...], noise: torch.Tensor) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    size = torch.Size(shape).numel()
    return noise.repeat(-(-size // len(noise)))[:size].view(shape).clone()


def peak_memory() -> int:
    """The most memory this process has had, on the GPU if there is one."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(folder: Path, steps: int) -> dict[str, Any]:
    started = time.perf_counter()
    model = s3dlm.load(str(folder), dtype="bfloat16", progress=False)
    loaded = time.perf_counter() - started
    network = model.denoiser
    assert isinstance(network, Transformer)
    weights = sum(parameter.nbytes for parameter in network.parameters())
    after_load = peak_memory()
    settings = s3dlm.Settings(
        method="s3", gen_length=16, steps=steps, block_length=16, particles=2, temperature=1.0
    )
    started = time.perf_counter()
    result = s3dlm.generate(model, "2 + 2?", settings=settings)
    return {
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "device": str(network.device),
        "load_seconds": round(loaded, 1),
        "weights_gib": round(weights / GIB, 2),
        "peak_after_load_gib": round(after_load / GIB, 2),
        "peak_after_search_gib": round(peak_memory() / GIB, 2),
        "search_seconds": round(time.perf_counter() - started, 1),
        "steps": steps,
        "nfe": result.nfe,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--folder", type=Path, help="where to write; default: the system's own")
    parser.add_argument("--layers", type=int, default=32, help="fewer for a quick look")
    parser.add_argument("--steps", type=int, default=2, help="denoising steps to run")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.steps), indent=2))
        return
    shape = config(options.layers)
    slots = layout(shape, LLADA_NAMES).values()
    need = 2 * sum(torch.Size(slot.shape).numel() for slot in slots)
    free = shutil.disk_usage(options.folder or tempfile.gettempdir()).free
    if free < 1.1 * need:
        parser.error(f"{need / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free there")
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        write_checkpoint(Path(name), shape)
        _measure_in_own_process(name, options.steps)


def _measure_in_own_process(folder: str, steps: int) -> None:
    """A process of its own, whose peak is not that of writing."""
    import subprocess
    import sys

    command = [sys.executable, __file__, "--measure", folder, "--steps", str(steps)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
