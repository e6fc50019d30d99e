"""Golden results: what the searches, the server and infilling answered, kept from change to change.

`python -m tests.golden.record` writes `golden.json.gz`. Run it again only for a change of results that is
meant, alone in its commit, with the reason in CHANGELOG.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import s3dlm
from s3dlm import Result, tasks

GOLDEN = Path(__file__).with_name("golden.json.gz")
METHODS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "best_of_k": {"particles": 2, "branching": 2},
    "s3": {"particles": 3, "branching": 2},
    "fk_difference": {"particles": 2, "branching": 2},
    "particle_gibbs": {"particles": 3, "branching": 2},
    "revise": {"budget": 24},
}
TASKS = ("arithmetic", "countdown", "sudoku", "choice", "chain")
PROBLEMS = 20
SCHEDULED = ("baseline", "revise")  # by the schedule, and as the model recommends
ADAPTIVE = {"reveal": "threshold"}  # few steps: the fixture is checked by every run of the tests
HOLES = "Start with 4.\nStep 1: 4 + [[2-3]] = 9\nThe answer is [[2]]."
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Target: 15 Numbers: 10, 1, 6"}],
    "task": "countdown",
    "method": "revise",
    "budget": 24,
}
COMPLETION = {
    "model": "tiny",
    "prompt": "What is 3 + 4?",
    "n": 2,
    "seed": 5,
    "method": "s3",
    "particles": 2,
    "branching": 2,
    "reveal": "threshold",
}
TIMED = ("id", "created", "fingerprint", "seconds")  # keys that differ between replies or versions


def plain(result: Result) -> dict[str, Any]:
    """A result without times; weights and scores to nine digits."""
    survivors = [
        [one.text, one.answer, _round(one.score), _round(one.log_weight), _round(one.nll)]
        for one in result.survivors
    ]
    digest = hashlib.sha256(json.dumps(survivors).encode()).hexdigest()[:16]
    return {
        "text": result.text,
        "answer": result.answer,
        "nfe": result.nfe,
        "nfe_logical": result.nfe_logical,
        "p_correct": _round(result.p_correct),
        "survivors": digest,
    }


def searches(method: str, task: str, problems: int = PROBLEMS) -> list[dict[str, Any]]:
    """The results of one method on the first test problems of one task."""
    model = s3dlm.load("tiny")
    samples = tasks.load(tasks.get(task), prompt_style="tiny", limit=problems).samples
    overrides = {**METHODS[method], **({} if method in SCHEDULED else ADAPTIVE)}
    results = s3dlm.generate_batch(
        model,
        [sample.question for sample in samples],
        task=task,
        method=method,
        sample_ids=[sample.id for sample in samples],
        **overrides,
    )
    return [plain(result) for result in results]


def infilling() -> dict[str, Any]:
    """One text with two holes, one of them of several lengths."""
    result = s3dlm.infill("tiny", HOLES, method="revise", budget=24)
    return {**plain(result), "holes": list(result.holes)}


def replies() -> list[Any]:
    """What the server answers to a chat and to a completion with two choices."""
    from fastapi.testclient import TestClient

    from s3dlm.server.app import create_app

    with TestClient(create_app(s3dlm.load("tiny"))) as client:
        chat = client.post("/v1/chat/completions", json=CHAT)
        completion = client.post("/v1/completions", json=COMPLETION)
    return [untimed(chat.json()), untimed(completion.json())]


def untimed(reply: Any) -> Any:
    """A reply without what differs every time."""
    if isinstance(reply, dict):
        kept = {
            key: value for key, value in reply.items() if not any(word in key for word in TIMED)
        }
        return {key: untimed(value) for key, value in kept.items()}
    if isinstance(reply, list):
        return [untimed(value) for value in reply]
    return _round(reply)


def _round(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main() -> None:
    """Write the fixture."""
    golden = {
        "searches": {
            f"{method}/{task}": searches(method, task) for method in METHODS for task in TASKS
        },
        "infilling": infilling(),
        "replies": replies(),
    }
    text = json.dumps(golden, ensure_ascii=False, indent=0)
    GOLDEN.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
