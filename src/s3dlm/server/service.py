"""All that the handlers of one server share, built once when it starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from s3dlm import tasks
from s3dlm.models.base import Model
from s3dlm.server.limits import Limits
from s3dlm.server.metrics import Metrics
from s3dlm.server.scheduler import Scheduler
from s3dlm.settings import Settings
from s3dlm.tasks import recommended
from s3dlm.verifier import Verifier, as_verifier
from s3dlm.verifier.lookup import GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One model behind one queue, and the names requests may use: no others are ever looked up."""

    model: Model
    name: str  # what clients call the model
    defaults: Mapping[str, object]  # settings a request need not say
    given: frozenset[str]  # those of them that the operator chose
    limits: Limits
    verifiers: Mapping[str, Verifier]
    task_names: frozenset[str]
    metrics: Metrics
    scheduler: Scheduler
    api_key: str | None = None
    hosts: frozenset[str] | None = None  # Host headers that are answered; None: any
    log_prompts: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def own_of(self, method: str) -> dict[str, object]:
        """What a method named by a request is best asked with, less what the operator chose."""
        tuned = recommended.tuned(self.model.name).get(method, {})
        return {name: value for name, value in tuned.items() if name not in self.given}


def build(
    model: Model,
    *,
    limits: Limits | None = None,
    defaults: Mapping[str, object] | None = None,
    verifiers: Mapping[str, object] | None = None,
    api_key: str | None = None,
    hosts: frozenset[str] | None = None,
    log_prompts: bool = False,
) -> Service:
    """A service around a model; registered verifiers are loaded here, never during a request."""
    limits, metrics = limits or Limits(), Metrics()
    given = dict(defaults or {})
    method = str(given.get("method", Settings().method))
    base = Settings.from_json({**recommended.settings(model.name, method), **given})
    limits.check(base)
    own = {name: as_verifier(one) for name, one in (verifiers or {}).items()}  # type: ignore[arg-type]
    return Service(
        model=model,
        name=_public_name(model.name),
        defaults=base.to_json(),
        limits=limits,
        given=frozenset(given),
        verifiers={**_registered(), **own},
        task_names=frozenset(tasks.names()),
        metrics=metrics,
        scheduler=Scheduler(model, limits, metrics),
        api_key=api_key,
        hosts=hosts,
        log_prompts=log_prompts,
    )


def _registered() -> dict[str, Verifier]:
    return {entry.name: as_verifier(entry.name) for entry in entry_points(group=GROUP)}


def _public_name(name: str) -> str:
    """A folder is called by its last part: clients need not know the machine's paths."""
    return Path(name).resolve().name if Path(name).is_dir() else name
