"""When a verifier may be satisfied: what stopping at a score saves, and what it costs.

`python -m benchmarks.stopping [problems per task] [task,task,…]` prints a table for the bundled model,
on validation problems. Stopping only cuts a search short, so one search per problem that never stops
tells what it would have answered at any threshold. The last column is the lowest threshold from which on
stopping costs no accuracy; `satisfied_at` (verifier/weights.py) is chosen from this table.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.engine import Job, run
from s3dlm.search.step import Step
from s3dlm.settings import Settings
from s3dlm.tasks import Sample
from s3dlm.tasks.data import load as load_samples
from s3dlm.verifier import for_task

THRESHOLDS = (0.70, 0.75, 0.80, 0.825, 0.85, 0.875, 0.90, 0.925, 0.95, 0.975)
NEVER = 2.0  # a score that no text has
DOUBTED = -1.0  # such a text ends no search, whatever its score


@dataclass(frozen=True, slots=True)
class Seen:
    """The best text of one step, and the forward passes until then. A text that is doubted counts
    for nothing here, so a threshold may look a little dearer than it is: of several look-aheads the search
    would take one that satisfies before a better one that is doubted."""

    score: float
    right: float
    nfe: int


def searches(model: s3dlm.Model, task: str, samples: tuple[Sample, ...]) -> list[list[Seen]]:
    """For every problem the best text of each step, and last the one that is answered."""
    verifier = replace(for_task(tasks.get(task).verifier, "checker"), satisfied_at=NEVER)  # type: ignore[type-var]
    settings = Settings.for_model(model, "revise", task)
    jobs = [Job(one.question, task, settings, one.id, verifier) for one in samples]
    found: list[list[Seen]] = [[] for _ in samples]
    nfe = [1] * len(samples)  # the first look-ahead comes before the first step
    for index, event in run(model, jobs):
        sample = samples[index]
        if isinstance(event, Step):
            nfe[index] += event.nfe
            if np.isnan(event.score).all():
                continue
            best = int(np.nanargmax(event.score))
            text = read(model, event.clean[best])
            doubted = verifier.score(sample.question, text, float(event.confidence[best])).spans
            score = DOUBTED if len(doubted) else float(event.score[best])
            found[index].append(Seen(score, right(task, text, sample), nfe[index]))
        else:
            found[index].append(Seen(NEVER, right(task, event.text, sample), event.nfe))
    return found


def read(model: s3dlm.Model, tokens: np.ndarray) -> str:
    ends = np.flatnonzero(np.isin(tokens, list(model.end_ids)))
    return model.tokenizer.decode(tokens[: ends[0] if ends.size else tokens.size].tolist())


def right(task: str, text: str, sample: Sample) -> float:
    kind = tasks.get(task).answer
    return grade(kind, text, sample.gold, "fixed", sample.question)


def row(found: list[list[Seen]], threshold: float) -> tuple[float, float]:
    """Accuracy and mean NFE of stopping at the first text with this score."""
    ended = [next(one for one in seen if one.score >= threshold) for seen in found]
    return 100 * float(np.mean([one.right for one in ended])), float(
        np.mean([one.nfe for one in ended])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", type=int, nargs="?", default=100, help="per task")
    parser.add_argument("tasks", nargs="?", help="separated by commas; default: the model's own")
    given = parser.parse_args()
    model = s3dlm.load("tiny")
    print("task | " + " | ".join(f"{one:g}" for one in THRESHOLDS) + " | never | chosen")
    for task in given.tasks.split(",") if given.tasks else model.defaults.tasks:
        samples = load_samples(
            tasks.get(task), prompt_style="tiny", split="validation", limit=given.problems
        ).samples
        found = searches(model, task, samples)
        rows = {one: row(found, one) for one in (*THRESHOLDS, NEVER)}
        costs = [one for one in THRESHOLDS if rows[one][0] < rows[NEVER][0]]
        enough = [one for one in THRESHOLDS if one > max(costs, default=0.0)]
        cells = [f"{accuracy:.1f} @ {nfe:.1f}" for accuracy, nfe in rows.values()]
        print(" | ".join([task, *cells, f"{enough[0]:g}" if enough else "none"]), flush=True)


if __name__ == "__main__":
    main()
