"""Several processes give the records of one, and their errors are told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from s3dlm.errors import MissingExtraError, S3dlmError
from s3dlm.evaluation import processes, records
from s3dlm.evaluation.distributed import Refusal
from s3dlm.evaluation.local import LocalRunner
from s3dlm.evaluation.plan import Plan
from s3dlm.evaluation.processes import ProcessRunner, workers_for
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.run import evaluate
from tests.evaluation.small_run import small_model, small_plan, write_task


def _what(found: list[Record]) -> set[Record]:
    """Records without their times."""
    return {dataclasses.replace(one, at=None, seconds=0.0) for one in found}


def test_two_processes_give_the_records_of_one(tmp_path: Path) -> None:
    """Also after an interruption, and with the traces that the workers write."""
    plan = small_plan(write_task(tmp_path, 5), ("best_of_k", "s3"), seeds=(0,), traces=1)
    few = {
        task: dataclasses.replace(some, samples=some.samples[:2])
        for task, some in plan.problems.items()
    }
    evaluate(small_model(), plan, tmp_path / "one")
    with ProcessRunner(small_model(), 2) as runner:
        processes.wait_for(runner)
        evaluate(runner, dataclasses.replace(plan, problems=few), tmp_path / "two")
        evaluate(runner, plan, tmp_path / "two")
    assert all(not process.is_alive() for process in runner.processes)
    one, two = records.read(tmp_path / "one"), records.read(tmp_path / "two")
    assert len(two) == 10
    assert _what(one) == _what(two)
    traces = [sorted(p.name for p in (tmp_path / f / "traces").iterdir()) for f in ("one", "two")]
    assert traces[0] == traces[1] != []


def test_a_lost_worker_ends_the_run_with_advice(tmp_path: Path) -> None:
    plan = small_plan(write_task(tmp_path, 3), ("s3",), seeds=(0,))
    with ProcessRunner(small_model(), 2) as runner:
        for process in runner.processes:
            process.terminate()
            process.join()
        with pytest.raises(S3dlmError, match=r"ended with exit code .*--workers 1"):
            evaluate(runner, plan, tmp_path / "run")


class Pipe:
    """The worker's end of a pipe, without a process: one request, then the end."""

    def __init__(self, *requests: object) -> None:
        self.requests, self.sent = list(requests), list[object]()

    def recv(self) -> object:
        if not self.requests:
            raise EOFError
        return self.requests.pop(0)

    def send(self, message: object) -> None:
        self.sent.append(message)


def test_an_error_of_the_whole_run_is_sent_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def records(*_: object) -> object:
        raise MissingExtraError("math-verify", "math")

    monkeypatch.setattr(LocalRunner, "records", records)
    pipe = Pipe(("records", (None, None)))
    processes._serve(pipe, small_model())  # type: ignore[arg-type]
    ready, sent = pipe.sent
    assert ready is None
    assert isinstance(sent, Refusal)
    assert isinstance(sent.error(), MissingExtraError)
    assert "math-verify" in str(sent.error())


def test_processes_only_where_they_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_cores", lambda: 3)
    model, plan = small_model(), small_plan(write_task(tmp_path, 3))
    assert workers_for(model) == 3
    assert workers_for(model, plan) == 1  # a short run
    assert workers_for(model, Plan(plan.conditions, plan.problems, range(1000))) == 3
    monkeypatch.setattr(model.denoiser, "hook", lambda: None, raising=False)
    assert workers_for(model) == 1  # a lambda cannot be copied to another process
    monkeypatch.undo()
    monkeypatch.setattr(processes, "SMALL", -1)
    assert workers_for(model) == 1
