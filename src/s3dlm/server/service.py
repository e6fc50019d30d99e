"""What the handlers of one server share, built once at the start, and what its page may offer."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from s3dlm import tasks
from s3dlm.diffusion.decoding import Decoding
from s3dlm.errors import RecordError, SettingsError, short_repr
from s3dlm.inputs import read_json_lines
from s3dlm.models.base import Model
from s3dlm.search.methods import DEFAULT, METHODS, find_method
from s3dlm.server.limits import Limits
from s3dlm.server.reporting import ApiError, Metrics
from s3dlm.server.scheduler import Scheduler
from s3dlm.server.schemas import request_settings
from s3dlm.settings import FIRST, Settings, merged, names
from s3dlm.verifier import as_verifier, installed
from s3dlm.viewer.page import for_page

EXAMPLES_PER_TASK = 3
MEMO = Decoding.model_fields["memo"].default
LONGEST_HEADER = 1 << 20  # bytes of a trace's first line
GENERAL_EXAMPLES = (  # for models that were not trained on the bundled tasks
    (
        "gsm8k",
        "Natalia sold clips to 48 friends in April, and half as many in May. How many in all?",
    ),
    ("math500", "What is the remainder when 7^100 is divided by 5?"),
    ("countdown", "Target: 45 Numbers: 8, 7, 11"),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The traces that `s3dlm eval --traces N` wrote into some folders, in a table of names: no request
    is a path."""

    folders: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for folder in self.folders:
            if not folder.is_dir():
                raise SettingsError(
                    f"--runs {folder} is not a folder; give one that `s3dlm eval --traces N` wrote"
                )

    def files(self) -> dict[str, tuple[Path, str | None]]:
        """Every trace there is now with its method's label, by the name under which it is offered: run by
        run, and in each by task, problem and method, in the run's order."""
        found: dict[str, tuple[Path, str | None]] = {}
        for folder in self.folders:
            placed = []
            conditions = _conditions(folder)
            for path in (folder / "traces").glob("*.jsonl"):
                spec, _, sample = path.stem.partition("-")
                # A trace that the manifest does not know comes last, under its method.
                task, place, label = conditions.get(spec, (math.inf, 0, None))
                placed.append(((task, sample, place, path.name), path, label))
            for _, path, label in sorted(placed):
                found[f"{folder.resolve().name}/{path.stem}"] = path, label
        return found

    def listing(self) -> list[dict[str, Any]]:
        """What is known of every trace before it is opened; damaged ones are left out."""
        rows = []
        for name, (path, label) in self.files().items():
            with contextlib.suppress(RecordError, StopIteration, KeyError, TypeError):
                _, header = next(read_json_lines(path, longest=LONGEST_HEADER))
                row = {
                    "id": name,
                    "run": name.partition("/")[0],
                    "sample": path.stem.partition("-")[2],
                    "task": header["task"],
                    "method": header["settings"]["method"],
                    "label": label or header["settings"]["method"],
                    "question": header["question"],
                    "correct": header.get("correct"),
                }
                rows.append(row)
        return rows

    def trace(self, name: str) -> bytes:
        """A trace for the page; a damaged one counts as missing."""
        with contextlib.suppress(KeyError, OSError, ValueError, TypeError):
            path, label = self.files()[name]
            return for_page(path.read_bytes(), **({"label": label} if label else {}))
        raise ApiError(404, "no such trace; GET /v1/traces lists them", code="not_found")


