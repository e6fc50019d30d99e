"""The command `estimate`: parse, call, print."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3dlm.cli.options import with_settings

if TYPE_CHECKING:
    from s3dlm.estimate import Estimate


def register(app: typer.Typer) -> None:
    """Add the commands to the package's command line."""
    app.command("estimate")(estimate_command)


@with_settings
def estimate_command(
    overrides: dict[str, Any],
    model: Annotated[
        str, typer.Option(help="A hub id of the LLaDA or Dream family.")
    ] = "GSAI-ML/LLaDA-8B-Instruct",
    task: Annotated[str, typer.Option(help="Task, which sets the number of problems.")] = "gsm8k",
    method: Annotated[str, typer.Option(help="Method: `s3dlm methods` lists them.")] = "s3",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of problems. Default: all.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds per problem.")] = 1,
    gpu: Annotated[str, typer.Option(help="GPU: A100, H100, L40S or RTX4090.")] = "H100",
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs, separated by commas.")] = "1,8,64",
    dollars: Annotated[float | None, typer.Option(help="Price of a GPU per hour.")] = None,
    prompt_tokens: Annotated[int, typer.Option(help="Mean length of a prompt in tokens.")] = 256,
    utilisation: Annotated[
        float, typer.Option(help="Share of the GPU's peak that is reached.")
    ] = 0.3,
    run: Annotated[
        Path | None, typer.Option(help="A recorded run whose measured NFE is used.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Estimate what a run will cost: forward passes, time and dollars.

    s3dlm estimate --model GSAI-ML/LLaDA-8B-Instruct --task gsm8k --method s3

    s3dlm estimate --method best_of_k --gpu A100 --gpus 8 --run runs/first
    """
    from s3dlm import estimate as costs
    from s3dlm.errors import SettingsError
    from s3dlm.settings import Settings

    settings = Settings(method, **_fitting(method, overrides))
    try:
        cards = [int(part) for part in gpus.split(",")]
    except ValueError as error:
        raise SettingsError(
            f"gpus={gpus!r} is not a list of whole numbers; write for example 1,8,64"
        ) from error
    found = costs.estimate(
        model, settings, _problems(task, limit) * seeds, card=gpu, gpus=cards,
        prompt_tokens=prompt_tokens, utilisation=utilisation, dollars=dollars,
        share=1.0 if run is None else costs.measured_share(run, method),
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found)))
    else:
        measured = "at most" if run is None else f"about (measured in {run})"
        _print(found, f"{method} on {task}, {model}, {gpu}", measured)


def _fitting(method: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """Blocks no longer than a short answer, unless they were given."""
    from s3dlm.settings import Settings, only_used

    usual = Settings.model_fields["block_length"].default
    length = overrides.get("gen_length", usual)
    block = only_used(method, {"block_length": min(usual, length)})
    return {**block, **overrides}


def _problems(task: str, limit: int | None) -> int:
    """How many problems the published set has; 500 where problems are generated."""
    from s3dlm import tasks

    source = tasks.get(task).source
    count = source.subset or source.count if source is not None else None
    return min(count or 500, limit or 10**9)


def _print(found: Estimate, title: str, how: str) -> None:
    typer.echo(title)
    typer.echo(f"{found.samples:,} samples, {how} {found.nfe_per_sample:,.0f} NFE each")
    typer.echo(
        f"{found.operations_per_pass / 1e12:.2f} TFLOP per forward pass, "
        f"{found.passes_per_second:,.1f} forward passes per second on one GPU"
    )
    if not found.fits:
        typer.echo(
            f"the weights need {found.weights_bytes / 1e9:.0f} GB in bfloat16: more than one GPU has"
        )
    typer.echo(f"{'GPUs':>6} {'time':>10} {'dollars':>9}")
    for cost in found.costs:
        typer.echo(f"{cost.gpus:>6} {_time(cost.seconds):>10} {cost.dollars:>9,.2f}")


def _time(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
