"""The runner for many GPUs or machines, over Ray; the only file that imports it.

Each worker is an actor that holds the model once. A result depends on (seed, sample id) alone, so it
does not matter which worker computes it, in which batch, or whether it is computed again after a
worker was lost. The driver submits a few chunks per worker and takes new ones as results come in, so
its memory does not grow with the number of samples.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from s3dlm import errors
from s3dlm.errors import MissingExtraError, S3dlmError, SettingsError

if TYPE_CHECKING:  # a worker that is being started must not wait for torch
    from s3dlm.evaluation.manifest import Manifest
    from s3dlm.evaluation.plan import Condition, Plan
    from s3dlm.evaluation.records import Failure, Record
    from s3dlm.evaluation.run import Request
    from s3dlm.models.base import Model

AHEAD = 2  # chunks submitted per worker: one is running, one is waiting
ATTEMPTS = 4  # lost workers after which a chunk is given up
BATCH_SIZE = 64  # canvases that a chunk is made for if the workers measure their batch size


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that the package raises on purpose, as plain data that a worker can send."""

    kind: str
    message: str

    def error(self) -> S3dlmError:
        kind = getattr(errors, self.kind, S3dlmError)
        error: S3dlmError = kind.__new__(kind)
        Exception.__init__(error, self.message)  # the message is complete already
        return error


