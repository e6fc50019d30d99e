"""Golden results: what the searches, the server and infilling answered, kept from change to change.

`python -m tests.golden.record` writes `golden.json.gz`. Run it again only for a change of results that is
meant, alone in its commit, with the reason in CHANGELOG.md. Texts, answers, passes and ancestry are
compared exactly, numbers with a tolerance: their last bits differ between processors.
"""

from __future__ import annotations

import gzip
import json
import math
import warnings
from pathlib import Path
from typing import Any

import s3dlm
from s3dlm import Result, tasks
from tests.golden.cases import Case, cases

GOLDEN = Path(__file__).with_name("golden.json.gz")
# Log-probabilities of unlikely tokens were seen to differ by 5e-6 between instruction sets.
TOLERANCE = 5e-5  # relative, and for numbers near zero absolute
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
    "task": "none",  # it is outside what the model knows
    "n": 2,
    "seed": 5,
    "method": "s3",
    "particles": 2,
    "branching": 2,
    "reveal": "threshold",
}
TIMED = ("id", "created", "fingerprint", "seconds")  # keys that differ between replies or versions


def plain(result: Result) -> dict[str, Any]:
    """A result without times."""
    return {
        "text": result.text,
        "answer": result.answer,
        "nfe": result.nfe,
        "nfe_logical": result.nfe_logical,
        "stopped": result.stopped,
        "p_correct": result.p_correct,
        "score": result.score,
        "ancestry": [list(parents) for parents in result.ancestry],
        "survivors": [
            [one.text, one.answer, one.score, one.log_weight, one.nll] for one in result.survivors
        ],
        "holes": list(result.holes),
    }


def run(case: Case) -> list[dict[str, Any]]:
    """The results of one case."""
    model = s3dlm.load(case.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.infill is not None:
            result = s3dlm.infill(model, case.infill, method=case.method, **case.values)
            return [plain(result)]
        task = tasks.get(case.task)
        samples = tasks.load(task, prompt_style="tiny", limit=case.problems).samples
        results = s3dlm.generate_batch(
            model,
            [sample.question for sample in samples],
            task=case.task,
            method=case.method,
            sample_ids=[sample.id for sample in samples],
            **case.values,
        )
    return [plain(result) for result in results]


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
    return reply


def differences(found: Any, wanted: Any, place: str = "") -> list[str]:
    """Where two recorded values differ, in words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        missing = [f"{place}.{key} is missing" for key in wanted if key not in found]
        missing += [f"{place}.{key} is new" for key in found if key not in wanted]
        both = [key for key in wanted if key in found]
        return missing + [
            line for key in both for line in differences(found[key], wanted[key], f"{place}.{key}")
        ]
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        return [line for at, pair in pairs for line in differences(*pair, f"{place}[{at}]")]
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isclose(found, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            return []
    elif type(found) is type(wanted) and found == wanted:
        return []
    return [f"{place or 'the value'} is {found!r}, recorded as {wanted!r}"]


def load() -> Any:
    """What was recorded."""
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def main() -> None:
    """Write the fixture."""
    golden = {"searches": {case.name: run(case) for case in cases()}, "replies": replies()}
    text = json.dumps(golden, ensure_ascii=False, indent=0)
    GOLDEN.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
