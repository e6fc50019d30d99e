"""Evaluation from Python in one call: `s3dlm.evaluate`. A module for each step: plan, run, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3dlm.evaluation.statistics import Cell
    from s3dlm.models.base import Model
    from s3dlm.verifier.base import ScoreFunction, Verifier


def evaluate(
    model: Model | str,
    tasks: str | Sequence[str] | None = None,
    methods: str | Sequence[str] | None = None,
    *,
    out: str | Path,
    limit: int | None = None,
    seeds: int = 1,
    split: str = "test",
    data: str | Path | None = None,
    verifier: Verifier | ScoreFunction | str | None = None,
    **settings: Any,
) -> dict[str, dict[str, Cell]]:
    """Accuracy, NFE and more for every task and method: `found["countdown"]["revise"].accuracy`.

    Records go to the folder `out`; the same call resumes an interrupted run. Without `tasks`, the
    model's own are used, without `methods` the default one. `limit` problems per task; settings apply to the methods that use them.
    `verifier` is a name, a function or a verifier; the run records it by name and a hash of its source.
    """
    from s3dlm.evaluation import plan as plans
    from s3dlm.evaluation import records, run
    from s3dlm.evaluation.statistics import summarise
    from s3dlm.models.registry import load
    from s3dlm.search.methods import DEFAULT

    chosen: dict[str, Any] = {**settings}
    if verifier is not None:
        from s3dlm.verifier import own

        chosen["verifier"] = verifier if isinstance(verifier, str) else own.from_object(verifier)
    loaded = load(model) if isinstance(model, str) else model
    names = [tasks] if isinstance(tasks, str) else list(tasks or loaded.defaults.tasks)
    labels = [methods] if isinstance(methods, str) else list(methods or [DEFAULT])
    folder = None if data is None else Path(data)
    style = loaded.defaults.prompt_style
    problems = plans.load_problems(names, style, data=folder, split=split, limit=limit)
    conditions = plans.grid(names, labels, plans.recommendations(loaded), chosen)
    run.evaluate(loaded, plans.Plan(conditions, problems, range(seeds), split), Path(out))
    stored = records.read_all(Path(out))
    cells: dict[str, dict[str, Cell]] = {task: {} for task in names}
    for c in conditions:
        cells[c.task][c.label] = summarise(c, stored.of(c.spec))
    return cells
