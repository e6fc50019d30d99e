"""The runner for several cores of one machine: each process has its own copy of a small model.

The forward pass of a small model is too short for threads to share it. Processes share nothing and
need no cluster. A result depends on (seed, sample id) alone, so it does not matter which one computes it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import Any

import torch

from s3dlm.errors import S3dlmError
from s3dlm.evaluation.local import LocalRunner
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Chunk, Runner
from s3dlm.models.base import Model
from s3dlm.verifier import own


def runner(model: Model, workers: int) -> AbstractContextManager[Runner]:
    """A runner with this many processes; this process itself if it is one."""
    if workers > 1:
        return ProcessRunner(model, workers)
    return contextlib.nullcontext(LocalRunner(model))


class ProcessRunner(LocalRunner, AbstractContextManager["ProcessRunner"]):
    """Worker processes of this machine; pass it to `evaluate` instead of a model.

    Whichever is free takes the next searches.
    """

    def __init__(self, model: Model, workers: int) -> None:
        super().__init__(model)
        others = multiprocessing.active_children()
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        given = (model, own.given(), context.Barrier(workers))
        self.executor = ProcessPoolExecutor(workers, context, _start, given)
        with _without_ctrl_c():
            self.started = [self.executor.submit(os.getpid) for _ in range(workers)]
        self.processes = [p for p in multiprocessing.active_children() if p not in others]

    def describe(self) -> dict[str, Any]:
        with _lost_worker():
            for future in self.started:
                future.result()
        return super().describe()

    def records(self, chunk: Chunk) -> Iterator[Record | Failure]:
        with _lost_worker():
            parts = chunk.parts(len(self.started))
            for future in as_completed([self.executor.submit(_search, part) for part in parts]):
                yield from future.result()

    def __exit__(self, *_: object) -> None:
        """Stop the workers, whatever they are doing."""
        for process in self.processes:
            process.terminate()
        self.executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _lost_worker() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise S3dlmError(
            "a worker process ended unexpectedly, perhaps for lack of memory; what is recorded is "
            "kept, and the same command resumes the run; --workers 1 needs no other process"
        ) from error


# --- in a worker
_local: LocalRunner


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Processes that are started inside never see Ctrl-C, not even while they import; it reaches this
    one afterwards, and this one ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(model: Model, verifiers: Sequence[str], all_started: Any) -> None:
    global _local
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it was not blocked from the start
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    own.take(verifiers)
    _local = LocalRunner(model)
    all_started.wait()  # so that the first does not take the task of the next


def _end_with_parent() -> None:
    """Also if the parent was killed and could not stop its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _search(chunk: Chunk) -> list[Record | Failure]:
    return list(_local.records(chunk))