class Worker:
    """A Ray actor: a value built once in the worker, and calls to its methods."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make
        self.held: Any = None

    def pid(self) -> int:
        return os.getpid()

    def call(self, method: str, *arguments: Any) -> Any:
        """The result (an iterator as a list), or a refusal; any other exception is a bug and raises."""
        try:
            if self.held is None:
                self.held = self.make()
            result = getattr(self.held, method)(*arguments)
            return list(result) if isinstance(result, Iterator) else result
        except S3dlmError as error:
            return Refusal(type(error).__name__, str(error))


@dataclass(frozen=True, slots=True)
class _Task:
    """A submitted chunk."""

    worker: int
    actor: Any
    chunk: Any
    attempt: int


class Pool:
    """Workers on a Ray cluster; a lost worker is replaced and its chunks run again."""

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        address: str | None = None,
        workers: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.ray = _ray()
        self.owned = _connect(self.ray, address)
        self.make, self.say = make, say or _to_stderr
        try:
            gpus, cpus = (int(self.ray.cluster_resources().get(n, 0)) for n in ("GPU", "CPU"))
            self.actor_class = self._actor_class(gpus > 0)
            count = _count(workers, gpus or cpus)
            self.actors = [self.actor_class.remote(make) for _ in range(count)]
        except BaseException:
            self.close()
            raise

    def _actor_class(self, on_gpu: bool) -> Any:
        needs = {"num_gpus": 1, "num_cpus": 0} if on_gpu else {"num_cpus": 1}
        return self.ray.remote(max_restarts=0, max_task_retries=0, **needs)(Worker)

    def pids(self) -> list[int]:
        """Process ids of the workers, on their machines."""
        found: list[int] = self.ray.get([actor.pid.remote() for actor in self.actors])
        return found

    def ask(self, method: str, *arguments: Any) -> Any:
        """One call on any worker."""
        (result,) = self.spread(method, [()], lambda _: arguments, collect=False)
        return result

    def spread(
        self,
        method: str,
        chunks: Iterable[Any],
        arguments: Callable[[Any], Sequence[Any]] = lambda chunk: [chunk],
        *,
        collect: bool = True,
    ) -> Iterator[Any]:
        """Results of all chunks as they finish, each exactly once."""
        waiting, again = iter(chunks), deque[tuple[Any, int]]()
        running: dict[Any, _Task] = {}
        while True:
            self._fill(running, waiting, again, method, arguments)
            if not running:
                return
            (ready,), _ = self.ray.wait(list(running), num_returns=1)
            task = running.pop(ready)
            try:
                result = self.ray.get(ready)
            except self.ray.exceptions.RayTaskError:
                raise  # a bug in our own code: retrying would only hide it
            except self.ray.exceptions.RayError as error:
                self._lost(task, error)
                again.append((task.chunk, task.attempt + 1))
                continue
            if isinstance(result, Refusal):
                raise result.error()
            if collect:
                yield from result
            else:
                yield result

    def _fill(
        self,
        running: dict[Any, _Task],
        waiting: Iterator[Any],
        again: deque[tuple[Any, int]],
        method: str,
        arguments: Callable[[Any], Sequence[Any]],
    ) -> None:
        """Submit chunks to the least busy workers; chunks of lost workers come first."""
        loads = [0] * len(self.actors)
        for task in running.values():
            loads[task.worker] += 1
        while (load := min(loads)) < AHEAD:
            chunk, attempt = again.popleft() if again else (next(waiting, None), 1)
            if chunk is None:
                return
            worker = loads.index(load)
            actor = self.actors[worker]
            reference = actor.call.remote(method, *arguments(chunk))
            running[reference] = _Task(worker, actor, chunk, attempt)
            loads[worker] += 1

    def _lost(self, task: _Task, error: Exception) -> None:
        """Replace a lost worker, once, and say so."""
        if task.attempt >= ATTEMPTS:
            raise S3dlmError(
                f"{ATTEMPTS} workers were lost on the same samples ({_first_line(error)}); they may "
                "need more memory than a worker has: try a smaller --batch-size"
            ) from error
        if self.actors[task.worker] is task.actor:
            self.say(f"worker {task.worker} was lost ({_first_line(error)}); its samples run again")
            self.actors[task.worker] = self.actor_class.remote(self.make)

    def close(self) -> None:
        """Stop the workers, and the cluster if it was started here."""
        for actor in getattr(self, "actors", []):
            self.ray.kill(actor)
        self.actors = []
        if self.owned:
            self.ray.shutdown()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RayRunner(Pool):
    """A runner on a cluster: pass it to `evaluate` instead of a model."""

    def __init__(
        self,
        model: str | Callable[[], Model],
        *,
        address: str | None = None,
        workers: int | None = None,
        say: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        load = functools.partial(_load, model, **options) if isinstance(model, str) else model
        super().__init__(functools.partial(_local, load), address=address, workers=workers, say=say)

    def manifest(self, plan: Plan) -> Manifest:
        found: Manifest = self.ask("manifest", plan)
        return found

    def warm_up(self, plan: Plan, condition: Condition, batch_size: int | None) -> None:
        one_each = range(len(self.actors))  # an idle worker comes first
        what = [plan, condition, batch_size]
        for _ in self.spread("warm_up", one_each, lambda _: what, collect=False):
            pass

    def records(self, plan: Plan, request: Request) -> Iterator[Record | Failure]:
        shared = self.ray.put(plan)  # sent to every machine once, not with every chunk
        full = (request.batch_size or BATCH_SIZE) // request.condition.children
        share = -(-len(request.todo) // (len(self.actors) * AHEAD))
        folder = request.folder.resolve()
        return self.spread(
            "records",
            chunked(request.todo, max(1, min(full, share))),
            lambda chunk: [shared, replace(request, todo=chunk, folder=folder)],
        )


def chunked(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Lists of `size` items, read lazily."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def _load(name: str, **options: Any) -> Model:
    from s3dlm.models.registry import load

    return load(name, progress=False, **options)


def _local(load: Callable[[], Model]) -> Any:
    """The local runner, with the number of threads that Ray gave this worker."""
    import torch

    from s3dlm.evaluation.local import LocalRunner

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return LocalRunner(load())


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray


def _connect(ray: Any, address: str | None) -> bool:
    """Connect to a cluster or start one here; True if we must stop it."""
    if ray.is_initialized():
        return False
    here = address in (None, "local")
    where = {"include_dashboard": False, "address": "local"} if here else {"address": address}
    for last in (False, True):
        try:
            ray.init(logging_level="error", log_to_driver=False, **where)
            return True
        except Exception as error:  # Ray has no class of its own for this
            ray.shutdown()
            if here and not last:
                continue  # a busy machine may need longer than Ray waits; the second try is faster
            raise S3dlmError(
                f"no Ray cluster at address={address or 'local'!r}: {_first_line(error)}; start one "
                "with `ray start --head`, or use --ray local on a less busy machine"
            ) from error
    raise AssertionError("unreachable")


def _count(wanted: int | None, available: int) -> int:
    if wanted is not None and wanted < 1:
        raise SettingsError(f"workers={wanted} is not allowed; give a whole number from 1 up")
    return wanted or max(1, available)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _to_stderr(text: str) -> None:
    print(f"s3dlm: {text}", file=sys.stderr, flush=True)
