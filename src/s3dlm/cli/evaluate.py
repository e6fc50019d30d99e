"""Commands that make a run and read it: parse, call, print. Nothing heavy is imported before one runs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from s3dlm.cli import options
from s3dlm.cli.report import print_report
from s3dlm.errors import MissingExtraError, SettingsError

if TYPE_CHECKING:
    from s3dlm.evaluation.plan import Plan

Limit = Annotated[int | None, Option(help="Only the first N problems per task.")]
Seeds = Annotated[int, Option(min=1, help="Seeds per problem: 0, 1, …")]
DataFolder = Annotated[Path | None, Option(help="Folder of benchmark files. Default: the hub.")]
GivenSettings = Annotated[
    options.Repeated,
    Option("--set", metavar="NAME=VALUE", help="A setting; eval sweeps over 1,2,4."),
]
_METHODS = "Methods: repeat, or separate by commas. Default: the paper's five."
_WORKERS = "Processes, for a small model on the CPU. Default: 1. With --ray: one per GPU."
_RAY = "A Ray cluster: local, auto or its address."
Workers = Annotated[int | None, Option(min=1, help=_WORKERS)]
RayAddress = Annotated[str | None, Option("--ray", metavar="ADDRESS", help=_RAY)]
Traces = Annotated[int, Option(min=0, help="Problems per task to record step by step.")]
BatchSize = Annotated[int, Option(min=1, help="Canvases per forward pass; changes no answer.")]
RetryFailed = Annotated[bool, Option("--retry-failed", help="Run failed samples again.")]
_SWEEPS = "Per task for the sweeps over N, b and block length; 0: none. Default: the size's."
_PROMPTS = "TOML files of your own prompts, one run each; the report has the spread."
DryRun = Annotated[bool, Option("--dry-run", help="Print what it would cost, and stop.")]


def eval_command(
    out: Annotated[Path, Option(help="Folder of the run; the same command resumes it.")],
    model: options.ModelName = "tiny",
    task: options.Tasks = None,
    method: Annotated[options.Repeated, Option(help=_METHODS)] = None,
    limit: Limit = None,
    seeds: Seeds = 1,
    verifier: options.VerifierName = None,
    more: GivenSettings = None,
    split: Annotated[str, Option(help="test, or validation for bundled tasks.")] = "test",
    data: DataFolder = None,
    device: options.Device = None,
    load: options.Load = None,
    prompts: Annotated[options.Repeated, Option("--prompts", metavar="FILE", help=_PROMPTS)] = None,
    workers: Workers = None,
    ray: RayAddress = None,
    batch_size: BatchSize = 64,
    traces: Traces = 0,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate methods on tasks. If the run is interrupted, the same command resumes it.

    A setting applies to those of the methods that use it.

    \b
    s3dlm eval --task countdown,sudoku --limit 50 --out runs/first
    s3dlm eval --task countdown --method s3 --set particles=1,2,4 --out runs/sweep
    s3dlm eval --model GSAI-ML/LLaDA-1.5 --task gsm8k --out runs/llada --dry-run
    """
    from s3dlm.evaluation import plan as plans
    from s3dlm.search.methods import find_method

    # First of all: a file of one's own may have settings of its own.
    methods = [find_method(name).name for name in options.split(method)] or plans.FIVE
    named = [] if verifier is None else [f"verifier={verifier}"]
    chosen = options.setting_values([*(more or ()), *named])
    sweeps = {name: values for name, values in chosen.items() if len(values) > 1}
    fixed = {name: values[0] for name, values in chosen.items() if name not in sweeps}

    def planned(recommended: Any, problems: Mapping[str, Any]) -> Plan:
        defaults = plans.recommendations(recommended)
        conditions = plans.grid(list(problems), methods, defaults, fixed, sweeps)
        return plans.Plan(conditions, problems, range(seeds), split, traces)

    which = {"data": data, "split": split, "limit": limit}
    files = options.split(prompts)
    folders = [out / Path(file).stem for file in files] if len(files) > 1 else [out]
    if len(set(folders)) < len(folders):
        raise SettingsError("two files of --prompts have the same name; rename one")
    loadings = [options.loading(load, device=device, prompts=file) for file in files]
    loadings = loadings or [options.loading(load, device=device)]
    runs = dict(zip(folders, loadings, strict=True))
    _carry_out(planned, model, task, which, runs, workers, ray, dry_run, as_json, out,
               batch_size=batch_size, retry_failed=retry_failed)  # fmt: skip


