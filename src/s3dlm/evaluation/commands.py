"""The commands of evaluation: parse, call, print. Nothing heavy is imported before one runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from s3dlm.evaluation import console

ModelName = Annotated[str, typer.Option("--model", help="tiny, a folder or a hub id.")]
TaskNames = Annotated[
    str | None,
    typer.Option("--task", help="Names with commas, or FILE.jsonl:PROFILE; default: the model's."),
]
Limit = Annotated[int | None, typer.Option(help="The first so many problems of each task.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of every problem, seeds 0, 1, ….")]
Data = Annotated[
    Path | None, typer.Option(help="Folder with the benchmarks' files; default: the hub.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, float16.")]
MaxRows = Annotated[
    int | None, typer.Option(min=1, help="Rows a forward; default: found by trying.")
]
Remember = Annotated[
    float,
    typer.Option(
        min=0,
        help="GiB of rows to keep from one method and seed to the next: the same results several "
        "times faster, with times for the first 10 problems only. 0: none.",
    ),
]
RayCluster = Annotated[
    str | None,
    typer.Option("--ray", help="Spread over a Ray cluster: local, auto, or its address."),
]
Traces = Annotated[int, typer.Option(help="Problems a task whose searches are written down.")]
AsJson = Annotated[bool, typer.Option("--json", help="The tables as JSON.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the package's command line."""
    app.command("eval")(eval_command)
    app.command("report")(report_command)
    app.command("reproduce")(reproduce_command)
    app.command("tune")(tune_command)
    app.command("demo")(demo_command)


def eval_command(
    out: Annotated[Path, typer.Option(help="Folder of the run; the same command resumes it.")],
    model: ModelName = "tiny",
    task: TaskNames = None,
    method: Annotated[
        str, typer.Option(help="Names with commas, see `s3dlm methods`; greedy: temperature 0.")
    ] = "baseline,best_of_k,tilting,look_ahead,s3",
    limit: Limit = None,
    seeds: Seeds = 1,
    particles: Annotated[
        str | None, typer.Option("--particles", "-N", help="1,2,4 sweeps.")
    ] = None,
    branching: Annotated[str | None, typer.Option("--branching", "-b", help="1,2 sweeps.")] = None,
    block_length: Annotated[str | None, typer.Option(help="2,8,64 sweeps.")] = None,
    lam: Annotated[str | None, typer.Option(help="λ; 1,4 sweeps.")] = None,
    temperature: Annotated[str | None, typer.Option(help="0.3,0.7 sweeps.")] = None,
    gen_length: Annotated[int | None, typer.Option(help="Tokens of the answer's canvas.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.")] = None,
    policy: Annotated[str | None, typer.Option(help="Which positions are revealed first.")] = None,
    verifier: Annotated[str | None, typer.Option(help="A profile or a TOML file.")] = None,
    split: Annotated[str, typer.Option(help="test, or validation of generated tasks.")] = "test",
    data: Data = None,
    traces: Traces = 0,
    max_rows: MaxRows = None,
    device: Device = None,
    dtype: Dtype = None,
    remember: Remember = 0.0,
    ray: RayCluster = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate methods on tasks; killed at any moment, the same command goes on where it stopped.

    s3dlm eval --model tiny --task countdown,sudoku --limit 50 --out runs/first

    s3dlm eval --task countdown --method best_of_k,s3 -N 1,2,4,8 -b 1,2 --limit 100 --out runs/sweep

    s3dlm eval --model GSAI-ML/LLaDA-8B-Instruct --task gsm8k --data benchmarks --out runs/llada
    """
    from s3dlm.evaluation import plan as plans
    from s3dlm.evaluation import protocol, run
    from s3dlm.tasks import recommended

    swept = {
        "particles": console.numbers("particles", particles, int),
        "branching": console.numbers("branching", branching, int),
        "block_length": console.numbers("block_length", block_length, int),
        "lam": console.numbers("lam", lam, float),
        "temperature": console.numbers("temperature", temperature, float),
    }
    fixed = {"gen_length": gen_length, "steps": steps, "policy": policy, "profile": verifier}
    own = {name: value for name, value in fixed.items() if value is not None}
    base = protocol.base_settings(model, own | _main_point(model, swept))
    tuned = {
        label: {name: value for name, value in some.items() if not swept.get(name)}
        for label, some in recommended.tuned(model).items()
    }
    names = console.names(task) or list(recommended.tasks(model))
    loaded, problems = console.prepare(
        model, device, dtype, names, ray=ray, data=data, split=split, limit=limit
    )
    conditions = plans.grid(names, console.names(method), base, swept, tuned)
    plan = run.Plan(conditions, base, problems, range(seeds), split, tuned, traces, remember)
    console.evaluate(loaded, plan, out, max_rows)
    console.finish(out, as_json)


def report_command(
    folder: Annotated[Path, typer.Argument(help="A folder that `s3dlm eval` wrote.")],
    grading: Annotated[
        str | None, typer.Option(help="Mark the recorded texts anew: fixed, d1 or hex.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write; default: the folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make the report of a run: Markdown, one HTML page, figures with their data. Needs no model.

    s3dlm report runs/first

    s3dlm report runs/first --grading d1 --out runs/first/d1
    """
    from s3dlm.evaluation import report

    console.print_report(
        report.write(folder, grading=grading, out=out, show=console.viewer()), as_json
    )


def reproduce_command(
    model: ModelName = "tiny",
    task: TaskNames = None,
    limit: Limit = None,
    seeds: Seeds = 3,
    sweep_problems: Annotated[
        int, typer.Option(help="Problems for the curves over N, b and block length; 0: none.")
    ] = 100,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Default: runs/reproduce-MODEL.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Also write the tables to this Markdown file.")
    ] = None,
    traces: Traces = 2,
    max_rows: MaxRows = None,
    device: Device = None,
    dtype: Dtype = None,
    remember: Remember = 2.0,
    ray: RayCluster = None,
    as_json: AsJson = False,
) -> None:
    """Run the paper's protocol on one model, from evaluation to report.

    s3dlm reproduce --model tiny

    s3dlm reproduce --model GSAI-ML/LLaDA-8B-Instruct --data benchmarks --device cuda
    """
    from s3dlm.evaluation import protocol
    from s3dlm.tasks import recommended

    names = console.names(task) or list(recommended.tasks(model))
    loaded, problems = console.prepare(model, device, dtype, names, ray=ray, data=data, limit=limit)
    plan = protocol.reproduction(
        problems,
        protocol.base_settings(model),
        recommended.tuned(model),
        range(seeds),
        sweep_problems=sweep_problems,
        traces=traces,
        remember=remember,
    )
    folder = out or Path("runs") / f"reproduce-{model.replace('/', '-')}"
    console.evaluate(loaded, plan, folder, max_rows)
    console.finish(folder, as_json, results)


