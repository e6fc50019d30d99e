"""The recommendations of a checkpoint folder, in its file `s3dlm.json`.

A folder without one gets the paper's settings. Reading it needs no torch, so commands can tell before
the weights are loaded.
"""

from __future__ import annotations

from pathlib import Path

from s3dlm.errors import ModelError, short_repr
from s3dlm.models.base import Defaults
from s3dlm.models.folder import read_json
from s3dlm.verifier.names import bundled_verifiers

DEFAULTS_FILE = "s3dlm.json"
BUNDLED = {name: Path(__file__).parent / name for name in ("tiny", "sudoku9", "noisy9")}


def defaults_in(folder: Path) -> Defaults:
    """The recommendations of a checkpoint folder."""
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
