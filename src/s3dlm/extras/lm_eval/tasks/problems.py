"""Documents and grading of the tasks in this folder, for lm-evaluation-harness.

The harness passes `--model_args` and `--metadata` to `load`, so that the prompt style follows the
model, and `--metadata '{"data": "DIR", "prompts": "FILE.toml"}'` can name a folder of benchmark files and prompts
of your own (what the system says is the harness's `--system_instruction`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets

from s3dlm import tasks
from s3dlm.answers import grading
from s3dlm.models.folder import defaults_of
from s3dlm.tasks.prompts import read


def load(
    problems: str,
    model: Any = "tiny",
    data: str | None = None,
    prompt_style: str | None = None,
    split: str = "test",
    prompts: str | None = None,
    **_: Any,
) -> dict[str, datasets.Dataset]:
    """The problems of one of our tasks, each with its prompt; gold as JSON, whatever its type."""
    task = tasks.get(problems)
    defaults = defaults_of(str(model))
    style = prompt_style or defaults.prompt_style
    defaults = replace(
        defaults, prompt_style=style, prompts=None if prompts is None else read(prompts)
    )
    folder = None if data is None else Path(data)
    loaded = tasks.load(task, prompt_style=style, data=folder, split=split)

    def row(sample: tasks.Sample) -> dict[str, str]:
        prompt = defaults.prompt(task, sample.question)
        return {
            "id": sample.id,
            "task": problems,
            "question": sample.question,
            "prompt": prompt.user,
            "prefill": prompt.prefill,
            "gold": json.dumps(sample.gold),
        }

    return {"test": datasets.Dataset.from_list([*map(row, loaded.samples)])}


def grade(doc: Mapping[str, Any], results: list[str]) -> dict[str, float]:
    """One output graded against gold, as `s3dlm eval` does."""
    kind = tasks.get(doc["task"]).answer
    return {
        "acc": grading.grade(kind, results[0], json.loads(doc["gold"]), "fixed", doc["question"])
    }


def letters(doc: Mapping[str, Any]) -> list[str]:
    """The letters of a multiple-choice question's options."""
    lines = doc["question"].split("\n")
    return [line[0] for line in lines if len(line) > 2 and line[0].isupper() and line[1] in ".)"]


def letter(doc: Mapping[str, Any]) -> int:
    """The index of the correct one."""
    return letters(doc).index(json.loads(doc["gold"]))
