"""The runner for many GPUs or machines, over Ray.

Each worker is an actor that holds the model once. A result depends on (seed, sample id) alone, so it
does not matter which worker computes it, in which batch, or whether it is computed again after a
worker was lost: Ray starts another one in its place and repeats the chunk.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from s3dlm.errors import MissingExtraError, S3dlmError, SettingsError
from s3dlm.verifier import own

if TYPE_CHECKING:  # a worker that is being started must not wait for torch
    from s3dlm.evaluation.records import Failure, Record
    from s3dlm.evaluation.run import Chunk
    from s3dlm.models.base import Model

ATTEMPTS = 4  # lost workers after which a chunk is given up


class Worker:
    """A Ray actor: a local runner, built at the first call, and calls to its methods."""

    runner: Any = None

    def __init__(
        self, model: str | Callable[[], Model], options: dict[str, Any], verifiers: Sequence[str]
    ) -> None:
        self.model, self.options, self.verifiers = model, options, verifiers

    def call(self, method: str, *arguments: Any) -> tuple[int, Any]:
        """Process id and result; an iterator is sent as a list."""
        if self.runner is None:
            import torch

            from s3dlm.evaluation.local import LocalRunner
            from s3dlm.models.registry import load

            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # as Ray decides
            name = self.model
            model = load(name, progress=False, **self.options) if isinstance(name, str) else name()
            own.take(self.verifiers)  # from the same paths on every machine
            self.runner = LocalRunner(model)
        result = getattr(self.runner, method)(*arguments)
        return os.getpid(), list(result) if isinstance(result, Iterator) else result


class RayRunner(contextlib.AbstractContextManager["RayRunner"]):
    """A runner on a cluster: pass it to `evaluate` instead of a model."""

    def __init__(
        self,
        model: str | Callable[[], Model],
        *,
        address: str | None = None,
        workers: int | None = None,
        **options: Any,
    ) -> None:
        if workers is not None and workers < 1:
            raise SettingsError(f"workers={workers} is not allowed; give a whole number from 1 up")
        self.actors, self.pids = list[Any](), set[int]()
        self.ray, self.owned = connect(address)
        try:
            gpus, cpus = (int(self.ray.cluster_resources().get(n, 0)) for n in ("GPU", "CPU"))
            needs = {"num_gpus": 1, "num_cpus": 0} if gpus else {"num_cpus": 1}
            actor = self.ray.remote(max_restarts=-1, max_task_retries=ATTEMPTS - 1, **needs)(Worker)
            for _ in range(workers or max(1, gpus or cpus)):
                self.actors.append(actor.remote(model, options, own.given()))
        except BaseException:
            self.close()
            raise

    def describe(self) -> dict[str, Any]:
        with self._errors():
            replies = self.ray.get([actor.call.remote("describe") for actor in self.actors])
        described = [self._result(*reply) for reply in replies]
        return dict(described[0])

    def records(self, chunk: Chunk) -> Iterator[Record | Failure]:
        """Chunks of one batch each, on whichever worker is free."""
        from ray.util import ActorPool

        with self._errors():
            for reply in ActorPool(self.actors).map_unordered(
                lambda actor, part: actor.call.remote("records", part),
                chunk.parts(len(self.actors)),
            ):
                yield from self._result(*reply)

    def _result(self, pid: int, result: Any) -> Any:
        if pid not in self.pids and len(self.pids) >= len(self.actors):
            text = "s3dlm: a worker was lost; another one took its place and ran its samples again"
            print(text, file=sys.stderr, flush=True)
        self.pids.add(pid)
        return result

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the package as they were raised in a worker; a defect with Ray's traceback."""
        try:
            yield
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, S3dlmError):
                raise error.cause from None
            raise
        except self.ray.exceptions.RayError as error:
            raise S3dlmError(
                f"{ATTEMPTS} workers were lost on the same samples ({_first_line(error)}); they may "
                "need more memory than a worker has: try a smaller --batch-size N"
            ) from error

    def close(self) -> None:
        """Stop the workers, and the cluster if it was started here."""
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []
        if self.owned:
            self.ray.shutdown()

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(address: str | None, *, logs: bool = False) -> tuple[Any, bool]:
    """Ray, connected to a cluster or to one that is started here; True if we must stop it. `logs` of
    the workers come to standard error."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    here = address in (None, "local")
    if here and "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        # Ray listens on every interface and runs what it is sent: from us alone.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray") from error
    if ray.is_initialized():
        return ray, False
    where = {"include_dashboard": False, "address": "local"} if here else {"address": address}
    for again in (here, False):  # a busy machine may need longer than Ray waits; twice is enough
        try:
            ray.init(logging_level="error", log_to_driver=logs, **where)
            break
        except Exception as error:  # Ray has no class of its own for this
            ray.shutdown()
            if not again:
                raise S3dlmError(
                    f"no Ray cluster at address={address or 'local'!r}: {_first_line(error)}; start "
                    "one with `ray start --head`, or use --ray local on a less busy machine"
                ) from error
    return ray, True


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
