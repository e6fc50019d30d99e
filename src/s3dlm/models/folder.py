"""What a model folder must hold, checked without opening a single weight.

Kept free of torch, so that listing what is on disk stays instant. Weights are safetensors: a pickle
runs code when it is opened, and is refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from s3dlm.errors import ModelError

INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
LARGEST_JSON = 64 * 2**20  # bytes; the index of a 1 T model has fewer


def read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise ModelError(f"{path.parent} has no {path.name}, so it is not a model folder")
    if not path.is_file():
        raise ModelError(f"{path} is not a regular file")
    if path.stat().st_size > LARGEST_JSON:
        raise ModelError(f"{path} has {path.stat().st_size} bytes; at most {LARGEST_JSON} are read")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


def shards(folder: Path) -> list[Path]:
    """The files of a checkpoint, whole or in shards."""
    if (folder / INDEX).is_file():
        return _indexed(folder)
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ModelError(
            f"{folder} holds only pickled weights ({pickles[0]}), which run code when opened; "
            "convert them to model.safetensors first (safetensors.torch.save_file)"
        )
    raise ModelError(f"{folder} holds neither model.safetensors nor {INDEX}")


def _indexed(folder: Path) -> list[Path]:
    names = read_json(folder / INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ModelError(f"{folder / INDEX} has no weight_map")
    files = sorted({str(name) for name in names.values()})
    if odd := [
        name for name in files if Path(name).name != name or not name.endswith(".safetensors")
    ]:
        raise ModelError(
            f"{folder / INDEX} names {odd[0]!r}; shards are .safetensors files beside it"
        )
    if gone := [name for name in files if not (folder / name).is_file()]:
        raise ModelError(
            f"{len(gone)} of {len(files)} shards are missing in {folder}, first {gone[0]}; "
            "finish the download"
        )
    return [folder / name for name in files]
