"""Outputs of any model, from a JSONL file that may come from anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s3dlm.errors import RecordError

# The names by which the field writes its files.
QUESTION_KEYS = ("question", "prompt", "problem", "input")
OUTPUT_KEYS = ("output", "text", "generation", "generations", "response", "completion")
GOLD_KEYS = ("gold", "answer", "ground_truth", "target", "solution")


@dataclass(frozen=True, slots=True)
class Row:
    """One output to one question, and the line of the file it stands on."""

    line: int
    question: str
    output: str
    gold: object = None
    confidence: float | None = None
    group: str | None = None


def read_rows(path: str | Path, task: str, by: str = "gen_length") -> tuple[list[Row], int]:
    """The lines of a file that belong to a task, and how many belong to others."""
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{str(path)!r} cannot be read: {error}") from error
    rows, skipped = [], 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        data = _object(path, number, line)
        if data.get("task", task) != task:
            skipped += 1
            continue
        rows.append(_row(path, number, data, by))
    if not rows:
        raise RecordError(
            f"{str(path)!r} holds no output of task {task!r} ({skipped} of other tasks)"
        )
    return rows, skipped


def _object(path: str | Path, number: int, line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise RecordError(f"{path}, line {number} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RecordError(f"{path}, line {number} is {type(data).__name__}; it must be an object")
    return data


def _row(path: str | Path, number: int, data: Mapping[str, Any], by: str) -> Row:
    question, output = _first(data, QUESTION_KEYS), _first(data, OUTPUT_KEYS)
    if not isinstance(question, str) or not isinstance(output, str):
        raise RecordError(
            f"{path}, line {number} has the keys {sorted(data)}; it needs a text under 'question' "
            "and a text under 'output'"
        )
    confidence = data.get("confidence")
    if confidence is not None and not isinstance(confidence, (int, float)):
        raise RecordError(f"{path}, line {number}: confidence={confidence!r} is no number")
    group = f"{by}={data[by]}" if by in data else None
    return Row(number, question, output, _first(data, GOLD_KEYS), confidence, group)


def _first(data: Mapping[str, Any], keys: Sequence[str]) -> object:
    return next((data[key] for key in keys if key in data), None)
