"""The commands that search: `s3dlm generate` answers a prompt, `s3dlm infill` fills holes in a text.

Their options are the same, so each is declared once. Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from s3dlm.cli.loading import load_model
from s3dlm.cli.options import UnsafeCode, method_names, task_names, with_settings

if TYPE_CHECKING:
    from s3dlm.engine import Result
    from s3dlm.models.base import Model
    from s3dlm.settings import Settings


def _flag(words: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=words, **more)


ModelName = Annotated[str, _flag("tiny (bundled), a folder or a hub id.")]
Task = Annotated[
    str | None,
    _flag(
        "Sets the prompt template, the verifier and the answer format.", autocompletion=task_names
    ),
]
MethodName = Annotated[
    str, _flag("A method listed by `s3dlm methods`.", autocompletion=method_names)
]
Device = Annotated[str | None, _flag("cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[str | None, _flag("float32, bfloat16 or float16.")]
RemoteCode = Annotated[bool, _flag("Allow code from the checkpoint to run.", "--trust-remote-code")]
Compiled = Annotated[bool, _flag("Compile the network with torch.compile.", "--compile")]
PrefixCache = Annotated[
    bool | None,
    _flag(
        "Encode the prompt and finished blocks once per block. Default: where it is exact.",
        "--prefix-cache/--no-prefix-cache",
    ),
]
Revision = Annotated[str | None, _flag("The hub's commit, branch or tag to load.")]
MaskId = Annotated[int | None, _flag("The mask token's id, if the model's files do not state it.")]
AsJson = Annotated[bool, _flag("Print the result as JSON.", "--json")]
TraceFile = Annotated[Path | None, _flag("Write every step to this file, as JSON lines.")]
Timings = Annotated[bool, _flag("Print where the time went.", "--timings")]


def register(app: typer.Typer) -> None:
    """Add the commands to the package's command line."""
    app.command("generate")(with_settings(generate))
    app.command("infill")(with_settings(infill))


def generate(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    overrides: dict[str, Any],
    model: ModelName = "tiny",
    task: Task = None,
    method: MethodName = "s3",
    device: Device = None,
    dtype: Dtype = None,
    trust_remote_code: RemoteCode = False,
    compiled: Compiled = False,
    prefix_cache: PrefixCache = None,
    revision: Revision = None,
    mask_id: MaskId = None,
    as_json: AsJson = False,
    trace: TraceFile = None,
    timings: Timings = False,
    quiet: Annotated[bool, _flag("Print only the answer.", "--quiet", "-q")] = False,
    unsafe_code: UnsafeCode = False,
) -> None:
    """Answer one prompt and watch the search. Settings left out are the model's own.

    s3dlm generate "Target: 15 Numbers: 10, 1, 6" --task countdown --method best

    s3dlm generate "What is 2 + 2?" --model GSAI-ML/LLaDA-8B-Instruct --json
    """
    prompt = sys.stdin.read() if prompt == "-" else prompt
    loaded, settings = _loaded(
        prompt, model, method, task, overrides, quiet=quiet, device=device, dtype=dtype,
        trust_remote_code=trust_remote_code, compile=compiled, prefix_cache=prefix_cache,
        revision=revision, mask_id=mask_id,
    )  # fmt: skip
    result = _search(loaded, prompt, task, settings, trace, board=not (as_json or quiet))
    _print_result(result, as_json=as_json, quiet=quiet, timings=timings)


