"""The command `s3dlm infill`: parse, call, print. Nothing heavy is imported before it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from s3dlm.cli import print_result, print_timings, run_search
from s3dlm.holes import Template
from s3dlm.loading import load_model
from s3dlm.options import UnsafeCode, method_names, task_names, with_settings


def register(app: typer.Typer) -> None:
    """Add the command to the package's command line."""
    app.command("infill")(with_settings(infill))


def infill(
    text: Annotated[
        str,
        typer.Argument(
            help=r"The text: \[\[16]] is a hole of 16 tokens, \[\[4-32]] one of 4 to 32; "
            "- reads it from standard input."
        ),
    ],
    overrides: dict[str, Any],
    prompt: Annotated[
        str,
        typer.Option(help="The question that the text answers. Default: the text stands alone."),
    ] = "",
    model: Annotated[str, typer.Option(help="tiny (bundled), a folder or a hub id.")] = "tiny",
    task: Annotated[
        str | None,
        typer.Option(
            help="Sets the prompt template, the verifier and the answer format; needs --prompt.",
            autocompletion=task_names,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="A method listed by `s3dlm methods`.", autocompletion=method_names),
    ] = "s3",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or mps.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Allow code from the checkpoint to run.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option(help="The hub's commit, branch or tag to load.")
    ] = None,
    mask_id: Annotated[
        int | None, typer.Option(help="The mask token's id, if the model's files do not state it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write every step to this file, as JSON lines.")
    ] = None,
    timings: Annotated[bool, typer.Option("--timings", help="Print where the time went.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the text.")] = False,
    unsafe_code: UnsafeCode = False,
) -> None:
    r"""Fill the holes of a text and watch the search. Known text stays as it is.

    s3dlm infill "First, 10 - 1 =\[\[2]]. <answer>\[\[7-10]]</answer>" --prompt "Target: 15 Numbers: 10, 1, 6" --task countdown
    """
    from s3dlm import tasks
    from s3dlm.models.defaults import defaults_of
    from s3dlm.settings import Settings

    text = sys.stdin.read() if text == "-" else text
    Template.parse(text)  # before a long load, as the settings
    Settings.recommended(defaults_of(model), method, task, **overrides)
    if task is not None:
        tasks.require_file(tasks.get(task))
    loaded = load_model(
        model, quiet=quiet, device=device, dtype=dtype, trust_remote_code=trust_remote_code,
        revision=revision, mask_id=mask_id,
    )  # fmt: skip
    settings = Settings.for_model(loaded, method, task, **overrides)
    result = run_search(
        loaded, prompt, task, settings, trace, board=not (as_json or quiet), infill=text
    )
    if quiet and not as_json:
        typer.echo(result.text)
    else:
        print_result(result, as_json=as_json, quiet=False)
    if timings:
        print_timings(result)
