"""What `reasoning_effort` buys: accuracy and forward passes of the server's answers by effort.

    python -m benchmarks.effort [PROBLEMS] [METHOD]

Asks a server in this process, with the bundled model, the first PROBLEMS (40) of each of its tasks at each
effort, and prints a table; accuracy has 95 % intervals (Wilson). Without METHOD the server's own is used.
"""

from __future__ import annotations

import argparse
from typing import Any

from fastapi.testclient import TestClient

import s3dlm
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.evaluation.statistics import wilson
from s3dlm.server.app import create_app

EFFORTS = ("none", "minimal", "low", None, "high")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", type=int, nargs="?", default=40, help="per task")
    parser.add_argument("method", nargs="?", help="default: the server's own")
    given = parser.parse_args()
    problems, method = given.problems, {"method": given.method} if given.method else {}
    model = s3dlm.load("tiny")
    loaded = [
        (name, sample)
        for name in model.defaults.tasks
        for sample in tasks.load(tasks.get(name), prompt_style="tiny", limit=problems).samples
    ]
    print("| `reasoning_effort` | accuracy, % | passes per problem |\n|---|---|---|")
    with TestClient(create_app(model)) as http:
        for effort in EFFORTS:
            own: dict[str, Any] = {} if effort is None else {"reasoning_effort": effort}
            right, passes, count = 0.0, 0, len(loaded)
            for task, sample in loaded:
                asked = {"model": "tiny", "prompt": sample.question, "task": task}
                reply = http.post("/v1/completions", json={**asked, **method, **own}).json()
                text = reply["choices"][0]["text"]
                right += grade(task, text, sample.gold, question=sample.question)
                passes += reply["usage"]["nfe"]
            between = wilson(right / count, count)
            name = "`medium` (the default)" if effort is None else f"`{effort}`"
            share = f"{100 * right / count:.1f} ({100 * between.low:.1f}–{100 * between.high:.1f})"
            print(f"| {name} | {share} | {passes / count:.1f} |", flush=True)


if __name__ == "__main__":
    main()
