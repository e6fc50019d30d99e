"""A cluster gives the records one machine gives, whoever is lost on the way."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from s3dlm.errors import ModelError, S3dlmError, SettingsError
from s3dlm.evaluation import records
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Record, canonical
from s3dlm.evaluation.run import Silent, evaluate
from tests.evaluation.small_run import small_model, small_plan, write_task
from tests.integrations.doubler import Doubler

pytestmark = [
    # Ray leaves sockets and log files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One local cluster of two cores for the module."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    try:
        _start(ray)
        yield ray
    finally:
        with warnings.catch_warnings():
            # Ray does not wait for the processes it ends, and Python complains when it forgets them.
            warnings.simplefilter("ignore", ResourceWarning)
            ray.shutdown()
            gc.collect()


def _start(ray: Any) -> None:
    """Ray gives its processes 15 to 30 s to come up, which is not ours to change; a machine that is
    full of other work may need two attempts, and one that never manages cannot test this."""
    for _ in range(2):
        try:
            ray.init(
                num_cpus=2, include_dashboard=False, address="local", logging_level="error",
                log_to_driver=False, object_store_memory=100 * 2**20,
            )  # fmt: skip
            return
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
        ray.shutdown()
    # Outside of `except`: a remembered traceback would keep Ray's processes until the very end.
    pytest.skip("this machine is too busy for Ray's own limit on its start")


def rows(folder: Path) -> list[bytes]:
    return canonical(records.read(folder))


class Killer(Silent):
    """Kills a worker's process after some records, without warning."""

    def __init__(self, pid: int, after: int) -> None:
        self.pid, self.after, self.seen = pid, after, 0

    def record(self, condition: Condition, record: Record) -> None:
        self.seen += 1
        if self.seen == self.after:
            os.kill(self.pid, signal.SIGKILL)


def test_two_workers_give_the_local_records_even_if_one_is_killed(ray: Any, tmp_path: Path) -> None:
    from s3dlm.evaluation.distributed import RayRunner

    task = write_task(tmp_path, problems=12)
    plan = small_plan(task, ("best_of_k", "s3"), seeds=(0,))
    local = evaluate(small_model(), plan, tmp_path / "local", batch_size=8)
    said: list[str] = []
    with RayRunner(small_model, workers=2, say=said.append) as cluster:
        pids = cluster.pids()
        assert len({*pids, os.getpid()}) == 3
        spread = evaluate(cluster, plan, tmp_path / "spread", batch_size=8)
        assert not said
        killer = Killer(pids[0], after=5)
        evaluate(cluster, plan, tmp_path / "killed", observer=killer, batch_size=8)
        assert cluster.pids()[0] != pids[0]  # another took its place
    assert spread == local
    assert rows(tmp_path / "spread") == rows(tmp_path / "local")
    assert rows(tmp_path / "killed") == rows(tmp_path / "local")
    assert len(records.read(tmp_path / "killed")) == len(records.read(tmp_path / "local"))
    assert len(said) == 1
    assert said[0].startswith("worker 0 was lost")


def test_a_run_begun_here_goes_on_there(ray: Any, tmp_path: Path) -> None:
    from s3dlm.evaluation.distributed import RayRunner

    task = write_task(tmp_path, problems=6)
    evaluate(small_model(), small_plan(task, ("s3",), limit=3), tmp_path / "run")
    whole = small_plan(task, ("s3",))
    with RayRunner(small_model, workers=1) as cluster:
        evaluate(cluster, whole, tmp_path / "run")
    evaluate(small_model(), whole, tmp_path / "whole")
    assert rows(tmp_path / "run") == rows(tmp_path / "whole")


def test_the_driver_takes_no_more_than_its_workers_can_hold(ray: Any) -> None:
    from s3dlm.evaluation.distributed import AHEAD, Pool, chunked

    taken, most, size = 0, 0, 5

    def endless() -> Iterator[int]:
        nonlocal taken
        for number in range(10**9):
            taken += 1
            yield number

    with Pool(Doubler, workers=2) as pool:
        found = []
        for result in pool.spread("double", chunked(endless(), size)):
            found.append(result)
            most = max(most, taken - len(found))
            if len(found) == 1000:
                break
        assert len(set(found)) == len(found)
        assert set(found) <= {2 * number for number in range(taken)}
        whole = sorted(pool.spread("double", chunked(range(100), 7)))
        assert whole == [2 * number for number in range(100)]
    assert most <= 2 * AHEAD * size + size


def test_refusals_come_back_as_they_were_and_defects_are_not_retried(ray: Any) -> None:
    from s3dlm.evaluation.distributed import Pool

    with Pool(Doubler, workers=1) as pool:
        with pytest.raises(ModelError, match=r"\[7\] is refused; this is a test"):
            list(pool.spread("refuse", [[7]]))
        with pytest.raises(ZeroDivisionError):
            list(pool.spread("defect", [[7]]))


def test_samples_that_kill_every_worker_end_the_run(
    ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from s3dlm.evaluation import distributed
    from s3dlm.evaluation.distributed import Pool

    monkeypatch.setattr(distributed, "ATTEMPTS", 2)
    said: list[str] = []
    with (
        Pool(Doubler, workers=1, say=said.append) as pool,
        pytest.raises(S3dlmError, match="2 workers were lost on the same samples"),
    ):
        list(pool.spread("die", [[7]]))
    assert len(said) == 1


def test_no_workers_is_refused(ray: Any) -> None:
    from s3dlm.evaluation.distributed import Pool

    with pytest.raises(SettingsError, match="workers=0 is not allowed"):
        Pool(Doubler, workers=0)


def test_without_ray_it_is_one_line() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from s3dlm.evaluation.distributed import Pool\n"
        "try:\n    Pool(dict)\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ray is not installed; run: pip install 's3dlm[ray]'\n"
