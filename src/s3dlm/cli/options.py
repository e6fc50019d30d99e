"""Options that commands share, and what they do with them. Nothing heavy is imported here."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from s3dlm.errors import SettingsError, short_repr, unknown_name

if TYPE_CHECKING:
    from s3dlm.models.base import Model

Repeated = list[str] | None


# --- options
ModelName = Annotated[
    str, Option("--model", help="tiny, sudoku9 or noisy9 (bundled), a folder or a hub id.")
]
Tasks = Annotated[
    Repeated,
    Option(
        "--task",
        help="Tasks: repeat, or separate by commas. FILE.jsonl:TASK is your own. "
        "Default: those of the model.",
    ),
]
Device = Annotated[str | None, Option(help="cpu, cuda, cuda:1 or mps.")]
_LOAD = "How to load: dtype, quantize, adapter, dual_cache, mask_id, …"
Load = Annotated[Repeated, Option("--load", metavar="NAME=VALUE", help=_LOAD)]
_PROMPTS = "TOML file of your own prompts, a table per task with user, prefill and system."
PromptsFile = Annotated[str | None, Option("--prompts", metavar="FILE", help=_PROMPTS)]
_VERIFIER = "paper, checker, your FILE.py:NAME, …"
VerifierName = Annotated[str | None, Option("--verifier", help=_VERIFIER)]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]


# --- values
def split(values: Sequence[str] | None) -> list[str]:
    """Names that were given by repeating an option, by commas, or both."""
    return [name.strip() for text in values or () for name in text.split(",") if name.strip()]


def pairs(flag: str, texts: Sequence[str] | None) -> dict[str, str]:
    """The NAME=VALUE of a repeated option; a name that is given twice is a mistake."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, sign, value = (part.strip() for part in text.partition("="))
        if not (sign and name and value.strip(",")):
            raise SettingsError(f"{flag} {short_repr(text)} is not allowed; write NAME=VALUE")
        if name in found:
            raise SettingsError(f"{flag} {name}=… was given twice; give it once")
        found[name] = value
    return found


def value_of(word: str) -> Any:
    """A number, true, false or none; any other word stands for itself."""
    if word == "none":
        return None
    try:
        return json.loads(word.lower())
    except ValueError:
        return word


def setting_values(texts: Repeated, flag: str = "--set") -> dict[str, list[Any]]:
    """`--set NAME=VALUE` as settings; several values, separated by commas, are a sweep."""
    from s3dlm.settings import check, fields

    found: dict[str, list[Any]] = {}
    for name, text in pairs(flag, texts).items():
        if name == "method":
            raise SettingsError(f"{flag} method={text} is not allowed; --method chooses the method")
        if name not in fields():
            raise SettingsError(unknown_name("setting", name, fields()))
        values = [value_of(word) for word in split([text])]
        found[name] = [check(name, own_verifier(v) if name == "verifier" else v) for v in values]
    return found


def own_verifier(name: Any) -> Any:
    """A verifier's name; `FILE.py:NAME` is loaded, because the user's own command names it."""
    from s3dlm.verifier import own

    return own.from_file(name) if isinstance(name, str) and own.is_file(name) else name


def single(values: dict[str, list[Any]]) -> dict[str, Any]:
    """Settings of one value each."""
    for name, some in values.items():
        if len(some) != 1:
            raise SettingsError(f"{name}={short_repr(some)} is not allowed here; give one value")
    return {name: some[0] for name, some in values.items()}


LOADING = {
    "dtype": str, "adapter": str, "mask_id": int, "block": int,
    "trust_remote_code": bool, "devices": str,
    "quantize": str, "dual_cache": int, "prompts": str, "tensor_parallel": bool,
}  # fmt: skip


def typed(flag: str, texts: Repeated, kinds: dict[str, Any]) -> dict[str, Any]:
    """The NAME=VALUE of an option whose names have these types."""
    found: dict[str, Any] = {}
    for name, text in pairs(flag, texts).items():
        if name not in kinds:
            raise SettingsError(unknown_name(flag, name, kinds))
        kind, least = kinds[name], int(name == "block")
        value: Any = text if kind is str else value_of(text)
        if type(value) is int and kind is float:
            value = float(value)
        if type(value) is not kind or (kind in (int, float) and not least <= value < math.inf):
            words = {bool: "true or false", int: f"a whole number from {least} up"}
            wanted = words.get(kind, f"a number from {least} up")
            raise SettingsError(f"{flag} {name}={short_repr(text)} is not allowed; give {wanted}")
        found[name] = value
    return found


def loading(
    texts: Repeated, *, device: str | None = None, prompts: str | None = None
) -> dict[str, Any]:
    """What `--load`, `--device` and `--prompts` say of how to load."""
    more = [f"prompts={prompts}"] if prompts else []
    return {"device": device, **typed("--load", [*(texts or ()), *more], LOADING)}


def announce(name: str) -> None:
    """Say what is coming: torch and large weights take a while."""
    typer.echo(f"loading model {name} …", err=True)


def load_model(name: str, *, quiet: bool = False, **how: Any) -> Model:
    """The model, announced first unless that was done."""
    if not quiet:
        announce(name)
    from s3dlm.models.registry import load

    return load(name, **how)


# A file's own words may hold what moves the cursor or hides text: none of it reaches the terminal.
CONTROLS = dict.fromkeys({*range(32), *range(127, 160)} - {9, 10}, "\ufffd")
UNBROKEN: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def say(text: str, *, err: bool = False) -> None:
    """Print text. A terminal gets no control characters, no word is broken there, and lines that are
    indented, which are commands, are left alone."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(
            line if line.startswith(" ") else textwrap.fill(line, width, **UNBROKEN)
            for line in text.translate(CONTROLS).split("\n")
        )
    typer.echo(text, err=err)


ROOM_FOR_COLUMNS = 60  # in a narrower terminal what a list says stands under each name


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    note: str = "",
    *,
    left: bool = False,
    marked: bool = False,
) -> None:
    """A table in the terminal; `marked`: a cell that begins with `*` is bold, and the mark is left out."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if left and (width := Console().width) < ROOM_FOR_COLUMNS:
        for row in rows:
            under = textwrap.fill("; ".join(filter(None, row[1:])), width - 2)
            typer.echo(f"{row[0]}\n{textwrap.indent(under, '  ')}".translate(CONTROLS))
        say(note)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for row in rows:
        cells = ((marked and c[:1] == "*", c.translate(CONTROLS)) for c in row)
        table.add_row(*(Text(c[1:], style="bold") if bold else Text(c) for bold, c in cells))
    if title:
        Console().print(
            Text(title.translate(CONTROLS), style="bold")
        )  # a title of the table would be as narrow as it
    Console().print(table)
    say(f"{note}\n" if note else "")
