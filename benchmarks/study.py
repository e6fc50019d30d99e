"""What the studies share: options, model and problems, and a function that evaluates plans."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import S3dlmError, SettingsError
from s3dlm.evaluation import processes
from s3dlm.evaluation.plan import Condition, Plan, SettingsOf, load_problems, recommendations
from s3dlm.evaluation.run import Bars, evaluate
from s3dlm.models import registry
from s3dlm.tasks import Loaded

Evaluate = Callable[[Sequence[tuple[Plan, Path]]], None]  # evaluates plans, each into its folder


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """What all conditions of a study share: the problems and what the model recommends."""

    problems: Mapping[str, Loaded]
    defaults: SettingsOf
    seeds: int
    split: str

    def plan(self, conditions: Sequence[Condition]) -> Plan:
        return Plan(conditions, self.problems, range(self.seeds), self.split)


def tuned_in(file: Path, defaults: SettingsOf) -> SettingsOf:
    """The defaults with the settings that a file of `benchmarks.tune` has for some methods."""
    try:
        tuned = {str(k): dict(v) for k, v in json.loads(file.read_text(encoding="utf-8")).items()}
        for method, chosen in tuned.items():
            defaults(method, None).replace(**chosen)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{file} cannot be used: {error}; write one JSON object, settings by method: "
            '{"s3": {"temperature": 1, "lam": 30}}'
        ) from error
    return lambda method, task: defaults(method, task).replace(**tuned.get(method, {}))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every study."""
    parser.add_argument("--model", default="tiny", help="a model: tiny, a folder or a hub id")
    parser.add_argument("--task", help="tasks, separated by commas; default: the model's own")
    parser.add_argument("--limit", type=int, help="problems per task")
    parser.add_argument("--workers", type=int, default=1, help="processes of this machine")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 or mps")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--json", action="store_true", help="print JSON")


def names(text: str | None) -> list[str]:
    """The parts of an option that takes several names."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


@contextlib.contextmanager
def started(
    options: argparse.Namespace, split: str, limit: int | None, seeds: int = 1
) -> Iterator[tuple[StudyConfig, Evaluate]]:
    """Load model and problems; yields the configuration and the function that evaluates plans."""
    model = registry.load(options.model, device=options.device, dtype=options.dtype)
    tasks = names(options.task) or model.defaults.tasks
    problems = load_problems(tasks, model.defaults.prompt_style, split=split, limit=limit)
    with processes.runner(model, options.workers) as runner:

        def run(plans: Sequence[tuple[Plan, Path]]) -> None:
            with Bars(*(plan for plan, _ in plans)) as observer:
                for plan, folder in plans:
                    evaluate(runner, plan, folder, observer=observer)

        yield StudyConfig(problems, recommendations(model), seeds, split), run


def main(study: Callable[[], None]) -> None:
    """Run a study from the shell: errors are one line, Ctrl-C says how to go on."""
    try:
        study()
    except S3dlmError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command resumes the run")