def infill(
    text: Annotated[
        str,
        typer.Argument(
            help=r"The text: \[\[16]] is a hole of 16 tokens, \[\[4-32]] one of 4 to 32; "
            "- reads it from standard input, without the last line break."
        ),
    ],
    overrides: dict[str, Any],
    prompt: Annotated[
        str, _flag("The question that the text answers; --task needs it. Default: none.")
    ] = "",
    model: ModelName = "tiny",
    task: Task = None,
    method: MethodName = "s3",
    device: Device = None,
    dtype: Dtype = None,
    trust_remote_code: RemoteCode = False,
    compiled: Compiled = False,
    prefix_cache: PrefixCache = None,
    revision: Revision = None,
    mask_id: MaskId = None,
    as_json: AsJson = False,
    trace: TraceFile = None,
    timings: Timings = False,
    quiet: Annotated[bool, _flag("Print only the text.", "--quiet", "-q")] = False,
    unsafe_code: UnsafeCode = False,
) -> None:
    r"""Fill the holes of a text and watch the search. Known text stays as it is.

    s3dlm infill "First, 10 - 1 =\[\[2]]. Then\[\[3]] 6 = 15. <answer>\[\[7-10]]</answer>" --prompt "Target: 15 Numbers: 10, 1, 6" --task countdown
    """
    text = sys.stdin.read().removesuffix("\n") if text == "-" else text
    loaded, settings = _loaded(
        prompt, model, method, task, overrides, infill=text, quiet=quiet, device=device, dtype=dtype,
        trust_remote_code=trust_remote_code, compile=compiled, prefix_cache=prefix_cache,
        revision=revision, mask_id=mask_id,
    )  # fmt: skip
    board = not (as_json or quiet)
    result = _search(loaded, prompt, task, settings, trace, board=board, infill=text)
    _print_result(result, as_json=as_json, quiet=quiet, timings=timings)


def _loaded(
    prompt: str,
    model: str,
    method: str,
    task: str | None,
    overrides: dict[str, Any],
    infill: str | None = None,
    **how: Any,
) -> tuple[Model, Settings]:
    """The model and the settings of a search; what can be checked is checked before a long load."""
    from s3dlm import tasks
    from s3dlm.diffusion.infill import Template
    from s3dlm.job import Job, check_prompt
    from s3dlm.models.defaults import defaults_of
    from s3dlm.settings import Settings

    Settings.recommended(defaults_of(model), method, task, **overrides)
    if task is not None:
        tasks.require_file(tasks.get(task))
    if infill is not None:
        Template.parse(infill)
    check_prompt(Job(prompt, task, infill=infill))
    loaded = load_model(model, **how)
    return loaded, Settings.for_model(loaded, method, task, **overrides)


def _search(
    model: Model,
    prompt: str,
    task: str | None,
    settings: Settings,
    trace: Path | None,
    *,
    board: bool,
    infill: str | None = None,
) -> Result:
    """Drain one search, through a trace and a board if they are wanted."""
    from s3dlm import board as boards
    from s3dlm import engine
    from s3dlm import trace as traces

    events = engine.stream(model, prompt, task=task, settings=settings, infill=infill)
    if trace is not None:
        events = traces.write_trace(
            trace, model, events, question=prompt, task=task, settings=settings, infill=infill
        )
    if board:
        title = f"{settings.method} on {model.name}"
        # An end token inside a text with holes does not end it.
        ends: frozenset[int] = model.end_ids if infill is None else frozenset()
        events = boards.show(events, boards.pieces_of(model), ends, title=title)
    *_, result = events
    return cast("Result", result)


def _print_result(result: Result, *, as_json: bool, quiet: bool, timings: bool) -> None:
    """All of it as JSON, or only what was asked for, or the text and how it was found."""
    if as_json:
        from s3dlm.trace import encode_result

        typer.echo(json.dumps(encode_result(result), ensure_ascii=False))
    elif quiet:
        whole = result.answer is None or bool(result.holes)
        typer.echo(result.text if whole else result.answer)
    else:
        typer.echo(result.text)
        typer.echo(f"\n{_summary(result)}", err=True)
    if timings:
        for name, seconds in result.timings.items():
            share = 100 * seconds / max(result.seconds, 1e-9)
            typer.echo(f"{name:10} {seconds:8.3f} s  {share:5.1f} %", err=True)


def _summary(result: Result) -> str:
    """The answer, how sure it is, what it cost and why a search with a budget ended."""
    answer = "no answer found" if result.answer is None else f"answer: {result.answer}"
    chance = "" if result.p_correct is None else f"p_correct {result.p_correct:.2f}; "
    reasons = {"satisfied": "; the verifier is satisfied", "budget": "; the budget is spent"}
    return (
        f"{answer}  ({chance}{result.votes} of {len(result.survivors)} survivors; NFE {result.nfe}, "
        f"{result.nfe_logical} without sharing; {result.seconds:.2f} s"
        f"{reasons.get(result.stopped, '')})"
    )
