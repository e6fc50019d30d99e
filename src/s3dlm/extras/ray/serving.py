"""Many replicas of the server behind one address, over Ray Serve.

    s3dlm serve --model tiny --replicas 2
    serve run s3dlm.extras.ray.serving:build_app model=tiny replicas=2

A replica is the app of server/ with an engine of its own, on its own GPU or group of cores. Ray sends
each request to the less loaded of two replicas and puts another in the place of one that dies. An answer
depends on the request alone, so it does not matter which replica gives it.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pydantic import TypeAdapter, ValidationError, validate_call

from s3dlm.errors import MissingExtraError, S3dlmError, SettingsError
from s3dlm.verifier import own

try:
    import ray
    from ray import serve as ray_serve

    from s3dlm.server.run import HARD_END_SECONDS, LOCAL_NAMES, end_by_force
    from s3dlm.server.service import Configuration
except ImportError as missing:
    raise MissingExtraError(missing.name or "ray", "ray,serve") from missing

NAME = "s3dlm"  # of the application and its one deployment
BUSY = 8  # requests per replica beyond which Ray adds one, where it may
QUIET = {"log_level": "WARNING", "enable_access_log": False}  # Ray's own lines
CONTROL_SECONDS = 5.0  # for replicas to answer a question of ours
POLL_SECONDS = 0.2
PROXY_SECONDS = "60"  # for Ray's web server to start, or to say that it is well


class Replica:
    """The app of one server, and what the others and the command ask of it."""

    def __init__(
        self,
        model: str,
        loading: dict[str, Any],
        configuration: dict[str, Any],
        verifiers: Sequence[str],
    ) -> None:
        import torch
        from starlette.routing import Route

        from s3dlm.models.registry import load
        from s3dlm.server.app import create_app
        from s3dlm.server.reporting import configure_logging

        configure_logging()
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))  # as Ray decides
        own.take(verifiers)  # from the same paths on every machine
        self.web = create_app(load(model, progress=False, **loading), **configuration)
        self.scheduler = self.web.state.service.scheduler
        # Before the app's own route; the middleware with its key is around both.
        self.web.router.routes.insert(0, Route("/metrics", self.all_metrics))

    def __serve_build_asgi_app__(self) -> Any:
        return self.web

    def check_health(self) -> None:
        """Ray replaces a replica whose engine has failed or stalled."""
        if self.scheduler.problem and not self.scheduler.draining:
            raise RuntimeError(self.scheduler.problem)

    async def drain(self) -> bool:
        """Accept nothing new; whether all that was accepted is answered."""
        self.scheduler.draining = True
        return bool(self.scheduler.idle)

    async def metrics(self) -> list[Any]:
        replica = ray_serve.get_replica_context().replica_tag
        return list(self.web.state.service.metrics.collect(replica=replica))

    async def all_metrics(self, request: Any) -> Any:
        """Everybody's metrics, each with the label of its replica."""
        from prometheus_client import generate_latest
        from starlette.responses import Response

        context = ray_serve.get_replica_context()
        everyone = ray_serve.get_deployment_handle(context.deployment, context.app_name)
        asked = everyone.broadcast("metrics")
        families: dict[str, Any] = {}
        for answer in await asked.results_async(timeout_s=CONTROL_SECONDS, return_exceptions=True):
            for metric in () if isinstance(answer, BaseException) else answer:
                family = families.setdefault(metric.name, metric)
                if family is not metric:
                    family.samples += metric.samples
        text = generate_latest(SimpleNamespace(collect=families.values))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def build_app(arguments: Mapping[str, Any]) -> Any:
    """For `serve run` and `serve deploy`: the keywords of `application`. The API key is the
    environment's S3DLM_API_KEY; without one only local host names are accepted."""
    key = os.environ.get("S3DLM_API_KEY") or None
    try:
        hosts = None if key else LOCAL_NAMES
        return application(**{"api_key": key, "hosts": hosts, **arguments})
    except ValidationError as error:
        raise SettingsError(f"arguments of s3dlm.extras.ray.serving:build_app: {error}") from None


@validate_call
def application(
    model: str = "tiny",
    *,
    replicas: int | str = "all",
    device: str | None = None,
    load: dict[str, Any] | None = None,
    grace: float = 60.0,
    **options: Any,
) -> Any:
    """A Serve application.

    Args:
        model: Its name.
        replicas: A number, a range as in 1-4 within which Ray scales with the load, or all: one per GPU, or
            per core if there are none.
        device: cpu or cuda; Ray chooses which.
        load: How each replica loads the model.
        grace: Seconds for what was accepted, after SIGTERM.
        options: See `Configuration`; limits hold for each replica.
    """
    configuration = TypeAdapter(Configuration).validate_python(options)
    limits, loading = configuration.limits, {**(load or {}), "device": device}
    least, most, needs = _places(str(replicas), loading)
    scale: dict[str, Any] = {"num_replicas": least}
    if least != most:
        between = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": BUSY}
        scale = {"autoscaling_config": between}
    made = ray_serve.deployment(
        ray_serve.ingress()(Replica),
        name=NAME,
        ray_actor_options=needs,
        # The replica's own queue answers 429 first, with the time to wait.
        max_ongoing_requests=2 * (limits.waiting + limits.running),
        graceful_shutdown_timeout_s=grace + HARD_END_SECONDS,
        max_constructor_retry_count=3,
        logging_config=QUIET,
        **scale,
    )
    return made.bind(model, loading, vars(configuration), own.given())


