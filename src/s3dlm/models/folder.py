"""The models that are known by name; and from a name to its folder, on this disk or in the Hugging Face hub's cache,
and what it holds.

What is complete in the cache is used without asking the network; HF_HOME and HF_HUB_OFFLINE mean
what they mean everywhere. Only weights in safetensors, configs and tokenizer files are fetched: a
pickle runs code when it is opened, and is refused. Nothing here opens weights or needs torch, so that
listing what is on disk stays instant.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.base import Defaults
from s3dlm.verifier.names import bundled_verifiers

BUNDLED = {name: Path(__file__).parent / name for name in ("tiny", "sudoku9", "noisy9")}
DEFAULTS_FILE = "s3dlm.json"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
LARGEST_JSON = 64 * 2**20  # bytes; the index of a 1 T model has fewer
FETCHED = ("*.safetensors", "*.json", "tokenizer*", "vocab*", "merges.txt", "*.model", "*.jinja")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Known:
    """One model of `s3dlm list models`."""

    name: str
    family: str
    size: str
    notes: str
    cached: bool = False
    revision: str | None = None  # the commit on this disk


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
        Known(
            "nvidia/Nemotron-Labs-Diffusion-3B", "Nemotron-Labs-Diffusion", "3 B", "in blocks of 32"
        ),
        Known(
            "google/diffusiongemma-26B-A4B-it",
            "DiffusionGemma",
            "26 B",
            "uniform noise; 4 B active",
        ),
        Known("inclusionAI/LLaDA2.0-mini", "LLaDA2", "16 B", "1.4 B active; in blocks of 32"),
    )
}


def find_folder(name: str, *, code: bool = False) -> Path:
    """The folder a name stands for.

    Args:
        name: A folder, or a hub id; what follows an @ pins a commit, tag or branch of the hub.
        code: Whether the repository's own Python files are fetched, too.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    hub_id, _, revision = name.partition("@")
    if HUB_ID.fullmatch(hub_id) and not hub_id.startswith("."):
        cached = cached_folder(hub_id, revision or None)
        if cached and (not code or any(cached.glob("*.py"))):
            return cached
        return download(hub_id, revision or None, (*FETCHED, "*.py") if code else FETCHED)
    raise ModelError(
        f"{name!r} is neither an existing folder nor a hub id such as GSAI-ML/LLaDA-8B-Instruct; "
        "`s3dlm list models` lists the known names"
    )


def revision_of(folder: Path) -> str | None:
    """The commit that a folder of the hub's cache holds."""
    return folder.name if folder.parent.name == "snapshots" else None


def cached_folder(name: str, revision: str | None = None) -> Path | None:
    """The cached snapshot of a hub id, if all of its weights are there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, revision=revision, local_files_only=True))
        shards(folder)
    except (LocalEntryNotFoundError, ModelError):
        return None
    return folder if (folder / "config.json").is_file() else None


def known() -> list[Known]:
    """The known models, and which of them are on this disk."""
    rows = []
    for row in KNOWN.values():
        folder = BUNDLED.get(row.name) or cached_folder(row.name)
        revision = None if folder is None else revision_of(folder)
        rows.append(replace(row, cached=folder is not None, revision=revision))
    return rows


def download(name: str, revision: str | None, files: tuple[str, ...]) -> Path:
    """Fetch some files of a hub id."""
    from huggingface_hub import constants, errors, snapshot_download

    at = "" if revision is None else f" at revision {revision}"
    if constants.HF_HUB_OFFLINE:
        raise ModelError(
            f"{name}{at} is not in the hub's cache ({constants.HF_HUB_CACHE}) and HF_HUB_OFFLINE "
            f"is set; unset it, or fetch the model on a machine with a network: hf download {name}"
        )
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except OSError as error:  # also what the hub answers
        reason = (
            f"{name} is not cached and the hub cannot be reached; check the network, or put a copy "
            f"in the cache ({constants.HF_HUB_CACHE}), or pass a local folder"
        )
        if isinstance(error, errors.GatedRepoError):  # a kind of RepositoryNotFoundError
            reason = f"{name} is gated; accept its licence on the hub, then: hf auth login"
        elif isinstance(error, errors.RevisionNotFoundError):
            reason = f"the hub has no revision {revision!r} of {name}"
        elif isinstance(error, errors.RepositoryNotFoundError):
            reason = f"the hub has no model {name}, or it is private (then: hf auth login)"
        raise ModelError(reason) from error


def check_file(path: Path, largest: int) -> None:
    """Refuse what is no file of a sensible size, before anything tries to read it."""
    if not path.is_file():
        raise ModelError(f"{path} is not a regular file")
    if path.stat().st_size > largest:
        raise ModelError(f"{path} has {path.stat().st_size} bytes; at most {largest} are read")


def read_json(path: Path, largest: int = LARGEST_JSON) -> dict[str, Any]:
    """The JSON object in a file of a model folder."""
    if not path.exists():
        raise ModelError(f"{path.parent} has no {path.name}, so it is not a model folder")
    check_file(path, largest)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


def shards(folder: Path) -> list[Path]:
    """The files of a checkpoint, whole or in shards."""
    index = folder / INDEX
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ModelError(f"{index} has no weight_map")
        files = sorted({str(name) for name in names.values()})
        for name in files:
            if Path(name).name != name or not name.endswith(".safetensors"):
                raise ModelError(f"{index} names {name!r}; shards are .safetensors files beside it")
        if gone := [name for name in files if not (folder / name).is_file()]:
            raise ModelError(
                f"{len(gone)} of {len(files)} shards are missing in {folder}, first {gone[0]}; "
                "finish the download"
            )
        return [folder / name for name in files]
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    if pickles := sorted(path.name for pattern in PICKLES for path in folder.glob(pattern)):
        raise ModelError(
            f"{folder} holds only pickled weights ({pickles[0]}), which run code when opened; "
            "convert them to model.safetensors first (safetensors.torch.save_file)"
        )
    raise ModelError(f"{folder} holds neither model.safetensors nor {INDEX}")


def defaults_in(folder: Path) -> Defaults:
    """The recommendations of a checkpoint folder; without its file, the paper's settings."""
    if not (folder / DEFAULTS_FILE).is_file():
        return Defaults()
    data = read_json(folder / DEFAULTS_FILE)
    allowed = {"prompt_style": str, "tasks": list, "settings": dict}
    for name, value in data.items():
        if name not in allowed or not isinstance(value, allowed[name]):
            raise ModelError(
                f"{folder / DEFAULTS_FILE}: {name!r} is not allowed; the file may have prompt_style (a "
                "name), tasks (names) and settings (an object of objects)"
            )
    for name, settings in data.get("settings", {}).items():
        verifier = settings.get("verifier", "paper") if isinstance(settings, dict) else settings
        if verifier not in bundled_verifiers():
            raise ModelError(
                f"{folder / DEFAULTS_FILE}: settings {short_repr(name)} have the verifier "
                f"{short_repr(verifier)}; a model's file may name only {' or '.join(bundled_verifiers())}, "
                "which run nothing and open no connection; name another one yourself"
            )
    if "tasks" in data:
        data["tasks"] = tuple(data["tasks"])
    return Defaults(**data)


def defaults_of(name: str) -> Defaults:
    """The recommendations of a model by name, without loading it."""
    folder = BUNDLED.get(name, Path(name))
    return defaults_in(folder) if folder.is_dir() else Defaults()
