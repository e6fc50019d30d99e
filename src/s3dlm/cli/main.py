"""Parse, call, print: every command is a few lines around a function of the package.

Nothing heavy is imported before a command runs, so `s3dlm --help` is instant. Errors the package
raises on purpose become one line and exit code 2; Ctrl-C ends with 130.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

import s3dlm
from s3dlm.cli import search as search_commands
from s3dlm.errors import S3dlmError

if TYPE_CHECKING:
    from s3dlm.models.registry import Known

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


search_commands.register(app)


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List the methods and the settings that each one uses."""
    from s3dlm.search.methods import all_methods
    from s3dlm.settings import Settings

    rows = all_methods()
    if as_json:
        typer.echo(json.dumps({name: row.to_json() for name, row in rows.items()}))
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
                row.weight if Settings(name).lam > 0 else f"{row.weight}, λ=0",
                Settings(name).resampling or "keep",
                Settings(name).selection,
            ]
            for name, row in rows.items()
        ],
    )
    typer.echo()
    _table(
        ["method", "NFE at most", "description"],
        [[name, Settings(name).nfe_formula(), row.summary] for name, row in rows.items()],
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
    "s3dlm.cli.evaluate",
    "s3dlm.cli.demo",
    "s3dlm.cli.calibrate",
    "s3dlm.cli.serve",
    "s3dlm.cli.cost",
)


def _register_others() -> None:
    for name in _OTHERS:
        importlib.import_module(name).register(app)


_python_warns = warnings.showwarning


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of this package as one line, once, without a place in its source."""
    if category.__module__.partition(".")[0] == "s3dlm":
        _say_once(f"s3dlm: warning: {message}")
    else:
        _python_warns(message, category, filename, lineno, file, line)


@functools.cache
def _say_once(text: str) -> None:
    typer.echo(text, err=True)


def main() -> None:
    """The `s3dlm` command."""
    _register_others()
    warnings.showwarning = _warn
    try:
        code = app(standalone_mode=False)
    except S3dlmError as error:
        typer.echo(f"s3dlm: {error}", err=True)
        code = 2
    except OSError as error:
        if error.filename is None:
            raise
        typer.echo(f"s3dlm: {error.filename}: {error.strerror}; give another path", err=True)
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