def reproduce(
    model: options.ModelName = "tiny",
    task: options.Tasks = None,
    size: Annotated[str, Option(help="hour, day or full, as on one H100.")] = "hour",
    limit: Limit = None,
    seeds: Annotated[int | None, Option(min=1, help="Per problem. Default: 1; full: 3.")] = None,
    more: GivenSettings = None,
    data: DataFolder = None,
    out: Annotated[Path | None, Option(help="Default: runs/reproduce-MODEL.")] = None,
    device: options.Device = None,
    load: options.Load = None,
    prompts: options.PromptsFile = None,
    workers: Workers = None,
    ray: RayAddress = None,
    batch_size: BatchSize = 64,
    traces: Traces = 2,
    sweep_problems: Annotated[int | None, Option(min=0, help=_SWEEPS)] = None,
    retry_failed: RetryFailed = False,
    check: Annotated[
        bool, Option("--check", help="Ten minutes of checks instead of hours.")
    ] = False,
    recorded: Annotated[
        Path | None, Option(help="With --check: outputs of another program.")
    ] = None,
    dry_run: DryRun = False,
    as_json: options.AsJson = False,
) -> None:
    """Run the paper's protocol on one model, and report.

    \b
    s3dlm reproduce --check --model GSAI-ML/LLaDA-8B-Instruct --device cuda --prompts d1.toml --recorded d1.jsonl
    s3dlm reproduce --model tiny
    s3dlm reproduce --model GSAI-ML/LLaDA-8B-Instruct --size hour --dry-run

    A larger size continues what a smaller one has in the same folder.
    """
    loading = options.loading(load, device=device, prompts=prompts)
    if check:
        _check(model, loading, limit or 20, data, recorded, as_json)
        return
    from s3dlm.evaluation import paper
    from s3dlm.evaluation.plan import recommendations as settings_of
    from s3dlm.models.folder import defaults_of

    fixed, chosen = options.single(options.setting_values(more)), paper.size_of(size)

    def planned(recommended: Any, problems: Mapping[str, Any]) -> Plan:
        return paper.reproduction(
            problems, settings_of(recommended), range(seeds or chosen.seeds), chosen, fixed,
            sweep_problems=sweep_problems, traces=traces,
        )  # fmt: skip

    folder = out or Path("runs") / f"reproduce-{model.strip('/').replace('/', '-')}"
    limit = limit or chosen.problems
    task = task or [name for name in defaults_of(model).tasks if name not in chosen.left_out]
    which = {"data": data, "limit": limit}
    _carry_out(planned, model, task, which, {folder: loading}, workers, ray, dry_run, as_json, folder,
               batch_size=batch_size, retry_failed=retry_failed)  # fmt: skip


def _check(
    model: str, loading: dict[str, Any], limit: int, data: Path | None, recorded: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    from s3dlm.evaluation import gate
    from s3dlm.evaluation.plan import load_problems
    from s3dlm.models import registry

    loaded = options.load_model(model, **loading)
    (problems,) = load_problems([gate.TASK], "d1", data=data, limit=limit).values()
    found = []
    for line in gate.checks(
        loaded, lambda **how: registry.load(model, **{**loading, **how}), problems.samples, recorded
    ):
        found.append(line)
        if not as_json:
            typer.echo(f"{line.verdict:12} {line.name}: {line.found}")
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(line) for line in found]))
    if any(line.verdict == "differs" for line in found):
        raise typer.Exit(1)


Planned = Callable[[Any, Mapping[str, Any]], "Plan"]


def _carry_out(
    planned: Planned, model: str, task: options.Repeated, which: Mapping[str, Any],
    runs: Mapping[Path, Mapping[str, Any]], workers: int | None, ray: str | None, dry_run: bool,
    as_json: bool, out: Path, **how: Any,
) -> None:  # fmt: skip
    """Print what a plan costs; or run it, once for each folder with its way to load the model, and report."""
    from s3dlm import tasks
    from s3dlm.evaluation import cost
    from s3dlm.models.folder import defaults_of
    from s3dlm.models.registry import check_model_name
    from s3dlm.verifier import check_verifier

    # As far as a plan is known before the model is loaded: mistakes are told first.
    names = options.split(task) or list(defaults_of(model).tasks)
    plan = planned(model, dict.fromkeys(names))
    check_model_name(model)
    for condition in plan.conditions:
        if (judge := condition.value("verifier")) is not None:
            check_verifier(tasks.get(condition.task).verifier, judge)
    if dry_run:
        found = cost.estimate(model, plan.conditions, which["limit"], len(plan.seeds))
        plain = json.dumps(dataclasses.asdict(found)) if as_json else "\n".join(found.lines())
        typer.echo(plain)
        return
    for folder, loading in runs.items():
        _run(planned, model, names, which, loading, folder, workers, ray, **how)
    try:
        print_report([*runs], as_json, out=out)
    except MissingExtraError as error:  # it can be made later
        named = " ".join(map(str, runs))
        typer.echo(f"no report: {error}; then: s3dlm report {named} --out {out}", err=True)


def _run(
    planned: Planned, model: str, names: Sequence[str], which: Mapping[str, Any],
    loading: Mapping[str, Any], folder: Path, workers: int | None, ray: str | None, **how: Any,
) -> None:  # fmt: skip
    """Run a plan on a model, in one process or several, or on a cluster."""
    from s3dlm.evaluation.plan import load_problems
    from s3dlm.models.folder import defaults_of

    style = defaults_of(model).prompt_style
    problems, runner = load_problems(names, style, **which), None
    if ray is None:
        loaded = options.load_model(model, **loading)
        if loaded.defaults.prompt_style != style:  # a model of another package may have its own
            problems = load_problems(names, loaded.defaults.prompt_style, **which)
    else:  # its workers load the model
        from s3dlm.evaluation.run import RUNNERS

        runner = RUNNERS.find("ray")(model, address=ray, workers=workers, **loading)
    for name, some in problems.items():
        total = "" if len(some.samples) == some.total else f" of {some.total}"
        typer.echo(f"{name}: {len(some.samples)}{total} problems ({some.origin})", err=True)
    from s3dlm.evaluation import processes
    from s3dlm.evaluation.run import Bars, evaluate

    plan = planned(model if runner else loaded, problems)
    try:
        local = runner or processes.runner(loaded, workers or 1)
        with local as running, Bars(plan) as bars:
            evaluate(running, plan, folder, observer=bars, **how)
    except KeyboardInterrupt:
        typer.echo(f"the same command resumes {folder}", err=True)
        raise
