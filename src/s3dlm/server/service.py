"""What the handlers of one server share, built once at the start, and what its page may offer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from s3dlm import tasks
from s3dlm.inputs import find_entry_points
from s3dlm.models.base import Model
from s3dlm.server import declared
from s3dlm.server.limits import Limits
from s3dlm.server.recorded import Recorded
from s3dlm.server.reporting import Metrics
from s3dlm.server.scheduler import Scheduler
from s3dlm.settings import Settings
from s3dlm.tasks.problems import GENERATORS, problems
from s3dlm.verifier import Verifier, as_verifier
from s3dlm.verifier.lookup import GROUP

EXAMPLES_PER_TASK = 3
GENERAL_EXAMPLES = (  # for models that were not trained on the bundled tasks
    (
        "gsm8k",
        "Natalia sold clips to 48 friends in April, and half as many in May. How many in all?",
    ),
    ("math500", "What is the remainder when 7^100 is divided by 5?"),
    ("countdown", "Target: 45 Numbers: 8, 7, 11"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One model behind one queue, and the only names that requests may use."""

    model: Model
    name: str  # what clients call the model
    method: str  # for requests that name none
    given: Mapping[str, object]  # settings that the operator chose, for what a request leaves out
    aliases: Mapping[str, Mapping[str, object]]  # other names of the model, each with settings
    limits: Limits
    verifiers: Mapping[str, Verifier]
    task_names: frozenset[str]
    metrics: Metrics
    scheduler: Scheduler
    recorded: Recorded = field(default_factory=Recorded)
    api_key: str | None = None
    hosts: frozenset[str] | None = None  # accepted Host headers; None: any
    log_prompts: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def names(self) -> list[str]:
        """What clients may call the model."""
        return [self.name, *self.aliases]

    def as_alias(self, alias: str) -> Service:
        """The same service under another name, with that name's settings."""
        own = dict(self.aliases[alias])
        method = str(own.pop("method", self.method))
        return replace(self, name=alias, method=method, given={**self.given, **own})

    def settings(self, method: str, task: str | None = None, **changes: Any) -> Settings:
        """The settings of a request: the model's, then the operator's, then its own."""
        usual = Settings.for_model(self.model, method, task)
        used = usual.effective({**self.given, **changes})
        given = {name: value for name, value in self.given.items() if name in used}
        return Settings.for_model(self.model, method, task, **{**given, **changes})

    def options(self) -> dict[str, Any]:
        """What the page may offer: settings, methods, tasks, examples and limits."""
        first = [name for name in self.model.defaults.tasks if name in self.task_names]
        usual = {name: self.settings(name) for name in declared.summaries()}
        return {
            "model": self.name,
            "models": self.names,
            "method": self.method,
            "methods": declared.summaries(),
            "settings": [declared.as_json(one) for one in declared.declarations()],
            "settings_of": {name: list(one.method.settings()) for name, one in usual.items()},
            "defaults": {name: one.to_json() for name, one in usual.items()},
            "tasks": [*first, *(name for name in tasks.names() if name not in first)],
            "verifiers": sorted(self.verifiers),
            "recorded": len(self.recorded.files()),
            "examples": examples(self.model.defaults.tasks),
            "limits": {
                name: getattr(self.limits, name) for name in ("length", "children", "steps")
            },
        }


def build(
    model: Model,
    *,
    limits: Limits | None = None,
    defaults: Mapping[str, object] | None = None,
    verifiers: Mapping[str, object] | None = None,
    aliases: Mapping[str, Mapping[str, object]] | None = None,
    runs: Sequence[Path] = (),
    api_key: str | None = None,
    hosts: frozenset[str] | None = None,
    log_prompts: bool = False,
) -> Service:
    """A service around a model; registered verifiers are loaded here, never during a request."""
    limits, metrics = limits or Limits(), Metrics()
    given = dict(defaults or {})
    method = str(given.pop("method", "s3"))
    usual = Settings.for_model(model, method)
    limits.check(Settings.for_model(model, method, **usual.effective(given)), model)
    own = {name: as_verifier(one) for name, one in (verifiers or {}).items()}  # type: ignore[arg-type]
    installed = {name: as_verifier(name) for name in find_entry_points(GROUP)}
    made = Service(
        model=model,
        # Clients need not know the machine's paths.
        name=Path(model.name).resolve().name if Path(model.name).is_dir() else model.name,
        aliases=aliases or {},
        recorded=Recorded.of(runs),
        method=method,
        given=given,
        limits=limits,
        verifiers={**installed, **own},
        task_names=frozenset(tasks.names()),
        metrics=metrics,
        scheduler=Scheduler(model, limits, metrics, log_prompts=log_prompts),
        api_key=api_key,
        hosts=hosts,
        log_prompts=log_prompts,
    )
    for alias in made.aliases.values():  # a mistake is reported at the start
        asked: dict[str, Any] = {"method": method, **alias}
        limits.check(Settings.for_model(model, **asked), model)
    return made


@cache
def examples(names: tuple[str, ...]) -> list[dict[str, str]]:
    """Problems to try: for each generated task among a model's own, some of the test split."""
    own = [task for task in names if task in GENERATORS]
    if not own:
        return [{"task": task, "prompt": prompt} for task, prompt in GENERAL_EXAMPLES]
    drawn = [problems(task, "test", EXAMPLES_PER_TASK) for task in own]
    return [  # one of each task first, so that the row shows every task
        {"task": problem.task, "prompt": problem.question}
        for row in zip(*drawn, strict=True)
        for problem in row
    ]
