"""A cluster gives the records one machine gives, whoever is lost on the way."""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from s3dlm.errors import ModelError, S3dlmError, SettingsError
from s3dlm.evaluation import records
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Observer, evaluate
from s3dlm.extras.ray import evaluation as distributed
from s3dlm.extras.ray.evaluation import RayRunner
from s3dlm.models.base import Model
from tests.evaluation.small_run import (
    canonical,
    deadly,
    defective,
    refused,
    small_model,
    small_plan,
    write_task,
)

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


class Killer(Observer):
    """Kills a worker's process after some records, without warning."""

    def __init__(self, pid: int, after: int) -> None:
        self.pid, self.after, self.seen = pid, after, 0

    def record(self, condition: Condition, record: Record | Failure) -> None:
        self.seen += 1
        if self.seen == self.after:
            os.kill(self.pid, signal.SIGKILL)


def test_two_workers_give_the_local_records_even_if_one_is_killed(
    ray: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = write_task(tmp_path, problems=12)
    plan = small_plan(task, ("best_of_k", "s3"), seeds=(0,))
    local = evaluate(small_model(), plan, tmp_path / "local", batch_size=8)
    begun = small_plan(task, ("best_of_k", "s3"), seeds=(0,), limit=3)
    evaluate(small_model(), begun, tmp_path / "spread")  # what is begun here goes on there
    with RayRunner(small_model, workers=2) as cluster:
        spread = evaluate(cluster, plan, tmp_path / "spread", batch_size=8)
        pids = {*cluster.pids}
        assert len({*pids, os.getpid()}) == 3
        assert not capsys.readouterr().err
        killer = Killer(min(pids), after=5)
        evaluate(cluster, plan, tmp_path / "killed", observer=killer, batch_size=8)
        assert len(cluster.pids) == 3  # another took its place
    assert spread == local
    assert rows(tmp_path / "spread") == rows(tmp_path / "local")
    assert rows(tmp_path / "killed") == rows(tmp_path / "local")
    assert capsys.readouterr().err.count("a worker was lost") == 1


@pytest.mark.parametrize(
    ("load", "error", "said"),
    [
        (refused, ModelError, "^there is no such model; this is a test$"),
        (defective, ZeroDivisionError, "defective"),  # not retried, and shown with its traceback
        (deadly, S3dlmError, "2 workers were lost on the same samples"),
    ],
)
@pytest.mark.usefixtures("ray")
def test_errors_of_a_worker_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    load: Callable[[], Model], error: type[Exception], said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(distributed, "ATTEMPTS", 2)
    plan = small_plan(write_task(tmp_path, 2), ("s3",))
    with RayRunner(load, workers=1) as cluster, pytest.raises(error, match=said):
        evaluate(cluster, plan, tmp_path / "run")


def test_no_workers_and_no_ray_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="workers=0 is not allowed"):
        RayRunner(small_model, workers=0)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ImportError, match=r"^ray is not installed; run: pip install 's3dlm\[ray\]'$"
    ):
        RayRunner(small_model)
