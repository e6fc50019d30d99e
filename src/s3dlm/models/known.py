"""What `s3dlm list models` lists: known checkpoints, those of other packages, and the families."""

from __future__ import annotations

from dataclasses import dataclass, replace

from s3dlm.inputs import find_entry_points
from s3dlm.models.families import FAMILIES
from s3dlm.models.folder import BUNDLED, cached_folder, revision_of

ENTRY_POINTS = "s3dlm.models"  # each a function (*, device, dtype) -> Model


@dataclass(frozen=True, slots=True)
class Known:
    """One model of `s3dlm list models`."""

    name: str
    family: str
    size: str
    notes: str
    support: str = "native"  # or: transformers, plugin
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
        Known("google/diffusiongemma-26B-A4B-it", "DiffusionGemma", "26 B", UNSEEN, "transformers"),
        Known("inclusionAI/LLaDA2.0-mini", "LLaDA2", "16 B", "1.4 B active; in blocks of 32"),
    )
}


def families() -> list[dict[str, object]]:
    """Every supported family, as its checkpoints are read, and what was proven of it; of the native
    ones, only bundled weights have been run."""
    names = ("family", "model_types", "attention", "mask_id", "support", "proven", "examples")
    rows: list[tuple[object, ...]] = []
    mask = "config.json, else tokenizer"
    for row in FAMILIES:
        kind = "causal prefix, bidirectional block of" if row.causal_prefix else "block-causal,"
        attention = "bidirectional" if row.block is None else f"{kind} {row.block}"
        source = mask if row.mask_id is None else f"{mask}, else {row.mask_id}"
        assumed = "" if row.checked else "; tensor names are assumed"
        proven = f"logits: {row.parity}; greedy decoding: {row.sampler}{assumed}"
        rows.append((row.name, row.model_types, attention, source, "native", proven, row.examples))
    rows.append((
        "masked language models", ("bert", "roberta", "modernbert", "…"), "bidirectional", mask, "transformers",
        "logits: transformers itself, checked at load; greedy decoding: LLaDA's; real weights run",
        "BERT, RoBERTa, ModernBERT and their chat versions",
    ))  # fmt: skip
    rows.append((
        "DiffusionGemma", ("diffusion_gemma",), "causal prefix, bidirectional block of 256",
        "none: uniform noise", "transformers",
        "logits and greedy decoding: transformers' own; random weights only, never the published ones",
        "DiffusionGemma 26B-A4B (text)",
    ))  # fmt: skip
    return [dict(zip(names, row, strict=True)) for row in rows]


def known() -> list[Known]:
    """The known models, what others have registered, and which of them are on this disk."""
    rows = []
    for row in KNOWN.values():
        folder = BUNDLED.get(row.name) or cached_folder(row.name)
        revision = None if folder is None else revision_of(folder)
        rows.append(replace(row, cached=folder is not None, revision=revision))
    for name, entry in find_entry_points(ENTRY_POINTS).items():
        package = entry.dist.name if entry.dist else entry.value
        rows.append(Known(name, "", "", f"from {package}", support="plugin", cached=True))
    return rows
