"""Recorded searches of evaluation runs, for the page: a table of names, so that no request is a path."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.errors import RecordError, SettingsError
from s3dlm.inputs import read_json_lines
from s3dlm.viewer.page import for_page

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
        return {id: path for folder in self.folders for id, path in _files(folder).items()}

    def listing(self) -> list[dict[str, Any]]:
        """What is known of every trace before it is opened: run by run, and in each by task, problem
        and method, in the run's order. Damaged ones are left out."""
        return [row for folder in self.folders for row in _rows(folder)]

    def trace(self, id: str) -> bytes | None:
        """A trace for the page; None if there is none of this name, or it is damaged."""
        path = self.files().get(id)
        if path is None:
            return None
        _, label = _conditions(path.parents[1]).get(_spec(path), (None, None))
        try:
            return for_page(path.read_bytes(), **({} if label is None else {"label": label}))
        except (OSError, ValueError, TypeError):
            return None


def _files(folder: Path) -> dict[str, Path]:
    name = folder.resolve().name
    return {f"{name}/{path.stem}": path for path in sorted((folder / "traces").glob("*.jsonl"))}


def _spec(path: Path) -> str:
    return path.stem.partition("-")[0]


def _conditions(folder: Path) -> dict[str, tuple[str, str]]:
    """Task and label of each of a run's conditions, in its order, by the spec in the names of their
    traces; empty if the manifest cannot be read."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        return {one["spec"]: (one["task"], one["label"]) for one in manifest["conditions"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _rows(folder: Path) -> list[dict[str, Any]]:
    conditions = _conditions(folder)
    specs, tasks = list(conditions), list(dict.fromkeys(task for task, _ in conditions.values()))
    found = []
    for id, path in _files(folder).items():
        row, spec = _row(id, path), _spec(path)
        if row is None:
            continue
        place = (len(tasks), row["sample"], 0)  # a trace that the manifest does not know comes last
        if spec in conditions:
            task, row["label"] = conditions[spec]
            place = (tasks.index(task), row["sample"], specs.index(spec))
        found.append((place, row))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _row(id: str, path: Path) -> dict[str, Any] | None:
    try:
        _, header = next(read_json_lines(path, longest=MOST_HEADER))
        return {
            "id": id,
            "run": id.partition("/")[0],
            "sample": path.stem.partition("-")[2],
            "task": header["task"],
            "method": header["settings"]["method"],
            "label": header["settings"]["method"],  # the run may have another name for it
            "question": header["question"],
            "correct": header.get("correct"),
        }
    except (RecordError, StopIteration, KeyError, TypeError):
        return None
