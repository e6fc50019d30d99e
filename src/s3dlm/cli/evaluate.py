"""The commands of evaluation: parse, call, print. Nothing heavy is imported before one runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from s3dlm.cli import options
from s3dlm.cli.report import show_report
from s3dlm.errors import MissingExtraError, SettingsError

if TYPE_CHECKING:
    from s3dlm.evaluation.plan import Condition, Plan
    from s3dlm.tasks import Loaded

Limit = Annotated[int | None, Option(help="Only the first N problems per task.")]
Seeds = Annotated[int, Option(min=1, help="Seeds per problem: 0, 1, …")]
Data = Annotated[Path | None, Option(help="Folder of benchmark files. Default: the hub.")]
Ray = Annotated[str | None, Option(help="Run on a Ray cluster: local, auto or its address.")]
Running = Annotated[
    list[str] | None,
    Option(
        "--run",
        metavar="NAME=VALUE",
        help="How to run: traces (problems per task to record step by step), row_cache (GiB of "
        "canvases reused between methods; times are then those of 40 problems), batch_size, "
        "fail_on_error (failed samples until it stops), retry_failed. Results are equal.",
    ),
]
DryRun = Annotated[bool, Option("--dry-run", help="Print what it would cost, and stop.")]
Gpu = Annotated[str, Option(help="For --dry-run: A100, H100, L40S, RTX4090, or CARD=DOLLARS.")]
RUNNING = {
    "traces": int, "row_cache": float, "batch_size": int, "fail_on_error": int, "retry_failed": bool
}  # fmt: skip


def eval_command(
    out: Annotated[Path, Option(help="Folder of the run; the same command resumes it.")],
    model: options.ModelName = "tiny",
    task: options.Tasks = None,
    method: Annotated[
        list[str] | None,
        Option(
            help="Methods: repeat, or separate by commas. Default: the paper's five.",
            autocompletion=options.lists_of(options.method_names),
        ),
    ] = None,
    limit: Limit = None,
    seeds: Seeds = 1,
    more: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="A setting; 1,2,4 as value sweeps."),
    ] = None,
    split: Annotated[str, Option(help="test, or validation for bundled tasks.")] = "test",
    data: Data = None,
    device: options.Device = None,
    load: options.Load = None,
    ray: Ray = None,
    workers: options.Workers = None,
    run: Running = None,
    dry_run: DryRun = False,
    gpu: Gpu = "H100",
    as_json: options.AsJson = False,
) -> None:
    """Evaluate methods on tasks. If the run is interrupted, the same command resumes it.

    A setting applies to those of the methods that use it.

    \b
    s3dlm eval --task countdown,sudoku --limit 50 --out runs/first
    s3dlm eval --task countdown --method best_of_k,s3 --set particles=1,2,4 --out runs/sweep
    s3dlm eval --model GSAI-ML/LLaDA-8B-Instruct --task gsm8k --out runs/llada --dry-run
    """
    from s3dlm.evaluation import plan as plans

    chosen = options.setting_values(more)
    sweeps = {name: values for name, values in chosen.items() if name in plans.AXES}
    for name in chosen.keys() - sweeps.keys():
        if len(chosen[name]) != 1:
            axes = ", ".join(plans.AXES)
            raise SettingsError(f"{name} cannot be swept; give one value, or sweep one of: {axes}")
    fixed = {name: values[0] for name, values in chosen.items() if name not in sweeps}
    methods = options.split(method) or plans.ABLATION
    how = options.typed("--run", run, RUNNING)

    def conditions(recommended: Any) -> list[Condition]:
        return plans.grid(names, methods, plans.defaults_of(recommended), fixed, sweeps)

    names = _tasks(task, model)
    planned = conditions(model)  # a mistake is reported at once
    if dry_run:
        _print_cost(model, planned, limit, seeds, gpu, out, as_json)
        return
    runner, problems = _prepare(
        model, names, device, load, ray, workers, data=data, split=split, limit=limit
    )
    plan = plans.Plan(
        conditions(_model_of(runner, model)), problems, range(seeds), split,
        how.pop("traces", 0), how.pop("row_cache", 0.0),
    )  # fmt: skip
    _evaluate(runner, plan, out, workers, how)
    _report(out, as_json)


def reproduce(
    model: options.ModelName = "tiny",
    task: options.Tasks = None,
    limit: Limit = None,
    seeds: Seeds = 3,
    sweep_problems: Annotated[
        int, Option(help="Problems per task for the sweeps over N, b and block length; 0: none.")
    ] = 200,
    data: Data = None,
    out: Annotated[
        Path | None, Option(help="Folder of the run. Default: runs/reproduce-MODEL.")
    ] = None,
    results: Annotated[Path | None, Option(help="Also write the tables to this page.")] = None,
    device: options.Device = None,
    load: options.Load = None,
    ray: Ray = None,
    workers: options.Workers = None,
    run: Running = None,
    dry_run: DryRun = False,
    gpu: Gpu = "H100",
    as_json: options.AsJson = False,
) -> None:
    """Run the paper's protocol on one model, from evaluation to report.

    \b
    s3dlm reproduce --model tiny
    s3dlm reproduce --model GSAI-ML/LLaDA-8B-Instruct --device cuda --dry-run
    """
    from s3dlm.evaluation import plan as plans

    how = {"traces": 2, "row_cache": 2.0, **options.typed("--run", run, RUNNING)}
    folder = out or Path("runs") / f"reproduce-{model.replace('/', '-')}"
    names = _tasks(task, model)

    def planned(recommended: Any, problems: Mapping[str, Any]) -> Plan:
        return plans.reproduction(
            problems, plans.defaults_of(recommended), range(seeds), sweep_problems=sweep_problems,
            traces=how.pop("traces"), row_cache=how.pop("row_cache"),
        )  # fmt: skip

    if dry_run:
        plan = planned(model, dict.fromkeys(names))
        _print_cost(model, plan.conditions, limit, seeds, gpu, folder, as_json)
        return
    runner, problems = _prepare(model, names, device, load, ray, workers, data=data, limit=limit)
    _evaluate(runner, planned(_model_of(runner, model), problems), folder, workers, how)
    _report(folder, as_json, results)


# --- what they share


def _tasks(given: Sequence[str] | None, model: str) -> list[str]:
    from s3dlm.models.defaults import defaults_of

    return options.split(given) or list(defaults_of(model).tasks)


def _prepare(
    model: str,
    names: Sequence[str],
    device: str | None,
    load: Sequence[str] | None,
    ray: str | None,
    workers: int | None,
    **which: Any,
) -> tuple[Any, dict[str, Loaded]]:
    """Model and problems; missing data is reported before a large model is loaded. With Ray the
    workers load the model, and the runner takes its place."""
    from s3dlm.evaluation.plan import load_problems
    from s3dlm.models.defaults import defaults_of
    from s3dlm.models.registry import check_name

    check_name(model)
    how = options.typed("--load", load, options.LOADING)
    style = defaults_of(model).prompt_style
    found = load_problems(names, style, **which)
    runner: Any
    if ray is None:
        runner = options.load_model(model, device=device, **how)
        if runner.defaults.prompt_style != style:  # a model of another package may have its own
            found = load_problems(names, runner.defaults.prompt_style, **which)
    else:
        from s3dlm.evaluation.distributed import RayRunner

        runner = RayRunner(model, address=ray, workers=workers, device=device, **how)
    for name, some in found.items():
        total = "" if len(some.samples) == some.total else f" of {some.total}"
        typer.echo(f"{name}: {len(some.samples)}{total} problems ({some.origin})", err=True)
    return runner, found


def _model_of(runner: Any, name: str) -> Any:
    """The model whose recommendations count: the loaded one, or by name if workers load it."""
    return runner if hasattr(runner, "defaults") else name


def _evaluate(runner: Any, plan: Plan, folder: Path, workers: int | None, how: Any) -> None:
    """Run a plan on a model, in one process or several, or on a cluster; all are closed afterwards."""
    from s3dlm.evaluation import processes
    from s3dlm.evaluation.progress import Bars
    from s3dlm.evaluation.run import evaluate
    from s3dlm.models.base import Model

    if isinstance(runner, Model):
        runner = processes.runner(runner, workers or processes.workers_for(runner, plan))
    try:
        with runner as running, Bars(plan) as bars:
            evaluate(running, plan, folder, observer=bars, **how)
    except KeyboardInterrupt:
        typer.echo(f"the same command resumes {folder}", err=True)
        raise


def _report(folder: Path, as_json: bool, results: Path | None = None) -> None:
    """The report of a run; without the extra it can be made later."""
    try:
        made = show_report([folder], as_json)
        if results is not None:
            from s3dlm.evaluation.report import write_results

            write_results(made, results, sys.argv[1:])
    except MissingExtraError as error:
        typer.echo(f"no report: {error}; then: s3dlm report {folder}", err=True)


def _print_cost(
    model: str, conditions: Sequence[Condition], limit: int | None, seeds: int, gpu: str,
    folder: Path, as_json: bool,
) -> None:  # fmt: skip
    """What a run would cost, by what its folder has measured if it has begun."""
    from s3dlm.evaluation import cost
    from s3dlm.models.registry import check_name

    check_name(model)
    measured = cost.shares(folder)
    found: Any = cost.estimate(model, conditions, limit, seeds, gpu, measured)
    if as_json:
        typer.echo(json.dumps(found))
        return
    how = f"about (measured in {folder})" if measured else "at most"
    for row in found["conditions"] if len(conditions) <= 20 else ():
        typer.echo(
            f"{row['task']}, {row['method']}: {row['samples']:,} samples, {how} {row['nfe']:,.0f} NFE each"
        )
    samples = sum(row["samples"] for row in found["conditions"])
    typer.echo(f"in all: {samples:,} samples, {how} {found['nfe']:,.0f} NFE")
    if "costs" not in found:
        typer.echo(f"times are known for: {', '.join(cost.SHAPES)}; else run with --limit 10")
        return
    if not found["fits"]:
        typer.echo(f"the weights of {model} in bfloat16 need more memory than one {gpu} has")
    typer.echo(f"{'GPUs':>6} {'time':>10} {'dollars':>9}   ({found['gpu']})")
    for line in found["costs"]:
        hours = line["seconds"] / 3600
        time = f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"
        typer.echo(f"{line['gpus']:>6} {time:>10} {line['dollars']:>9,.2f}")
