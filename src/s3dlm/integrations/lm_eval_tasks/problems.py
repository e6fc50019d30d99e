"""Documents and grading of the tasks in this folder, for the harness: our own, by our own names.

The harness hands `--model_args` and `--metadata` to whoever loads the data, so the prompt can follow
the model (its preset) and `--metadata '{"data": "DIR"}'` can name a folder of benchmark files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets

from s3dlm import answers, tasks


def load(
    problems: str,
    model: Any = "tiny",
    data: str | None = None,
    preset: str | None = None,
    split: str = "test",
    **_: Any,
) -> dict[str, datasets.Dataset]:
    """The problems of one of our tasks, each with its prompt; gold as JSON, whatever its type."""
    task = tasks.get(problems)
    preset = preset or tasks.default_preset(str(model))
    loaded = tasks.load(task, preset=preset, data=None if data is None else Path(data), split=split)
    rows = []
    for sample in loaded.samples:
        prompt = task.render(sample.question, preset)
        rows.append(
            {
                "id": sample.id,
                "task": problems,
                "question": sample.question,
                "prompt": prompt.user,
                "prefill": prompt.prefill,
                "gold": json.dumps(sample.gold),
            }
        )
    return {"test": datasets.Dataset.from_list(rows)}


def grade(doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
    """One output against gold, by the `fixed` preset of our own evaluation."""
    kind = tasks.get(doc["task"]).answer
    return {
        "acc": answers.grade(kind, results[0], json.loads(doc["gold"]), "fixed", doc["question"])
    }


def letters(doc: Mapping[str, Any]) -> list[str]:
    """The letters a multiple-choice question offers."""
    lines = doc["question"].splitlines()
    return [line[0] for line in lines if len(line) > 2 and line[0].isupper() and line[1] in ".)"]


def letter(doc: Mapping[str, Any]) -> int:
    """Which of them is right."""
    return letters(doc).index(json.loads(doc["gold"]))
