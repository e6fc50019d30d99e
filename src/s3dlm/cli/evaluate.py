"""The commands of evaluation: parse, call, print. Nothing heavy is imported before one runs."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3dlm.cli import options
from s3dlm.cli.loading import load_model
from s3dlm.cli.options import UnsafeCode, lists_from_pairs, lists_of, with_setting_lists
from s3dlm.errors import MissingExtraError, SettingsError

if TYPE_CHECKING:
    from s3dlm.evaluation.plan import Plan
    from s3dlm.evaluation.progress import Bars
    from s3dlm.evaluation.report import Report
    from s3dlm.tasks import Loaded

ModelName = Annotated[
    str, typer.Option("--model", help="A model: tiny (bundled), a folder or a hub id.")
]
TaskNames = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="Tasks, separated by commas; FILE.jsonl:TASK for your own. Default: those "
        "recommended for the model.",
        autocompletion=lists_of(options.task_names),
    ),
]


Limit = Annotated[int | None, typer.Option(help="Use only the first N problems per task.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds per problem: 0, 1, …")]
Data = Annotated[
    Path | None, typer.Option(help="Folder with benchmark files. Default: the Hugging Face hub.")
]
Device = Annotated[str | None, typer.Option(help="Device: cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[str | None, typer.Option(help="Precision: float32, bfloat16 or float16.")]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, help="Canvases per forward pass. Default: measured. Results are equal."),
]
RowCache = Annotated[
    float,
    typer.Option(
        min=0,
        help="GiB of computed canvases to reuse between methods and seeds. Results are equal, the "
        "run is several times faster, and only the first 40 problems are timed. 0: off.",
    ),
]
RayAddress = Annotated[
    str | None, typer.Option("--ray", help="Run on a Ray cluster: local, auto or its address.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Worker processes. Default: one per core for a small model on the CPU, else one; with "
        "--ray one per GPU, or per core.",
    ),
]
FailOnError = Annotated[
    int | None, typer.Option(min=1, help="Stop when this many samples have failed.")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Run samples again that failed before.")
]
Traces = Annotated[
    int, typer.Option(min=0, help="Number of problems per task to record full traces for.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the package's command line."""
    app.command("eval")(eval_command)
    app.command("report")(report_command)
    app.command("reproduce")(reproduce_command)


@with_setting_lists
def eval_command(
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command resumes it.")],
    overrides: dict[str, list[Any]],
    model: ModelName = "tiny",
    task: TaskNames = None,
    method: Annotated[
        str,
        typer.Option(
            help="Methods, separated by commas: `s3dlm methods` lists them.",
            autocompletion=lists_of(options.method_names),
        ),
    ] = "baseline,best_of_k,tilting,look_ahead,s3",
    limit: Limit = None,
    seeds: Seeds = 1,
    more: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as NAME=VALUE; repeatable.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split: test, or validation for generated tasks.")
    ] = "test",
    data: Data = None,
    traces: Traces = 0,
    batch_size: BatchSize = None,
    device: Device = None,
    dtype: Dtype = None,
    row_cache: RowCache = 0.0,
    ray: RayAddress = None,
    workers: Workers = None,
    fail_on_error: FailOnError = None,
    retry_failed: RetryFailed = False,
    unsafe_code: UnsafeCode = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate methods on tasks. If the run is interrupted, the same command resumes it.

    A setting applies to those of the methods that use it.

    s3dlm eval --model tiny --task countdown,sudoku --limit 50 --out runs/first

    s3dlm eval --task countdown --method best_of_k,s3 -N 1,2,4,8 -b 1,2 --limit 100 --out runs/sweep

    s3dlm eval --model GSAI-ML/LLaDA-8B-Instruct --task gsm8k --data benchmarks --out runs/llada
    """
    from s3dlm.evaluation import plan as plans

    chosen = {**overrides, **lists_from_pairs(more or [])}
    sweeps = {name: values for name, values in chosen.items() if name in plans.AXES}
    given = {name: _single(name, chosen[name]) for name in chosen if name not in sweeps}
    names, defaults = task_names(task, model), plans.defaults_of(model)
    plans.grid(names, split_names(method), defaults, given, sweeps)  # a mistake is reported at once
    runner, problems = prepare(
        model, names, device=device, dtype=dtype, ray=ray, workers=workers, data=data,
        split=split, limit=limit,
    )  # fmt: skip
    defaults = plans.defaults_of(model_of(runner, model))
    conditions = plans.grid(names, split_names(method), defaults, given, sweeps)
    plan = plans.Plan(conditions, problems, range(seeds), split, traces, row_cache)
    _evaluate(runner, plan, out, workers, batch_size, fail_on_error, retry_failed)
    _finish(out, as_json)


def report_command(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders that `s3dlm eval` wrote; several are compared.")
    ],
    reference: Annotated[
        str | None,
        typer.Option(help="Method that the others are compared with. Default: best_of_k."),
    ] = None,
    grading: Annotated[
        str | None, typer.Option(help="Grade the recorded texts again: fixed, d1 or hex.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output folder. Default: the run's; needed for several.")
    ] = None,
    unsafe_code: UnsafeCode = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of one run or several: Markdown, an HTML page, figures. Needs no model.

    s3dlm report runs/first

    s3dlm report runs/first --reference greedy --grading d1 --out runs/first/d1

    s3dlm report runs/small runs/large --out runs/both
    """
    from s3dlm.evaluation import report

    if len(folders) > 1 and out is None:
        raise SettingsError("a report on several runs needs a folder of its own; give --out")
    made = report.write(*folders, grading=grading, reference=reference, out=out, show=viewer())
    _print_report(made, as_json)


