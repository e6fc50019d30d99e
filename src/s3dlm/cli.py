"""Parse, call, print: every command is a few lines around a function of the package.

Nothing heavy is imported before a command runs, so `s3dlm --help` is instant. Errors the package
raises on purpose become one line and exit code 2; Ctrl-C ends with 130.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from s3dlm.errors import S3dlmError

if TYPE_CHECKING:
    from s3dlm.engine import Result

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Search at inference time for diffusion language models: S³, its ablations, its rivals.",
)


@app.command()
def generate(
    prompt: Annotated[str, typer.Argument(help="The question; - reads it from standard input.")],
    model: Annotated[str, typer.Option(help="tiny, a folder or a hub id.")] = "tiny",
    task: Annotated[
        str | None, typer.Option(help="Words the prompt, picks the verifier, finds the answer.")
    ] = None,
    method: Annotated[str, typer.Option(help="A row of `s3dlm methods`.")] = "s3",
    particles: Annotated[int | None, typer.Option("--particles", "-N", help="Kept a step.")] = None,
    branching: Annotated[
        int | None, typer.Option("--branching", "-b", help="Children of each.")
    ] = None,
    lam: Annotated[float | None, typer.Option(help="λ, the strength of the tilt.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling; 0 is greedy.")] = None,
    gen_length: Annotated[int | None, typer.Option(help="Tokens of the answer's canvas.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps.")] = None,
    block_length: Annotated[int | None, typer.Option(help="Filled from left to right.")] = None,
    policy: Annotated[str | None, typer.Option(help="Which positions are revealed first.")] = None,
    resampling: Annotated[str | None, typer.Option(help="Instead of the method's own.")] = None,
    ess_threshold: Annotated[
        float | None, typer.Option(help="Resample only below this share of ESS.")
    ] = None,
    selection: Annotated[str | None, typer.Option(help="Instead of the method's own.")] = None,
    verifier: Annotated[
        str | None, typer.Option(help="A profile (paper, …), a TOML file, or a registered name.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same answer.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, float16.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the checkpoint's own Python code.")
    ] = False,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Run the network through torch.compile.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The result as JSON, no board.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Record every step as JSON lines.")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Tell where the time went.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer.")] = False,
) -> None:
    """Answer one prompt, and watch the search while it works.

    s3dlm generate "Target: 24 Numbers: 6, 4, 12" --task countdown

    s3dlm generate "What is 2 + 2?" --model GSAI-ML/LLaDA-8B-Instruct --json
    """
    from s3dlm import board, engine
    from s3dlm import trace as traces
    from s3dlm.models.registry import load
    from s3dlm.settings import Settings
    from s3dlm.tasks import recommended

    if prompt == "-":
        prompt = sys.stdin.read()
    given = {
        "particles": particles, "branching": branching, "lam": lam, "temperature": temperature,
        "gen_length": gen_length, "steps": steps, "block_length": block_length, "policy": policy,
        "resampling": resampling, "ess_threshold": ess_threshold, "selection": selection,
    }  # fmt: skip
    own = {name: value for name, value in given.items() if value is not None}
    named, judge = _verifier(verifier)
    settings = Settings.from_json(
        {**recommended.settings(model), **own, **named, "method": method, "seed": seed}
    )
    loaded = load(
        model, device=device, dtype=dtype, trust_remote_code=trust_remote_code, compile=compiled
    )
    events = engine.stream(loaded, prompt, task=task, settings=settings, verifier=judge)
    if trace is not None:
        events = traces.write_trace(
            trace, loaded, events, question=prompt, task=task, settings=settings
        )
    if not (as_json or quiet):
        events = board.show(
            events, board.pieces_of(loaded), loaded.end_ids, title=f"{method} on {loaded.name}"
        )
    result = _last(events)
    if as_json:
        typer.echo(json.dumps(traces.encode_result(result), ensure_ascii=False))
    else:
        _print_result(result, quiet=quiet)
    if profile:
        _print_profile(result)


def _verifier(name: str | None) -> tuple[dict[str, str], Any]:
    """A profile goes into the settings, a registered verifier is handed over by name."""
    from s3dlm.verifier.lookup import PROFILES

    if name is None:
        return {}, None
    if name in PROFILES or name.endswith(".toml"):
        return {"profile": name}, None
    return {}, name


def _last(events: Any) -> Result:
    result = None
    for result in events:  # noqa: B007
        pass
    assert result is not None
    return result  # type: ignore[no-any-return]


def _print_result(result: Result, *, quiet: bool) -> None:
    if quiet:
        typer.echo(result.text if result.answer is None else result.answer)
        return
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
    _table(["method", "what it is"], [[name, row.summary] for name, row in METHODS.items()])


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
_OTHERS = ("s3dlm.evaluation.commands", "s3dlm.evaluation.ablate", "s3dlm.server.commands")


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
