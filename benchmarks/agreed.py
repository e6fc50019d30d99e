"""What `stop_when="agreed"` saves: votes with the bundled model, with and without it.

    python -m benchmarks.agreed [problems per task] [validation or test] [task,task,…]

Accuracy in per cent @ mean forward passes per problem, one seed. With a budget a vote whose verifier has
no threshold spends all of it; with `stop_when="agreed"` it ends when the leading answer is likely to
stay ahead. The last line has the mean over tasks, and the 95 % interval of the difference in accuracy
to the row above over problems.
"""

from __future__ import annotations

import sys

import numpy as np

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, run
from s3dlm.settings import Settings
from s3dlm.tasks.data import load as load_samples

BUDGET = 200
SIXTEEN: dict[str, object] = {"particles": 8, "branching": 2, "temperature": 1.0}
FOUR: dict[str, object] = {"particles": 4, "branching": 2, "lam": 10.0, "verifier": "paper"}
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "best_of_k, K = 16, no budget": ("best_of_k", SIXTEEN),
    "best_of_k, budget 200": ("best_of_k", {**SIXTEEN, "budget": BUDGET}),
    "… agreed at 0.95": ("best_of_k", {**SIXTEEN, "budget": BUDGET, "stop_when": "agreed"}),
    "… agreed at 0.8": (
        "best_of_k",
        {**SIXTEEN, "budget": BUDGET, "stop_when": "agreed", "decided_at": 0.8},
    ),
    "s3 4 × 2, paper, budget 200": ("s3", {**FOUR, "budget": BUDGET}),
    "… agreed at 0.8 ": (
        "s3",
        {**FOUR, "budget": BUDGET, "stop_when": "agreed", "decided_at": 0.8},
    ),
}


def main(limit: int = 60, split: str = "validation", names: str = "") -> None:
    model = s3dlm.load("tiny")
    chosen = names.split(",") if names else list(model.defaults.tasks)
    right: dict[str, list[np.ndarray]] = {name: [] for name in ROWS}
    spent: dict[str, list[float]] = {name: [] for name in ROWS}
    print("| | " + " | ".join([*chosen, "mean"]) + " |\n|" + "---|" * (len(chosen) + 2))
    for name, (method, values) in ROWS.items():
        for task in chosen:
            kind = tasks.get(task).answer
            samples = load_samples(
                tasks.get(task), prompt_style="tiny", split=split, limit=limit
            ).samples
            settings = Settings.for_model(model, method, task, **values)  # type: ignore[arg-type]
            jobs = [Job(one.question, task, settings, one.id) for one in samples]
            results = {
                at: event for at, event in run(model, jobs) if isinstance(event, s3dlm.Result)
            }
            grades = [
                grade(kind, results[at].text, one.gold, "fixed", one.question)
                for at, one in enumerate(samples)
            ]
            right[name].append(np.array(grades))
            spent[name].append(float(np.mean([results[at].nfe for at in range(len(samples))])))
        cells = [
            f"{100 * a.mean():.1f} @ {n:.1f}" for a, n in zip(right[name], spent[name], strict=True)
        ]
        mean = 100 * np.mean([a.mean() for a in right[name]])
        print(
            "| " + " | ".join([name, *cells, f"{mean:.1f} @ {np.mean(spent[name]):.1f}"]) + " |",
            flush=True,
        )
    for name in [name for name in ROWS if name.startswith("…")]:
        before = next(
            each for each in reversed(list(ROWS)[: list(ROWS).index(name)]) if "budget 200" in each
        )
        difference = np.concatenate(right[name]) - np.concatenate(right[before])
        draws = np.random.default_rng(0).integers(0, difference.size, (2000, difference.size))
        low, high = np.quantile(100 * difference[draws].mean(axis=1), [0.025, 0.975])
        print(f"{name}: {100 * difference.mean():+.1f} [{low:+.1f}, {high:+.1f}] against {before}")


if __name__ == "__main__":
    main(*(int(one) if one.isdigit() else one for one in sys.argv[1:]))  # type: ignore[arg-type]
