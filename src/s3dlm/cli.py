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

from s3dlm.errors import S3dlmError, SettingsError

if TYPE_CHECKING:
    from s3dlm.engine import Result
    from s3dlm.models.base import Model
    from s3dlm.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Search at inference time for diffusion language models: S³, its ablations, its rivals.",
)


def _flag(words: str, *names: str) -> Any:
    return typer.Option(*names, help=words)


TaskName = Annotated[str | None, _flag("Words the prompt, picks verifier and answer.")]
Particles = Annotated[int | None, _flag("Kept after every step.", "--particles", "-N")]
Branching = Annotated[int | None, _flag("Children of each.", "--branching", "-b")]
Verifier = Annotated[str | None, _flag("A profile, a TOML file or a registered name.")]
More = Annotated[list[str] | None, _flag("Any other setting, NAME=VALUE.", "--set")]
RemoteCode = Annotated[bool, _flag("Run the checkpoint's own code.", "--trust-remote-code")]
Compile = Annotated[bool, _flag("Run the network through torch.compile.", "--compile")]

PrefixCache = Annotated[bool, _flag("Read prompt and past blocks once a block.", "--prefix-cache")]


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    model: Annotated[str, _flag("tiny, a folder or a hub id.")] = "tiny",
    task: TaskName = None,
    method: Annotated[str, _flag("A row of `s3dlm methods`.")] = "s3",
    particles: Particles = None,
    branching: Branching = None,
    lam: Annotated[float | None, _flag("λ, the strength of the tilt.")] = None,
    temperature: Annotated[float | None, _flag("Of sampling; 0 is greedy.")] = None,
    gen_length: Annotated[int | None, _flag("Tokens of the answer's canvas.")] = None,
    steps: Annotated[int | None, _flag("Denoising steps.")] = None,
    block_length: Annotated[int | None, _flag("Filled from left to right.")] = None,
    policy: Annotated[str | None, _flag("Which positions are revealed first.")] = None,
    resampling: Annotated[str | None, _flag("Instead of the method's own.")] = None,
    ess_threshold: Annotated[float | None, _flag("Resample only below this share.")] = None,
    selection: Annotated[str | None, _flag("Instead of the method's own.")] = None,
    more: More = None,
    verifier: Verifier = None,
    seed: Annotated[int, _flag("Same seed, same answer.")] = 0,
    device: Annotated[str | None, _flag("cpu, cuda, cuda:1, mps.")] = None,
    dtype: Annotated[str | None, _flag("float32, bfloat16, float16.")] = None,
    trust_remote_code: RemoteCode = False,
    compiled: Compile = False,
    prefix_cache: PrefixCache = False,
    as_json: Annotated[bool, _flag("The result as JSON, no board.", "--json")] = False,
    trace: Annotated[Path | None, _flag("Record every step as JSON lines.")] = None,
    profile: Annotated[bool, _flag("Tell where the time went.", "--profile")] = False,
    quiet: Annotated[bool, _flag("Only the answer.", "--quiet", "-q")] = False,
) -> None:
    """Answer one prompt, and watch the search while it works.

    s3dlm generate "Target: 45 Numbers: 8, 7, 11" --task countdown

    s3dlm generate "What is 2 + 2?" --model GSAI-ML/LLaDA-8B-Instruct --json
    """
    from s3dlm.models.registry import load

    prompt = sys.stdin.read() if prompt == "-" else prompt
    named, judge = _verifier(verifier)
    options = {
        **named, "method": method, "seed": seed, "particles": particles, "branching": branching,
        "lam": lam, "temperature": temperature, "gen_length": gen_length, "steps": steps,
        "block_length": block_length, "policy": policy, "resampling": resampling,
        "ess_threshold": ess_threshold, "selection": selection, **_pairs(more or []),
    }  # fmt: skip
    settings = _settings(model, options)
    loaded = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, compile=compiled,
        prefix_cache=prefix_cache,
    )  # fmt: skip
    result = _search(loaded, prompt, task, settings, judge, trace, board=not (as_json or quiet))
    _print_result(result, as_json=as_json, quiet=quiet)
    if profile:
        _print_profile(result)


