"""Parse, call, print: every command is a few lines around a function of the package.

Nothing heavy is imported before a command runs, so `s3dlm --help` is instant. Errors the package
raises on purpose become one line and exit code 2; Ctrl-C ends with 130.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

import s3dlm
from s3dlm.cli import evaluate, report, search, serve
from s3dlm.cli.options import AsJson, print_table, say
from s3dlm.errors import S3dlmError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # as it comes: half the lines, and [[16]] is no markup
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Inference-time search for diffusion language models: S³, its ablations, other methods.",
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"s3dlm {s3dlm.__version__}")
        raise typer.Exit


_VERSION = "Print the version."
_UNSAFE = "Run code of the model even if protections are missing."


@app.callback()
def options_of_all(
    version: Annotated[
        bool, Option("--version", help=_VERSION, callback=_print_version, is_eager=True)
    ] = False,
    unsafe_code: Annotated[bool, Option("--unsafe-code", help=_UNSAFE)] = False,
) -> None:
    """What is common to all commands."""
    if unsafe_code:  # here, and in the workers that inherit this environment
        os.environ["S3DLM_UNSAFE_CODE"] = "1"  # read when the sandbox is imported


_COMMANDS: dict[str, Callable[..., None]] = {
    "generate": search.generate, "eval": evaluate.eval_command, "reproduce": evaluate.reproduce,
    "report": report.report, "score": report.score, "calibrate": report.calibrate, "demo": serve.demo,
    "serve": serve.serve, "view": serve.view,
}  # fmt: skip
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)

Listed = tuple[object, tuple[list[str], list[list[str]]]]  # as JSON, and as a table
NOTES = {
    "methods": "N particles, b children of each, T steps, B blocks, L tokens; K = N·b samples.",
    "models": "A folder or any hub id of these families works as well. All were checked with random weights, and "
    "never run with the published ones: docs/models.md.",
}


@app.command("list")
def list_command(
    what: Annotated[Literal["methods", "models", "tasks", "verifiers"], Argument(help="Which.")],
    as_json: AsJson = False,
) -> None:
    """List methods, models, tasks or verifiers, with a line on each.

    \b
    s3dlm list methods
    s3dlm list models --json
    """
    lists = {"methods": _methods, "models": _models, "tasks": _tasks, "verifiers": _verifiers}
    plain, table = lists[what]()
    if as_json:
        typer.echo(json.dumps(plain))
    else:
        print_table(*table, note=NOTES.get(what, ""), left=True)


def _methods() -> Listed:
    from s3dlm.search.methods import METHODS
    from s3dlm.settings import Settings, names

    plain, rows = {}, []
    for name in METHODS:
        row, settings = METHODS.find(name), Settings(name)
        plain[name] = {
            "summary": row.summary, "source": row.source, "verified": row.verified,
            "passes": row.cost, "settings": names(row), "defaults": settings.to_json(),
        }  # fmt: skip
        rows.append([name, row.cost, row.summary])
    return plain, (["method", "passes at most", "description"], rows)


def _models() -> Listed:
    from s3dlm.models.folder import known

    rows, table = known(), []
    for row in rows:
        commit = f" ({row.revision[:12]})" if row.revision else ""
        disk = f"on disk{commit}" if row.cached and "bundled" not in row.notes else ""
        table.append([row.name, row.size, "; ".join(part for part in (row.notes, disk) if part)])
    plain = [dataclasses.asdict(row) for row in rows]
    return plain, (["model", "size", "notes"], table)


def _tasks() -> Listed:
    from s3dlm import tasks

    rows = [tasks.get(name) for name in tasks.names()]
    table = [[t.name, t.title, t.answer, "yes" if t.bundled else "no"] for t in rows]
    plain = {t.name: {"title": t.title, "answer": t.answer, "bundled": t.bundled} for t in rows}
    return plain, (["task", "title", "answer", "problems bundled"], table)


def _verifiers() -> Listed:
    from s3dlm.verifier import LOADERS, VERIFIERS

    named = {name: getattr(VERIFIERS.find(name), "summary", "") for name in VERIFIERS}
    known = {**named, **{f"{kind}:…": "" for kind in LOADERS}, **JUDGES}
    return list(known), (["verifier", "how it judges"], [[*row] for row in known.items()])


JUDGES = {
    "self": "the searching model's own P(Yes) on the draft",
    "reward:…": "a reward model of the whole text",
    "prm:…": "a process reward model, step by step",
    "likelihood:…": "how likely another language model finds the text",
    "orm:…": "a diffusion model with a LoRA adapter and a reward head",
    "judge:…": "a chat model behind an OpenAI-compatible API, as judge:URL#MODEL",
    "FILE.py:NAME": "your own function (question, text, confidence) → 0 to 1",
}


_python_warns = warnings.showwarning


def _warn(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
    """A warning of this package as one line, once, without a place in its source."""
    if category.__module__.partition(".")[0] == "s3dlm":
        _tell_once(f"s3dlm: warning: {message}")
    else:
        _python_warns(message, category, *place, **named)


def _mistake(error: Any) -> str:
    """A wrong command or flag in one line, with what would have been right."""
    line = " ".join(error.format_message().split()).rstrip(".?").replace("Value error, ", "")
    line = re.sub("Input should be a valid integer.*", "give a whole number", line)
    line = re.sub("Input should be a valid number.*", "give a number", line)
    place = getattr(getattr(error, "ctx", None), "command_path", "s3dlm")
    flag = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    if place == "s3dlm" and line.startswith("No such command"):
        line, _, nearest = line.partition(". Did you mean ")
        commands = "`s3dlm generate QUESTION` asks a model, `s3dlm -h` lists the commands"
        return f"{line}; {f'did you mean {nearest}?' if nearest else commands}"
    from s3dlm.settings import schema

    if flag in schema():
        return f"{line}; here it is `--set {flag}=VALUE`"
    return f"{line}; see `{place} -h`"


def _tell(text: str) -> None:
    say(text, err=True)


_tell_once = functools.cache(_tell)


def main() -> None:
    """The `s3dlm` command."""
    warnings.showwarning = _warn
    code: Any = 2
    try:
        code = app(prog_name="s3dlm", standalone_mode=False)  # however it was started
    except S3dlmError as error:
        _tell(f"s3dlm: {error}")
    except OSError as error:
        if error.filename is None:
            raise
        _tell(f"s3dlm: {error.filename}: {error.strerror}; give another path")
    except (typer.Abort, KeyboardInterrupt):
        code = 130
    except Exception as error:  # a wrong flag, as click words it; anything else is a defect
        if not hasattr(error, "show"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # nothing was asked for
            error.show()
        else:
            _tell(f"s3dlm: {_mistake(error)}")
        code = int(getattr(error, "exit_code", 2))
    if code == 130:
        typer.echo("stopped", err=True)
    if isinstance(code, int):
        sys.exit(code)