def reproduce_command(
    model: ModelName = "tiny",
    task: TaskNames = None,
    limit: Limit = None,
    seeds: Seeds = 3,
    sweep_problems: Annotated[
        int,
        typer.Option(help="Problems per task for the sweeps over N, b and block length; 0: none."),
    ] = 200,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. Default: runs/reproduce-MODEL.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Also write the tables to this Markdown file.")
    ] = None,
    traces: Traces = 2,
    batch_size: BatchSize = None,
    device: Device = None,
    dtype: Dtype = None,
    row_cache: RowCache = 2.0,
    ray: RayAddress = None,
    workers: Workers = None,
    fail_on_error: FailOnError = None,
    retry_failed: RetryFailed = False,
    unsafe_code: UnsafeCode = False,
    as_json: AsJson = False,
) -> None:
    """Run the paper's protocol on one model, from evaluation to report.

    s3dlm reproduce --model tiny

    s3dlm reproduce --model GSAI-ML/LLaDA-8B-Instruct --data benchmarks --device cuda
    """
    from s3dlm.evaluation import plan as plans

    runner, problems = prepare(
        model, task_names(task, model), device=device, dtype=dtype, ray=ray, workers=workers,
        data=data, limit=limit,
    )  # fmt: skip
    plan = plans.reproduction(
        problems, plans.defaults_of(model_of(runner, model)), range(seeds), sweep_problems=sweep_problems,
        traces=traces, row_cache=row_cache,
    )  # fmt: skip
    folder = out or Path("runs") / f"reproduce-{model.replace('/', '-')}"
    _evaluate(runner, plan, folder, workers, batch_size, fail_on_error, retry_failed)
    _finish(folder, as_json, results)


