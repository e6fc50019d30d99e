"""What `s3dlm list models` lists: known checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from s3dlm.models.folder import BUNDLED, cached_folder, revision_of


@dataclass(frozen=True, slots=True)
class Known:
    """One model of `s3dlm list models`."""

    name: str
    family: str
    size: str
    notes: str
    cached: bool = False
    revision: str | None = None  # the commit on this disk


UNSEEN = "checked with random weights, never run with the published ones"
KNOWN: dict[str, Known] = {
    row.name: row
    for row in (
        Known("tiny", "LLaDA", "0.9 M", "bundled; five small tasks"),
        Known("sudoku9", "LLaDA", "0.2 M", "bundled; 9×9 Sudoku grids"),
        Known("noisy9", "LLaDA", "0.2 M", "bundled; sudoku9 without masks"),
        Known("GSAI-ML/LLaDA-8B-Instruct", "LLaDA", "8 B", "the paper's model"),
        Known("GSAI-ML/LLaDA-8B-Base", "LLaDA", "8 B", "no chat template"),
        Known("GSAI-ML/LLaDA-1.5", "LLaDA", "8 B", "LLaDA, preference-tuned"),
        Known("GSAI-ML/iLLaDA-8B-Instruct", "iLLaDA", "8 B", "tensor names never seen here"),
        Known("Dream-org/Dream-v0-Instruct-7B", "Dream", "7 B", "from Qwen2.5; shifted by one"),
        Known("Dream-org/Dream-v0-Base-7B", "Dream", "7 B", "from Qwen2.5; shifted by one"),
        Known("Dream-org/Dream-Coder-v0-Instruct-7B", "Dream", "7 B", "code"),
        Known("apple/DiffuCoder-7B-Instruct", "Dream", "7 B", "code"),
        Known("apple/DiffuCoder-7B-cpGRPO", "Dream", "7 B", "code, after RL"),
        Known("dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1", "A2D Qwen3", "0.6 B", "for a laptop"),
        Known("dllm-hub/Qwen3-0.6B-diffusion-bd3lm-v0.1", "A2D Qwen3", "0.6 B", "in blocks of 32"),
        Known("JetLM/SDAR-1.7B-Chat", "SDAR", "1.7 B", "in blocks of 4"),
        Known("JetLM/SDAR-8B-Chat", "SDAR", "8 B", "in blocks of 4"),
        Known("Gen-Verse/TraDo-8B-Instruct", "SDAR", "8 B", "SDAR after RL, in blocks of 4"),
        Known("Efficient-Large-Model/Fast_dLLM_v2_7B", "Fast-dLLM v2", "7 B", "in blocks of 32"),
        Known("Gen-Verse/MMaDA-8B-MixCoT", "MMaDA (text)", "8 B", "tensor names never seen here"),
        Known("inclusionAI/LLaDA-MoE-7B-A1B-Instruct", "LLaDA-MoE", "7 B", "1.4 B active"),
        Known("nvidia/Nemotron-Labs-Diffusion-3B", "Nemotron-Labs-Diffusion", "3 B", UNSEEN),
        Known("google/diffusiongemma-26B-A4B-it", "DiffusionGemma", "26 B", UNSEEN),
        Known("inclusionAI/LLaDA2.0-mini", "LLaDA2", "16 B", "1.4 B active; in blocks of 32"),
    )
}


def known() -> list[Known]:
    """The known models, and which of them are on this disk."""
    rows = []
    for row in KNOWN.values():
        folder = BUNDLED.get(row.name) or cached_folder(row.name)
        revision = None if folder is None else revision_of(folder)
        rows.append(replace(row, cached=folder is not None, revision=revision))
    return rows