def _conditions(folder: Path) -> dict[str, tuple[float, int, str | None]]:
    """The places of the task and of the condition in a run's order, and the label, by the spec in the
    names of traces; empty if the manifest cannot be read."""
    try:
        rows = json.loads((folder / "manifest.json").read_bytes())["conditions"]
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        return {
            row["spec"]: (tasks.index(row["task"]), place, row["label"])
            for place, row in enumerate(rows)
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What an operator decides about a server.

    Args:
        limits: Bounds of requests, searches and connections.
        defaults: The method and settings of what a request leaves out.
        verifiers: Those that requests may name beside the installed ones: by name a verifier, a function or
            the name of one. They are loaded at the start, never during a request.
        aliases: Other names of the model, each with settings.
        runs: Folders of `s3dlm eval` whose recorded searches the page offers.
        cors: Origins of web pages that may ask.
        proxies: Addresses or networks of reverse proxies, whose X-Forwarded-For is believed.
        api_key: What every request must send; None: nothing.
        hosts: The accepted Host headers; None: any.
        log_prompts: Whether the log may hold prompts.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")  # where it is read from a file

    limits: Limits = field(default_factory=Limits)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    verifiers: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    runs: Sequence[Path] = ()
    cors: Sequence[str] = ()
    proxies: Sequence[str] = ()
    api_key: str | None = None
    hosts: frozenset[str] | None = None
    log_prompts: bool = False


class Service:
    """One model behind one queue, and the only names that requests may use."""

    def __init__(self, model: Model, given: Configuration) -> None:
        # Clients need not know the machine's paths.
        is_folder = Path(model.name).is_dir()
        self.name = Path(model.name).resolve().name if is_folder else model.name
        self.model, self.configuration, self.limits = model, given, given.limits
        self.operator = dict(given.defaults)
        # For requests that name none; by its latest name, which the page knows.
        self.method = find_method(str(self.operator.pop("method", DEFAULT))).name
        self.verifiers = {name: as_verifier(name) for name in installed()}
        for name, verifier in given.verifiers.items():
            self.verifiers[_public(name)] = as_verifier(verifier)
        self.task_names, self.recorded = frozenset(tasks.names()), Recorded(tuple(given.runs))
        self.created, self.metrics = int(time.time()), Metrics(self.name)
        self.limits.check(self.settings(self.method), model)  # a mistake is reported at the start
        for alias in given.aliases.values():
            self.limits.check(Settings.for_model(model, **{"method": self.method, **alias}), model)
        self.scheduler = Scheduler(model, self.limits, self.metrics, log_prompts=given.log_prompts)

    @property
    def names(self) -> list[str]:
        """What clients may call the model."""
        return [self.name, *self.configuration.aliases]

    def named(self, name: str | None) -> Service:
        """The service as a client calls it: by the model's name, or by an alias with its settings."""
        if name is None or name == self.name:
            return self
        if name not in self.configuration.aliases:
            known = ", ".join(map(repr, self.names))
            message = f"the model {short_repr(name)} does not exist here; this server has {known}"
            raise ApiError(404, message, param="model", code="model_not_found")
        overrides, renamed = dict(self.configuration.aliases[name]), copy.copy(self)
        renamed.name = name
        renamed.method = find_method(str(overrides.pop("method", self.method))).name
        renamed.operator = {**self.operator, **overrides}
        return renamed

    def settings(self, method: str, task: str | None = None) -> Settings:
        """The settings of a request that gives none itself."""
        return Settings(method, **self.values(method, task, {}))

    def values(self, method: str, task: str | None, own: Mapping[str, Any]) -> dict[str, Any]:
        """A request's own settings over the operator's and the model's, as far as the method has them."""
        row = find_method(method)
        layers = [*self.model.defaults.layers(row.name, task, row.like), self.operator]
        values = merged(row, layers, own)
        if "memo" not in own:
            values["memo"] = min(values.get("memo", MEMO), self.limits.memo)
        return values

    def options(self) -> dict[str, Any]:
        """What the page may offer: settings, methods, tasks, examples and limits."""
        first = [name for name in self.model.defaults.tasks if name in self.task_names]
        methods = {name: METHODS.find(name) for name in METHODS}
        defaults = {name: self.settings(name) for name in methods}
        return {
            "model": self.name,
            "models": self.names,
            "method": self.method,
            "methods": {name: row.summary for name, row in methods.items()},
            "settings": list(request_settings().values()),
            "first": list(FIRST),
            "settings_of": {name: names(row) for name, row in methods.items()},
            "defaults": {name: settings.to_json() for name, settings in defaults.items()},
            "tasks": [*first, *(name for name in tasks.names() if name not in first)],
            "verifiers": sorted(self.verifiers),
            "recorded": len(self.recorded.files()),
            "examples": example_problems(self.model.defaults.tasks),
            "limits": {
                name: getattr(self.limits, name) for name in ("length", "children", "steps")
            },
        }


def _public(verifier: str) -> str:
    """The name of a verifier for clients: judge:URL#MODEL is judge:MODEL, since a URL may hold a
    password."""
    kind, _, place = verifier.partition(":")
    return f"{kind}:{place.rpartition('#')[2]}" if "://" in place else verifier


@cache
def example_problems(names: tuple[str, ...]) -> list[dict[str, str]]:
    """Problems to try: for each bundled task among a model's own, some of the test split."""
    own = [name for name in names if tasks.get(name).bundled]
    if not own:
        return [{"task": task, "prompt": prompt} for task, prompt in GENERAL_EXAMPLES]
    loaded = [
        tasks.load(tasks.get(name), prompt_style="tiny", limit=EXAMPLES_PER_TASK) for name in own
    ]
    return [  # one of each task first, so that the row shows every task
        {"task": name, "prompt": sample.question}
        for row in zip(*(some.samples for some in loaded), strict=True)
        for name, sample in zip(own, row, strict=True)
    ]
