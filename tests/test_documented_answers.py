"""Every Python example of the pages and of examples/ gives a right answer for 11 of 12 seeds.

The pages and examples are run once, and the searches they start are recorded; each is then repeated
under twelve seeds, all in shared forward passes.
"""

from __future__ import annotations

import runpy
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm import answers, engine
from s3dlm.engine import Job
from tests.test_docs import ROOT, blocks

SEEDS = range(12)
LEAST = 11
PAGES = ("README.md", "docs/quickstart.md", "docs/howto.md")
EXAMPLES = ("own_verifier.py", "own_method.py", "own_model.py", "own_task.py", "code_search.py")


def is_answer(text: str) -> Callable[[s3dlm.Result], bool]:
    return lambda result: result.answer == text


def reaches(target: int, *numbers: int) -> Callable[[s3dlm.Result], bool]:
    gold = [list(numbers), target]
    return lambda result: answers.grade("countdown", result.text, gold, "fixed") == 1.0


def is_english(result: s3dlm.Result) -> bool:
    return result.text in {
        f"the {a} on the {b}" for a in ("cat sat", "cow sat") for b in ("mat", "hat")
    }


RIGHT: dict[str, Callable[[s3dlm.Result], bool]] = {
    "Target: 15 Numbers: 10, 1, 6": reaches(15, 10, 1, 6),
    "Target: 17 Numbers: 10, 1, 6": reaches(17, 10, 1, 6),
    "Leo has 2 bags of 6 stamps. He sells 8 of them. How many stamps does Leo have now?": is_answer("4"),
    "Leo has 5 bags of 4 stamps. He sells 8 of them. How many stamps does Leo have now?": is_answer("12"),
    "Say something: ": is_english,
}  # fmt: skip


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, Job]]:
    """Every search that is started, with its model."""
    found: list[tuple[Any, Job]] = []
    real = engine.prepare

    def recording(model: Any, job: Job) -> Any:
        found.append((model, job))
        return real(model, job)

    monkeypatch.setattr(engine, "prepare", recording)
    monkeypatch.chdir(tmp_path)
    return found


def run_page(name: str) -> None:
    names: dict[str, Any] = {}
    for block in blocks(ROOT / name):
        if block.language == "python" and block.mark != "sketch":
            exec(compile(block.text, name, "exec"), names)


@pytest.mark.parametrize("name", [*PAGES, *EXAMPLES])
def test_an_example_is_right_for_almost_every_seed(
    name: str, started: list[tuple[Any, Job]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in EXAMPLES:
        monkeypatch.setattr(sys, "argv", [name])
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    else:
        run_page(name)
    # A sampled baseline is there to be beaten, and an evaluation has its own sample ids.
    shown = [
        (model, job)
        for model, job in started
        if job.settings.method.size > 1 and (job.sample_id is None or name == "own_task.py")
    ]
    assert shown
    for model, job in {repr(job): (model, job) for model, job in shown}.values():
        many = [replace(job, settings=job.settings.replace(seed=seed)) for seed in SEEDS]
        results = [event for _, event in engine.run(model, many) if isinstance(event, s3dlm.Result)]
        right = RIGHT.get(job.question, _runs)
        count = sum(right(one) for one in results)
        assert count >= LEAST, _tally(job, results)


def _runs(result: s3dlm.Result) -> bool:
    """The program of code_search.py passes its hidden tests."""
    hidden = {
        "setup": "",
        "tests": "assert spread([2, 9, 4]) == 7\nassert spread([-1, -5]) == 4\n",
        "remote": ["spread"],
    }
    assert result.question.startswith("def spread"), f"no right answer known for {result.question}"
    return answers.grade("code", result.text, hidden, "fixed", result.question) == 1.0


def _tally(job: Job, results: list[s3dlm.Result]) -> str:
    found: dict[str, int] = defaultdict(int)
    for one in results:
        found[str(one.answer)] += 1
    return f"{job.question!r} with {job.settings}: {dict(found)}"
