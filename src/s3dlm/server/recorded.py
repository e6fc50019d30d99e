"""Recorded searches of evaluation runs, for the page: a table of names, so that no request is a path."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.errors import SettingsError

MOST_HEADER = 1 << 20  # bytes of a trace's first line


@dataclass(frozen=True, slots=True)
class Recorded:
    """The traces of some folders that `s3dlm eval --traces` wrote."""

    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, folders: Iterable[Path]) -> Recorded:
        found = tuple(folders)
        for folder in found:
            if not folder.is_dir():
                raise SettingsError(
                    f"--runs {folder} is not a folder; give one that `s3dlm eval --traces` wrote"
                )
        return cls(found)

    def files(self) -> dict[str, Path]:
        """Every trace there is now, by the name under which it is offered."""
        return {
            f"{folder.resolve().name}/{path.stem}": path
            for folder in self.folders
            for path in sorted((folder / "traces").glob("*.jsonl"))
        }

    def listing(self) -> list[dict[str, Any]]:
        """What is known of every trace before it is opened; damaged ones are left out."""
        return [row for id, path in self.files().items() if (row := _row(id, path)) is not None]


def _row(id: str, path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            header = json.loads(file.readline(MOST_HEADER))
        return {
            "id": id,
            "run": id.partition("/")[0],
            "sample": path.stem.partition("-")[2],
            "task": header["task"],
            "method": header["settings"]["method"],
            "question": header["question"],
            "correct": header.get("correct"),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None