def _pairs(texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE as a setting; a value that is no JSON is a word."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingsError(
                f"--set {text!r} is not allowed; write NAME=VALUE, as in tilt=adaptive"
            )
        try:
            found[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            found[name.strip()] = value.strip()
    if "cadence" in found:  # its numbers are names: every k-th step
        found["cadence"] = str(found["cadence"])
    return found


def _settings(model: str, options: dict[str, Any]) -> Settings:
    """What the model is best asked with, changed by what the user gave."""
    from s3dlm.settings import Settings
    from s3dlm.tasks import recommended

    given = {name: value for name, value in options.items() if value is not None}
    method = given.get("method", Settings().method)
    return Settings.from_json({**recommended.settings(model, method), **given})


def _search(
    model: Model,
    prompt: str,
    task: str | None,
    settings: Settings,
    judge: str | None,
    trace: Path | None,
    *,
    board: bool,
) -> Result:
    """Drain one search, through a trace and a board if they are wanted."""
    from s3dlm import board as boards
    from s3dlm import engine
    from s3dlm import trace as traces

    events = engine.stream(model, prompt, task=task, settings=settings, verifier=judge)
    if trace is not None:
        events = traces.write_trace(
            trace, model, events, question=prompt, task=task, settings=settings
        )
    if board:
        title = f"{settings.method} on {model.name}"
        events = boards.show(events, boards.pieces_of(model), model.end_ids, title=title)
    *_, result = events
    return cast("Result", result)


def _verifier(name: str | None) -> tuple[dict[str, str], str | None]:
    """A profile goes into the settings, a registered verifier is handed over by name."""
    from s3dlm.verifier.lookup import PROFILES

    if name is None:
        return {}, None
    if name in PROFILES or name.endswith(".toml"):
        return {"profile": name}, None
    return {}, name


def _print_result(result: Result, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        from s3dlm.trace import encode_result

        typer.echo(json.dumps(encode_result(result), ensure_ascii=False))
    elif quiet:
        typer.echo(result.text if result.answer is None else result.answer)
    else:
        typer.echo(result.text)
        answer = "no answer found" if result.answer is None else f"answer: {result.answer}"
        votes = sum(one.answer == result.answer for one in result.survivors)
        typer.echo(
            f"\n{answer}  ({votes} of {len(result.survivors)} survivors; "
            f"{result.nfe} of {result.nfe_logical} rows forwarded; {result.seconds:.2f} s)",
            err=True,
        )


def _print_profile(result: Result) -> None:
    total = max(result.seconds, 1e-9)
    for name, seconds in result.profile.items():
        typer.echo(f"{name:10} {seconds:8.3f} s  {100 * seconds / total:5.1f} %", err=True)


@app.command()
def methods(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the methods: rows of one table that the one loop reads."""
    import dataclasses

    from s3dlm.search.methods import METHODS

    rows = {name: dataclasses.asdict(method) for name, method in METHODS.items()}
    if as_json:
        typer.echo(json.dumps(rows))
        return
    population = {"one": "1", "all": "N·b", "particles": "N"}
    _table(
        ["method", "particles", "children", "scored", "weight", "resample", "select"],
        [
            [
                name,
                population[row.population],
                "b" if row.branches else "1",
                row.scored,
                row.weight,
                row.resampling or "keep",
                row.selection,
            ]
            for name, row in METHODS.items()
        ],
    )
    typer.echo()
    _table(
        ["method", "rows at most", "what it is"],
        [[name, row.most_rows(), row.summary] for name, row in METHODS.items()],
    )


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the models that are known, cached and supported."""
    import dataclasses

    from s3dlm.models.registry import known

    rows = known()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(row) for row in rows]))
        return
    _table(
        ["model", "family", "size", "support", "on disk", "notes"],
        [
            [row.name, row.family, row.size, row.support, "yes" if row.cached else "", row.notes]
            for row in rows
        ],
    )


@app.command()
def score(
    file: Annotated[Path, typer.Argument(help="JSONL with question, output and perhaps gold.")],
    task: Annotated[str, typer.Option(help="Whose answers these are, for example gsm8k.")],
    verifier: Annotated[str, typer.Option(help="A profile or a TOML file.")] = "paper",
    preset: Annotated[str, typer.Option(help="Grading that says right and wrong.")] = "fixed",
    by: Annotated[
        str, typer.Option(help="A field by whose values the report is split as well.")
    ] = "gen_length",
    explain: Annotated[
        bool, typer.Option("--explain", help="List every verdict that presets disagree on.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Tell what a verifier is worth on outputs of any model, from anywhere.

    s3dlm score outputs.jsonl --task gsm8k --explain
    """
    import dataclasses

    from rich.console import Console

    from s3dlm.evaluation.scoring import score_file
    from s3dlm.evaluation.scoring_report import render

    report = score_file(file, task, profile=verifier, preset=preset, by=by)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(report), ensure_ascii=False))
    else:
        render(report, Console(), explain=explain)


def _table(headings: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=heading in ("method", "model"))
    for row in rows:
        table.add_row(*row)
    Console().print(table)


# Commands that live beside what they call; each module has a `register(app)`.
_OTHERS = (
    "s3dlm.evaluation.commands",
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
    """A wrong flag is shown as click words it; anything else is a defect and keeps its traceback."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return int(getattr(error, "exit_code", 2))
