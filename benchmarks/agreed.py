"""What `adaptive_vote` saves: votes with the bundled model that end when they are decided, or do not.

    python -m benchmarks.agreed [PROBLEMS] [SPLIT] [FILE]

Accuracy in per cent @ mean forward passes per problem, one seed. With a budget a plain vote spends all of
it; an adaptive one ends when the leading answer is likely to stay ahead. Below the table is the
difference in accuracy to the plain vote, with its 95 % interval over problems. With a file, a run that was stopped
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, run
from s3dlm.evaluation.formats import points
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.settings import Settings
from s3dlm.tasks.data import load as load_samples

Values = dict[str, object]
SIXTEEN: Values = {"particles": 8, "branching": 2, "temperature": 1.0}
SPEND: Values = {"budget": 200}
PLAIN = "best_of_k, budget 200"
ROWS: dict[str, tuple[str, Values]] = {
    "best_of_k, K = 16, no budget": ("best_of_k", SIXTEEN),
    PLAIN: ("best_of_k", SIXTEEN | SPEND),
    "adaptive_vote at 0.95, budget 200": ("adaptive_vote", SIXTEEN | SPEND),
    "adaptive_vote at 0.8, budget 200": ("adaptive_vote", {**SIXTEEN, **SPEND, "decided_at": 0.8}),
}


def measure(model: s3dlm.Model, task: str, row: str, split: str, limit: int) -> list[list[float]]:
    """Grade and forward passes of every problem."""
    method, values = ROWS[row]
    kind = tasks.get(task).answer
    samples = load_samples(tasks.get(task), prompt_style="tiny", split=split, limit=limit).samples
    settings = Settings.for_model(model, method, task, **values)
    jobs = [Job(one.question, task, settings, one.id) for one in samples]
    results = {at: event for at, event in run(model, jobs) if isinstance(event, s3dlm.Result)}
    return [
        [grade(kind, results[at].text, one.gold, "fixed", one.question), results[at].nfe]
        for at, one in enumerate(samples)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("limit", type=int, nargs="?", default=60, help="problems per task")
    parser.add_argument("split", nargs="?", default="validation", help="validation or test")
    parser.add_argument("file", nargs="?", default="", help="where to keep what is known")
    given = parser.parse_args()
    limit, split, file = given.limit, given.split, given.file
    model = s3dlm.load("tiny")
    names, path = list(model.defaults.tasks), Path(file)
    found: dict[str, list[list[float]]] = (
        json.loads(path.read_text()) if file and path.exists() else {}
    )
    print("| | " + " | ".join([*names, "mean"]) + " |\n|" + "---|" * (len(names) + 2))
    for row in ROWS:
        for task in names:
            if (key := f"{split} {limit} {task} {row}") not in found:
                found[key] = measure(model, task, row, split, limit)
                if file:
                    path.write_text(json.dumps(found))
        means = [np.mean(found[f"{split} {limit} {task} {row}"], axis=0) for task in names]
        cells = [f"{100 * right:.1f} @ {nfe:.1f}" for right, nfe in [*means, np.mean(means, 0)]]
        print("| " + " | ".join([row, *cells]) + " |", flush=True)
    for row in list(ROWS)[2:]:
        right = [
            np.concatenate([found[f"{split} {limit} {task} {each}"] for task in names])[:, 0]
            for each in (row, PLAIN)
        ]
        gap, _ = bootstrap([list(right[0] - right[1])])
        print(f"{row}: {points(gap, 1.0)} against {PLAIN}")


if __name__ == "__main__":
    main()
