"""A small evaluation on the fake model, for tests here and for the processes they kill."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from s3dlm import tasks
from s3dlm.errors import ModelError
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.plan import Plan
from s3dlm.evaluation.records import Record, to_line
from s3dlm.evaluation.run import evaluate
from s3dlm.models.base import Defaults, Model
from s3dlm.settings import Settings
from tests.fakes import fake_model

ROOT = Path(__file__).parents[2]
FAKE = Defaults(
    "tiny",
    ("countdown",),
    {
        "*": {
            "particles": 2, "branching": 2, "gen_length": 24, "steps": 4, "block_length": 24,
            "temperature": 1.0, "lam": 2.0,
        }
    },
)  # fmt: skip
BASE = Settings.recommended(FAKE, "s3")
# Their mixtures are expressions as well, so that all methods solve some problems and fail others.
TEXTS = tuple(f"<answer>{e}</answer>" for e in ("6+4+12", "6*4+12", "6+4*12", "6*4*12"))
LABELS = ("baseline", "best_of_k", "s3")
READ_LABELS = (
    "greedy",
    "baseline",
    "best_of_k",
    "tilting",
    "top_n",
    "s3",
)  # of the run that is read
HOSTILE = "</script><script>alert(1)</script> <b>&amp; Target: 24 Numbers: 6, 4, 12"
FILES = ("manifest.json", "samples.jsonl", "records.jsonl")


def write_task(
    folder: Path, problems: int = 12, changes: Mapping[int, Mapping[str, object]] | None = None
) -> str:
    """Countdown problems of which the fake model can solve some; `changes` of some by their number."""
    rows = [
        {"question": f"Problem {i}. Target: {t} Numbers: 6, 4, 12", "gold": [[6, 4, 12], t],
         **(changes or {}).get(i, {})}
        for i, t in enumerate((22, 36, 54)[i % 3] for i in range(problems))
    ]  # fmt: skip
    path = folder / "problems.jsonl"
    # As it is, separators and all; but half of a surrogate pair can only be written escaped.
    lines = [json.dumps(row, ensure_ascii="\\ud8" in json.dumps(row)) + "\n" for row in rows]
    path.write_text("".join(lines))
    return f"{path}:countdown"


def copy_run(folder: Path, to: Path) -> Path:
    """The files of a run without its report."""
    for name in FILES:
        (to / name).write_bytes((folder / name).read_bytes())
    return to


def canonical(records: Iterable[Record]) -> list[bytes]:
    """Lines without times, sorted by key: equal for equal runs, however they were made."""
    rows = [record.to_json() for record in sorted(records, key=lambda record: record.key)]
    return [to_line({name: row[name] for name in row if name != "at"}) for row in rows]


def small_model() -> Model:
    torch.set_num_threads(1)  # rows this small only wait for each other's threads
    return dataclasses.replace(fake_model(TEXTS, push=8.0), defaults=FAKE)


def refused() -> Model:
    """Models that a worker cannot load."""
    raise ModelError("there is no such model; this is a test")


def defective() -> Model:
    raise ZeroDivisionError


def deadly() -> Model:
    os.kill(os.getpid(), signal.SIGKILL)
    return small_model()


def small_plan(
    task: str,
    labels: tuple[str, ...] = LABELS,
    seeds: tuple[int, ...] = (0, 1),
    limit: int | None = None,
    traces: int = 0,
    **given: object,
) -> Plan:
    problems = {task: tasks.load(tasks.get(task), prompt_style="tiny", limit=limit)}
    return Plan(plans.grid([task], labels, defaults, given), problems, seeds, traces=traces)


def defaults(method: str, task: str | None = None) -> Settings:
    """The fake model's settings of a method."""
    return Settings.recommended(FAKE, method, task)


def run_and_be_killed(task: str, folder: Path, kills: int) -> None:
    """Start the run again and again; each process dies at a random one of its writes: half-way through
    it, before a sync or before a file is replaced, so the moment does not depend on the machine's speed.
    Children are forked (no forward pass has run before), so that a kill costs little.
    """
    rng = random.Random(0)
    for killed in range(kills):
        write, child = rng.randint(1, 12), os.fork()
        if child == 0:
            _die_at(write)
            evaluate(small_model(), small_plan(task), folder, batch_size=8)
            os._exit(0)
        if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
            sys.exit(f"the run ended after {killed} of {kills} kills; make it longer")
    print(f"killed {kills}")


def _die_at(count: int) -> None:
    """Let this process end with SIGKILL at its `count`-th write, sync or replacement."""
    calls = itertools.count(1)

    def deadly(call: Any) -> Any:
        def wrapped(*arguments: Any) -> Any:
            if next(calls) == count:
                if call is write:
                    write(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments)

        return wrapped

    write = os.pwrite
    os.pwrite, os.fsync = deadly(os.pwrite), deadly(os.fsync)
    Path.replace = deadly(Path.replace)  # type: ignore[method-assign]


if __name__ == "__main__":
    run_and_be_killed(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
