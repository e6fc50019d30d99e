"""Survivors, traces and runs as lists of flat dictionaries, ready for `pandas.DataFrame(...)`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from s3dlm.engine import Result
from s3dlm.evaluation import manifest, records
from s3dlm.search.step import Step


def survivors(result: Result) -> list[dict[str, Any]]:
    """One row per survivor; parts of its score as columns `part.NAME`."""
    rows = []
    for index, survivor in enumerate(result.survivors):
        row = {"survivor": index, **dataclasses.asdict(survivor)}
        parts = _parts(row.pop("parts"))
        rows.append({**row, **parts, "chosen": survivor.text == result.text})
    return rows


def steps(events: Iterable[Step | Result]) -> list[dict[str, Any]]:
    """One row per denoising step of a stream or a recorded trace."""
    plain = ("nfe", "ess", "unique_ancestors", "resampled")
    return [
        {
            "step": event.index,
            **{name: getattr(event, name) for name in plain},
            "score": float(event.score.mean()),
            "best_score": float(event.score.max()),
            "confidence": float(event.confidence.mean()),
        }
        for event in events
        if isinstance(event, Step)
    ]


def children(events: Iterable[Step | Result]) -> Iterator[dict[str, Any]]:
    """One row per child of every step: parent, score, and number of offspring."""
    for event in events:
        if not isinstance(event, Step):
            continue
        for child in range(event.parent.size):
            yield {
                "step": event.index,
                "child": child,
                "parent": int(event.parent[child]),
                **{n: float(getattr(event, n)[child]) for n in ("score", "weight", "confidence")},
                "offspring": int((event.survivor == child).sum()),
                **_parts(event.parts[child]),
            }


def runs(folder: str | Path) -> list[dict[str, Any]]:
    """One row per record of an evaluated run, with task and method of its condition."""
    path = Path(folder)
    conditions = {condition.spec: condition for condition in manifest.read(path).conditions}
    plain = ("sample", "seed", "correct", "answer", "nfe", "nfe_logical", "tokens", "seconds")
    return [
        {
            "task": conditions[record.spec].task,
            "method": conditions[record.spec].label,
            **{name: getattr(record, name) for name in plain},
        }
        for record in records.read(path)
        if record.spec in conditions
    ]


def _parts(parts: Any) -> dict[str, float]:
    return {f"part.{name}": float(value) for name, value in parts.items()}