def _places(replicas: str, loading: Mapping[str, Any]) -> tuple[int, int, dict[str, Any]]:
    """The least and the most replicas, and what each needs of the cluster."""
    known = ray.is_initialized()  # not yet when `serve run` asks: then this machine counts
    resources = ray.cluster_resources() if known else _this_machine()
    device = loading.get("device")
    gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
    if device not in (None, "cpu", "cuda"):
        raise SettingsError(f"device={device!r} is Ray's choice with replicas; give cpu or cuda")
    several = loading.get("devices") or []
    several = several.split(",") if isinstance(several, str) else several
    on_gpu = bool(gpus) and "cpu" not in (device, *several)
    there, each = (gpus, max(1, len(several))) if on_gpu else (cpus, 1)
    first, _, last = replicas.partition("-")
    try:
        least = max(1, there // each) if replicas == "all" else int(first)
        most = int(last or least)
    except ValueError:
        least = most = 0
    if not 1 <= least <= most:
        raise SettingsError(f"replicas={replicas!r} is not allowed; give all, 2, or 1-4")
    if known and most * each > there:
        kind = "GPUs" if on_gpu else "cores"
        raise SettingsError(
            f"replicas={replicas} need {most * each} {kind}, and there are {there}; give fewer, or all"
        )
    needs = {"num_gpus": each, "num_cpus": 0} if on_gpu else {"num_cpus": max(1, cpus // most)}
    return least, most, needs


def _this_machine() -> dict[str, float]:
    import torch

    return {"GPU": torch.cuda.device_count(), "CPU": os.cpu_count() or 1}


def _serve_until_signal(
    app: Any, host: str, port: int, *, grace: float, announce: Callable[[str], None]
) -> None:
    """Serve until a signal; then answer what was accepted, within the grace period, and leave. A
    second signal leaves at once, and nothing that hangs keeps the process alive."""
    signals, leaving = 0, threading.Event()

    def leave(*_: object) -> None:
        nonlocal signals
        signals += 1
        if not leaving.is_set():
            end_by_force(grace + HARD_END_SECONDS)
        leaving.set()

    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, leave)
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    where = {"host": host, "port": port}
    try:
        ray_serve.start(proxy_location="HeadOnly", http_options=where, logging_config=QUIET)
    except (TimeoutError, ray.exceptions.RayError) as error:
        reason = str(error).strip().splitlines()[0]
        raise S3dlmError(f"Ray's web server did not start: {reason}; try again") from error
    try:
        try:
            everyone = ray_serve.run(app, name=NAME, route_prefix="/")
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise S3dlmError(f"the replicas did not start: {reason}") from error
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        while not leaving.wait(1):
            pass
        until = time.monotonic() + grace
        while signals < 2 and time.monotonic() < until and not _drained(everyone):
            time.sleep(POLL_SECONDS)
    finally:
        ray_serve.delete(NAME, _blocking=signals < 2)


def _drained(everyone: Any) -> bool:
    """Whether every replica that still answers has nothing left to answer."""
    found = everyone.broadcast("drain")
    try:
        told = found.results(timeout_s=CONTROL_SECONDS, return_exceptions=True)
    except (TimeoutError, ray.exceptions.RayError):
        return False
    return not any(idle is False for idle in told)


def run_replicas(
    model: str, host: str, port: int, *, cluster: str | None, announce: Callable[[str], None],
    grace: float, **options: Any,
) -> None:  # fmt: skip
    """Serve replicas of a model until the process is ended; a cluster of its own ends with it."""
    from s3dlm.extras.ray.evaluation import connect

    os.environ["FORWARDED_ALLOW_IPS"] = ""  # Ray's web server believes no header; the app may
    for name in ("READY", "HEALTH"):  # it is killed if it takes longer, on a busy machine too soon
        os.environ.setdefault(f"RAY_SERVE_PROXY_{name}_CHECK_TIMEOUT_S", PROXY_SECONDS)
    engine, owned = connect(cluster, logs=True)
    try:
        app = application(model, grace=grace, **options)
        _serve_until_signal(app, host, port, grace=grace, announce=announce)
    finally:
        if owned:
            engine.shutdown()
