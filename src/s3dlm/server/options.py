"""What the page may offer: plain data about methods, tasks, examples, defaults and limits."""

from __future__ import annotations

from functools import cache
from typing import Any

from s3dlm import tasks
from s3dlm.search.methods import METHODS
from s3dlm.server.schemas import CHOICES
from s3dlm.server.service import Service
from s3dlm.tasks import recommended
from s3dlm.tasks.problems import GENERATORS, problems

EXAMPLES_PER_TASK = 3
GENERAL = (
    (
        "gsm8k",
        "Natalia sold clips to 48 friends in April, and half as many in May. How many in all?",
    ),
    ("math500", "What is the remainder when 7^100 is divided by 5?"),
    ("countdown", "Target: 45 Numbers: 8, 7, 11"),
)  # for models that were not trained on our generated tasks


def options(service: Service) -> dict[str, Any]:
    """The page's whole knowledge of this server."""
    return {
        "model": service.name,
        "defaults": dict(service.defaults),
        "methods": {name: row.summary for name, row in METHODS.items()},
        "knobs": {name: row.knobs() for name, row in METHODS.items()},
        "choices": CHOICES,
        "tasks": _tasks(service),
        "verifiers": sorted(service.verifiers),
        "examples": examples(service.model.name),
        "limits": {name: getattr(service.limits, name) for name in ("length", "children", "steps")},
    }


def _tasks(service: Service) -> list[str]:
    """The model's own tasks first."""
    first = [name for name in recommended.tasks(service.model.name) if name in service.task_names]
    return [*first, *(name for name in tasks.names() if name not in first)]


@cache
def examples(model: str) -> list[dict[str, str]]:
    """Problems to try: for each task the model was made for, some of the test split."""
    own = [task for task in recommended.tasks(model) if task in GENERATORS]
    if not own:
        return [{"task": task, "prompt": prompt} for task, prompt in GENERAL]
    drawn = [problems(task, "test", EXAMPLES_PER_TASK) for task in own]
    return [  # one of each task first, so that the row shows what there is
        {"task": problem.task, "prompt": problem.question}
        for row in zip(*drawn, strict=True)
        for problem in row
    ]
