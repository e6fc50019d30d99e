"""Several processes give the records of one, their errors are told, and none outlives its parent."""

from __future__ import annotations

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3dlm import errors
from s3dlm.errors import MissingExtraError, S3dlmError
from s3dlm.evaluation import processes, records
from s3dlm.evaluation.processes import ProcessRunner
from s3dlm.evaluation.records import Record
from s3dlm.evaluation.run import Chunk, evaluate
from tests.evaluation.small_run import ROOT, small_model, small_plan, write_task


def _without_times(found: list[Record]) -> set[Record]:
    return {dataclasses.replace(record, at=0.0) for record in found}


def test_two_processes_give_the_records_of_one_and_tell_their_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after an interruption, and with the traces that the workers write."""
    plan = small_plan(write_task(tmp_path, 5), ("best_of_k", "s3"), seeds=(0,), traces=1)
    few = {
        task: dataclasses.replace(loaded, samples=loaded.samples[:2])
        for task, loaded in plan.problems.items()
    }
    evaluate(small_model(), plan, tmp_path / "one")
    with ProcessRunner(small_model(), 2) as runner:
        evaluate(runner, dataclasses.replace(plan, problems=few), tmp_path / "two")
        evaluate(runner, plan, tmp_path / "two")
        with monkeypatch.context() as patch:
            patch.setattr(processes, "_search", _needs_math)
            with pytest.raises(MissingExtraError, match="math-verify is not installed; run: pip"):
                evaluate(runner, plan, tmp_path / "failed")
        runner.processes[0].kill()
        with pytest.raises(S3dlmError, match=r"ended unexpectedly.*--workers 1"):
            evaluate(runner, plan, tmp_path / "lost")
    assert not any(process.is_alive() for process in runner.processes)
    one, two = records.read(tmp_path / "one"), records.read(tmp_path / "two")
    assert len(two) == 10
    assert _without_times(one) == _without_times(two)
    traces = [sorted(p.name for p in (tmp_path / f / "traces").iterdir()) for f in ("one", "two")]
    assert traces[0] == traces[1] != []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _needs_math(chunk: Chunk) -> None:
    raise MissingExtraError("math-verify", "math")


@pytest.mark.parametrize("name", [n for n in vars(errors) if n.endswith("Error")])
def test_errors_can_be_sent(name: str) -> None:
    kind = getattr(errors, name)
    error = kind("torch", "extra") if kind is MissingExtraError else kind("it failed")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (type(error), str(error))


SCRIPT = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from tests.evaluation.small_run import small_model
from s3dlm.evaluation.processes import ProcessRunner
if __name__ == "__main__":
    try:
        runner = ProcessRunner(small_model(), 1)
        print(*[process.pid for process in runner.processes], flush=True)
        runner.describe()
        print("started", flush=True)
        time.sleep(1000)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os._exit(0)
"""


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a worker and tells its pid at once; a group, as in a terminal."""
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=env, start_new_session=True,
    ) as started:  # fmt: skip
        yield started


def test_workers_end_with_a_parent_that_is_killed(parent: subprocess.Popen[str]) -> None:
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert pids
    assert parent.stdout.readline() == "started\n"
    assert all(_alive(pid) for pid in pids)
    parent.kill()
    deadline = time.monotonic() + 900
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of a process group")
def test_ctrl_c_while_workers_start_is_not_a_traceback_of_theirs(
    parent: subprocess.Popen[str],
) -> None:
    assert parent.stdout is not None
    assert parent.stdout.readline()
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal sends it, while they import
    told, complaints = parent.communicate(timeout=900)
    assert told.endswith("stopped\n")
    assert "Traceback" not in complaints
