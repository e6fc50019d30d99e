"""The runner for several cores of one machine: each process has its own copy of a small model.

The forward pass of a small model is too short for threads to share it. Processes share nothing and
need no cluster. A result depends on (seed, sample id) alone, so it does not matter which one computes it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from s3dlm.errors import S3dlmError
from s3dlm.evaluation import environment
from s3dlm.evaluation.distributed import Refusal
from s3dlm.evaluation.local import LocalRunner
from s3dlm.evaluation.manifest import Manifest
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.progress import weight
from s3dlm.evaluation.records import Failure, Record
from s3dlm.evaluation.run import Request, Runner
from s3dlm.models.base import Model

SMALL = 2**28  # bytes of weights up to which each process gets a copy
WORTH = 5_000  # forward passes below which starting processes takes longer than it saves


def runner(model: Model, workers: int) -> AbstractContextManager[Runner]:
    """A runner with this many processes; this process itself if it is one."""
    if workers > 1:
        return ProcessRunner(model, workers)
    return contextlib.nullcontext(LocalRunner(model))


def wait_for(runner: Runner) -> None:
    """Return when the runner's processes have started, so that a clock need not count it."""
    if isinstance(runner, ProcessRunner):
        runner.wait()


def workers_for(model: Model, plan: Plan | None = None) -> int:
    """One process per core for a small model on the CPU, unless the plan is short; else one."""
    if plan is not None and _passes(plan) < WORTH:
        return 1
    return _cores() if _can_be_copied(model) else 1


def _passes(plan: Plan) -> int:
    counts = {task: len(some.samples) for task, some in plan.problems.items()}
    seeds = len(plan.seeds)
    return sum(weight(c) * c.count(counts[c.task], seeds) for c in plan.conditions)


def _cores() -> int:
    """The cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _can_be_copied(model: Model) -> bool:
    if environment.device_of(model).type != "cpu":
        return False
    if sum(tensor.nbytes for _, tensor in environment.tensors(model)) > SMALL:
        return False
    try:
        pickle.dumps(model)
    except Exception:  # a model of another package may hold anything
        return False
    return True


class ProcessRunner:
    """Worker processes of this machine; pass it to `evaluate` instead of a model."""

    def __init__(self, model: Model, workers: int) -> None:
        self.local = LocalRunner(model)
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        self.ready = False
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, model), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)

    def wait(self) -> None:
        """Every worker says once that it has started."""
        for number, pipe in enumerate(() if self.ready else self.pipes):
            with self._expecting(number):
                pipe.recv()
        self.ready = True

    def manifest(self, plan: Plan) -> Manifest:
        return self.local.manifest(plan)

    def warm_up(self, plan: Plan, condition: Condition, batch_size: int | None) -> None:
        self.wait()
        messages = [("warm_up", (plan, condition, batch_size))] * len(self.pipes)
        for _ in self._answers(messages):
            pass

    def records(self, plan: Plan, request: Request) -> Iterator[Record | Failure]:
        """Every worker gets the same problems for all methods, so that its row cache is of use."""
        self.wait()
        count = len(self.pipes)
        share = replace(plan, row_cache=plan.row_cache / count)
        todos = [todo for number in range(count) if (todo := request.todo[number::count])]
        yield from self._answers([("records", (share, replace(request, todo=t))) for t in todos])

    def _answers(self, calls: Sequence[tuple[str, tuple[Any, ...]]]) -> Iterator[Record | Failure]:
        """One call of a LocalRunner's method for each of the first workers, and what they yield."""
        busy = dict[Any, int]()
        for number, (pipe, call) in enumerate(zip(self.pipes, calls, strict=False)):
            busy[pipe] = number
            with self._expecting(number):
                pipe.send(call)
        while busy:
            for ready in wait(list(busy)):
                yield from self._received(busy, ready)

    def _received(self, busy: dict[Any, int], pipe: Any) -> Iterator[Record | Failure]:
        """One message of a worker: a record, an error, or None at the end of its share."""
        with self._expecting(busy[pipe]):
            message = pipe.recv()
        if isinstance(message, Refusal):
            raise message.error()
        if message is None:
            del busy[pipe]
        else:
            yield message

    @contextlib.contextmanager
    def _expecting(self, number: int) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.processes[number].join(5)
            code = self.processes[number].exitcode
            raise S3dlmError(
                f"worker process {number} ended with exit code {code}; what is recorded is kept, and "
                "the same command resumes the run; --workers 1 runs in this process alone"
            ) from error

    def close(self) -> None:
        """Stop the workers."""
        for process, pipe in zip(self.processes, self.pipes, strict=True):
            process.terminate()  # first: one that is still starting would complain of a closed pipe
            process.join()
            pipe.close()

    def __enter__(self) -> ProcessRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(pipe: Connection, model: Model) -> None:
    """A worker: answers requests until the other end closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent
    torch.set_num_threads(1)
    local = LocalRunner(model)
    with contextlib.suppress(EOFError, BrokenPipeError):
        pipe.send(None)  # ready
        while True:
            method, arguments = pipe.recv()
            try:
                for record in getattr(local, method)(*arguments) or ():
                    pipe.send(record)
                pipe.send(None)
            except S3dlmError as error:
                pipe.send(Refusal(type(error).__name__, str(error)))