def tune_command(
    model: ModelName = "tiny",
    task: TaskNames = None,
    method: Annotated[str, typer.Option(help="Names with commas.")] = "best_of_k,tilting,s3",
    limit: Limit = 50,
    temperature: Annotated[str, typer.Option(help="To be tried.")] = "0.7,1.0,1.5,2.0",
    lam: Annotated[str, typer.Option(help="To be tried.")] = "1,10,30,100",
    out: Annotated[Path | None, typer.Option(help="Default: runs/tune-MODEL.")] = None,
    device: Device = None,
    dtype: Dtype = None,
    as_json: AsJson = False,
) -> None:
    """Choose temperature and λ for every method on the validation split of generated tasks.

    s3dlm tune --model tiny --limit 100
    """
    from s3dlm.evaluation import protocol, tune
    from s3dlm.tasks import recommended

    names = console.names(task) or list(recommended.tasks(model))
    loaded, problems = console.prepare(model, device, dtype, names, split=tune.SPLIT, limit=limit)
    folder = out or Path("runs") / f"tune-{model.replace('/', '-')}"
    rows = tune.tune(
        loaded,
        problems,
        console.names(method),
        protocol.base_settings(model),
        folder,
        temperatures=console.numbers("temperature", temperature, float),
        lambdas=console.numbers("lam", lam, float),
        observe=console.bars,
    )
    best = {label: tune.own(row) for label, row in tune.best_of(rows).items()}
    if as_json:
        typer.echo(json.dumps(best))
        return
    cells = [
        (row.label, f"{row.temperature:g}", f"{row.lam:g}", f"{100 * row.accuracy:.1f}")
        for row in sorted(rows, key=lambda row: (row.label, row.temperature, row.lam))
    ]
    console.print_rows(("method", "temperature", "λ", "accuracy (%)"), cells, "validation")
    typer.echo(f"best: {json.dumps(best)} (written to {folder / 'tuned.json'})")


def demo_command(
    model: ModelName = "tiny",
    seconds: Annotated[float, typer.Option(help="For the comparison.")] = 150.0,
    out: Annotated[Path, typer.Option(help="Folder of the comparison.")] = Path("runs/demo"),
) -> None:
    """Watch one search, then see the methods side by side: a few minutes on two cores.

    s3dlm demo
    """
    from s3dlm.evaluation import demo, protocol, report
    from s3dlm.models.registry import load

    loaded = load(model)
    base = protocol.base_settings(model)
    typer.echo("1. One search: four particles, two children each, a verifier that watches.\n")
    result = demo.show(loaded, base)
    typer.echo(f"\n{result.text}\nanswer: {result.answer}\n")
    typer.echo(f"2. Five methods side by side on the same problems, about {seconds:.0f} s.\n")
    demo.clear(out)
    demo.compare(loaded, base, out, seconds, console.bars)
    typer.echo("\n3. What came of it.\n")
    console.print_report(report.write(out, show=console.viewer()), as_json=False)


def _main_point(model: str, swept: dict[str, list[Any]]) -> dict[str, Any]:
    """The point of a sweep that stands in the main tables: the recommended one, else the first."""
    from s3dlm.settings import Settings
    from s3dlm.tasks import recommended

    usual = Settings.from_json(recommended.settings(model)).to_json()
    return {
        name: usual[name] if usual[name] in values else values[0]
        for name, values in swept.items()
        if values
    }
