"""Parse, call, print: every command is a few lines around a function of the package.

Nothing heavy is imported before a command runs, so `s3dlm --help` is instant. Errors the package
raises on purpose become one line and exit code 2; Ctrl-C ends with 130.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import s3dlm
from s3dlm.errors import S3dlmError
from s3dlm.loading import load_model
from s3dlm.options import UnsafeCode, method_names, task_names, with_settings

if TYPE_CHECKING:
    from s3dlm.engine import Result
    from s3dlm.models.base import Model
    from s3dlm.models.registry import Known
    from s3dlm.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Inference-time search for diffusion language models: S³, its ablations, other methods.",
)


def _flag(words: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=words, **more)


AsJson = Annotated[bool, _flag("Print JSON.", "--json")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"s3dlm {s3dlm.__version__}")
        raise typer.Exit


@app.callback()
def options_of_all(
    version: Annotated[
        bool,
        _flag("Print the version and exit.", "--version", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """What is common to all commands."""


@app.command()
@with_settings
def generate(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    overrides: dict[str, Any],
    model: Annotated[str, _flag("tiny (bundled), a folder or a hub id.")] = "tiny",
    task: Annotated[
        str | None,
        _flag(
            "Sets the prompt template, the verifier and the answer format.",
            autocompletion=task_names,
        ),
    ] = None,
    method: Annotated[
        str, _flag("A method listed by `s3dlm methods`.", autocompletion=method_names)
    ] = "s3",
    device: Annotated[str | None, _flag("cpu, cuda, cuda:1 or mps.")] = None,
    dtype: Annotated[str | None, _flag("float32, bfloat16 or float16.")] = None,
    trust_remote_code: Annotated[
        bool, _flag("Allow code from the checkpoint to run.", "--trust-remote-code")
    ] = False,
    compiled: Annotated[
        bool, _flag("Compile the network with torch.compile.", "--compile")
    ] = False,
    prefix_cache: Annotated[
        bool | None,
        _flag(
            "Encode the prompt and finished blocks once per block. Default: where it is exact.",
            "--prefix-cache/--no-prefix-cache",
        ),
    ] = None,
    revision: Annotated[str | None, _flag("The hub's commit, branch or tag to load.")] = None,
    mask_id: Annotated[
        int | None, _flag("The mask token's id, if the model's files do not state it.")
    ] = None,
    as_json: Annotated[bool, _flag("Print the result as JSON.", "--json")] = False,
    trace: Annotated[Path | None, _flag("Write every step to this file, as JSON lines.")] = None,
    timings: Annotated[bool, _flag("Print where the time went.", "--timings")] = False,
    quiet: Annotated[bool, _flag("Print only the answer.", "--quiet", "-q")] = False,
    unsafe_code: UnsafeCode = False,
) -> None:
    """Answer one prompt and watch the search. Settings left out are the model's own.

    s3dlm generate "Target: 15 Numbers: 10, 1, 6" --task countdown --method best

    s3dlm generate "What is 2 + 2?" --model GSAI-ML/LLaDA-8B-Instruct --json
    """
    from s3dlm import tasks
    from s3dlm.models.defaults import defaults_of
    from s3dlm.settings import Settings

    prompt = sys.stdin.read() if prompt == "-" else prompt
    Settings.recommended(defaults_of(model), method, task, **overrides)  # before a long load
    if task is not None:
        tasks.require_file(tasks.get(task))
    loaded = load_model(
        model, quiet=quiet, device=device, dtype=dtype, trust_remote_code=trust_remote_code, compile=compiled,
        prefix_cache=prefix_cache, revision=revision, mask_id=mask_id,
    )  # fmt: skip
    settings = Settings.for_model(loaded, method, task, **overrides)
    result = _search(loaded, prompt, task, settings, trace, board=not (as_json or quiet))
    _print_result(result, as_json=as_json, quiet=quiet)
    if timings:
        for name, seconds in result.timings.items():
            share = 100 * seconds / max(result.seconds, 1e-9)
            typer.echo(f"{name:10} {seconds:8.3f} s  {share:5.1f} %", err=True)


def _search(
    model: Model,
    prompt: str,
    task: str | None,
    settings: Settings,
    trace: Path | None,
    *,
    board: bool,
) -> Result:
    """Drain one search, through a trace and a board if they are wanted."""
    from s3dlm import board as boards
    from s3dlm import engine
    from s3dlm import trace as traces

    events = engine.stream(model, prompt, task=task, settings=settings)
    if trace is not None:
        events = traces.write_trace(
            trace, model, events, question=prompt, task=task, settings=settings
        )
    if board:
        title = f"{settings.method.name} on {model.name}"
        events = boards.show(events, boards.pieces_of(model), model.end_ids, title=title)
    *_, result = events
    return cast("Result", result)


def _why(result: Result) -> str:
    """Why a search with a budget ended."""
    reasons = {"satisfied": "; the verifier is satisfied", "budget": "; the budget is spent"}
    return reasons.get(result.stopped, "")


def _print_result(result: Result, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        from s3dlm.trace import encode_result

        typer.echo(json.dumps(encode_result(result), ensure_ascii=False))
    elif quiet:
        typer.echo(result.text if result.answer is None else result.answer)
    else:
        typer.echo(result.text)
        answer = "no answer found" if result.answer is None else f"answer: {result.answer}"
        chance = "" if result.p_correct is None else f"p_correct {result.p_correct:.2f}; "
        typer.echo(
            f"\n{answer}  ({chance}{result.votes} of {len(result.survivors)} survivors; NFE {result.nfe}, "
            f"{result.nfe_logical} without sharing; {result.seconds:.2f} s{_why(result)})",
            err=True,
        )


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List the methods and the settings that each one uses."""
    import dataclasses

    from s3dlm.search.methods import all_methods

    rows = all_methods()
    if as_json:
        typer.echo(json.dumps({name: dataclasses.asdict(row) for name, row in rows.items()}))
        return
    population = {"one": "1", "product": "N·b", "particles": "N"}
    scored = {"never": "never", "at the end": "end", "every step": "steps"}
    _table(
        ["method", "size", "children", "scored", "weight", "resample", "select"],
        [
            [
                name,
                population[row.population],
                "b" if row.branches else "1",
                scored[row.scored],
                row.weight,
                row.resampling or "keep",
                row.selection,
            ]
            for name, row in rows.items()
        ],
    )
    typer.echo()
    _table(
        ["method", "NFE at most", "description"],
        [[name, row.most_nfe(), row.summary] for name, row in rows.items()],
    )


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the known models, how each is supported and which are on this disk."""
    import dataclasses

    from s3dlm.models.registry import families, known

    rows, kinds = known(), families()
    if as_json:
        plain = {
            "models": [dataclasses.asdict(row) for row in rows],
            "families": [dataclasses.asdict(one) for one in kinds],
        }
        typer.echo(json.dumps(plain))
        return
    _table(
        ["model", "size", "notes"],
        [[row.name, row.size, _notes(row)] for row in rows],
    )
    typer.echo()
    _table(
        ["family", "support", "what was proven"],
        [[one.family, one.support, one.proven] for one in kinds],
    )
    typer.echo("\nModel types, attention, mask ids and more: --json, docs/models.md")


def _notes(row: Known) -> str:
    """The family, how it is supported if not natively, what is on this disk, and remarks."""
    support = "" if row.support == "native" else row.support
    disk = f"on disk ({row.revision[:12]})" if row.revision else "on disk" if row.cached else ""
    return "; ".join(part for part in (row.family, support, row.notes, disk) if part)


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="JSON lines with question, output and maybe gold.")],
    task: Annotated[str, _flag("The task of these outputs, for example gsm8k.")],
    verifier: Annotated[str, _flag("paper, plus or a TOML file of weights.")] = "paper",
    grading: Annotated[str, _flag("How answers are graded: fixed, d1 or hex.")] = "fixed",
    by: Annotated[str, _flag("Also split the report by this field.")] = "gen_length",
    explain: Annotated[
        bool, _flag("List every output that the two gradings disagree on.", "--explain")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure how well a verifier tells right outputs from wrong ones. Any model's outputs will do.

    s3dlm score outputs.jsonl --task gsm8k --explain
    """
    import dataclasses

    from rich.console import Console

    from s3dlm.evaluation.scoring import score_file
    from s3dlm.evaluation.scoring_report import render

    report = score_file(file, task, verifier=verifier, grading=grading, by=by)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), ensure_ascii=False))
    else:
        render(report, Console(), explain=explain)


def _table(headings: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading in ("method", "model", "size"))
    for row in rows:
        table.add_row(*row)
    Console().print(table)


# Commands that live beside what they call; each module has a `register(app)`.
_OTHERS = (
    "s3dlm.evaluation.commands",
    "s3dlm.evaluation.demo_command",
    "s3dlm.evaluation.frontier.command",
    "s3dlm.evaluation.calibrate_command",
    "s3dlm.server.commands",
    "s3dlm.integrations.commands",
)


def _register_others() -> None:
    for name in _OTHERS:
        importlib.import_module(name).register(app)


def main() -> None:
    """The `s3dlm` command."""
    _register_others()
    try:
        code = app(standalone_mode=False)
    except S3dlmError as error:
        typer.echo(f"s3dlm: {error}", err=True)
        code = 2
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:
        code = _usage(error)
    if code == 130:
        typer.echo("stopped", err=True)
    if isinstance(code, int):
        sys.exit(code)


def _usage(error: Exception) -> int:
    """A wrong flag is reported as click words it; anything else is a defect and keeps its traceback."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return int(getattr(error, "exit_code", 2))