def split_names(text: str | None) -> list[str]:
    """The parts of an option that takes several names."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _single(name: str, values: Sequence[Any]) -> Any:
    from s3dlm.evaluation.plan import AXES

    if len(values) != 1:
        raise SettingsError(
            f"{name} cannot be swept; give one value, or sweep one of: {', '.join(AXES)}"
        )
    return values[0]


def task_names(given: str | None, model: str) -> list[str]:
    from s3dlm.models.defaults import defaults_of

    return split_names(given) or list(defaults_of(model).tasks)


def prepare(
    model: str,
    tasks: Sequence[str],
    *,
    device: str | None,
    dtype: str | None,
    ray: str | None = None,
    workers: int | None = None,
    **which: Any,
) -> tuple[Any, dict[str, Loaded]]:
    """Model and problems; missing data is reported before a large model is loaded.

    With Ray the workers load the model, and the runner takes its place.
    """
    from s3dlm.evaluation.plan import load_problems
    from s3dlm.models.defaults import defaults_of
    from s3dlm.models.registry import check_name

    check_name(model)
    style = defaults_of(model).prompt_style
    found = load_problems(tasks, style, **which)
    runner: Any
    if ray is None:
        runner = load_model(model, device=device, dtype=dtype)
        if runner.defaults.prompt_style != style:  # a model of another package may have its own
            found = load_problems(tasks, runner.defaults.prompt_style, **which)
    else:
        from s3dlm.evaluation.distributed import RayRunner

        runner = RayRunner(model, address=ray, workers=workers, device=device, dtype=dtype)
    for name, some in found.items():
        total = "" if len(some.samples) == some.total else f" of {some.total}"
        typer.echo(f"{name}: {len(some.samples)}{total} problems ({some.origin})", err=True)
    return runner, found


def model_of(runner: Any, name: str) -> Any:
    """The model whose recommendations count: the loaded one, or by name if workers load it."""
    return runner if hasattr(runner, "defaults") else name


def bars(plan: Plan) -> Bars:
    """The progress display of a plan."""
    from s3dlm.evaluation.progress import Bars

    return Bars(plan)


def _evaluate(
    runner: Any,
    plan: Plan,
    folder: Path,
    workers: int | None,
    batch_size: int | None,
    fail_on_error: int | None,
    retry_failed: bool,
) -> None:
    """Run a plan on a model, in one process or several, or on a cluster; all are closed afterwards."""
    from s3dlm.evaluation.run import evaluate

    try:
        with _closing(runner, plan, workers) as running, bars(plan) as shown:
            evaluate(
                running, plan, folder, observer=shown, batch_size=batch_size,
                fail_on_error=fail_on_error, retry_failed=retry_failed,
            )  # fmt: skip
    except KeyboardInterrupt:
        typer.echo(f"the same command resumes {folder}", err=True)
        raise


def _closing(runner: Any, plan: Plan, workers: int | None) -> Any:
    """The cluster, or a runner for the model on this machine."""
    from s3dlm.evaluation import processes
    from s3dlm.models.base import Model

    if not isinstance(runner, Model):
        return runner
    return processes.runner(runner, workers or processes.workers_for(runner, plan))


def _finish(folder: Path, as_json: bool, results: Path | None = None) -> None:
    """Write the report of a run and print its tables; without the extra it can be made later."""
    try:
        from s3dlm.evaluation import report
    except MissingExtraError as error:
        typer.echo(f"no report: {error}; then: s3dlm report {folder}", err=True)
        return

    made = report.write(folder, show=viewer())
    if results is not None:
        report.write_results(folder, results, sys.argv[1:])
    _print_report(made, as_json)


def viewer() -> Callable[[Path], str]:
    """Renders a trace as a standalone page."""
    from s3dlm.viewer.page import standalone

    return lambda trace: standalone([trace])


def _print_report(made: Report, as_json: bool) -> None:
    if as_json:
        tables = [table.to_json() for table in made.tables]
        plain = {"verdict": made.verdict, "tables": tables, "html": str(made.html)}
        typer.echo(json.dumps(plain, ensure_ascii=False))
        return
    for grid in made.short:
        print_table(grid.columns, grid.rows, grid.title)
    for line in made.verdict:
        typer.echo(textwrap.fill(line, 80))
    typer.echo(f"\nreport: {made.html.resolve()}\n        {made.markdown.resolve()}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    """A table in the terminal; a cell that begins with `*` is bold."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", header_style="bold")
    for row in rows:
        table.add_row(*(Text(c[1:], style="bold") if c[:1] == "*" else Text(c) for c in row))
    Console().print(Text(title, style="bold"))  # a title of the table would be as narrow as it
    Console().print(table)
    typer.echo()
