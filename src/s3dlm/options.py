"""Command-line options of the settings, read off their declarations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from s3dlm.declare import Declaration
from s3dlm.errors import SettingsError, shown
from s3dlm.settings import declarations

SHORT = {"particles": "-N", "branching": "-b"}
PANELS = {"method": "Search settings", "decoding": "Decoding settings"}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for every setting; it gets those that were given as `overrides`."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "overrides"]
    added = [_parameter(one) for one in declarations().values()]

    def wrapped(**values: Any) -> None:
        given = {one.name: values.pop(one.name) for one in added}
        overrides = {name: value for name, value in given.items() if value is not None}
        command(**values, overrides=overrides)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in [*own, *added]}
    return wrapped


def _parameter(one: Declaration) -> inspect.Parameter:
    flag = f"--{one.name.replace('_', '-')}"
    flags = [flag, SHORT[one.name]] if one.name in SHORT else [flag]
    words = f"{one.help[0].upper()}{one.help[1:]}."
    if one.choices:
        words += f" One of: {', '.join(one.choices)}."
    option = typer.Option(*flags, help=words, rich_help_panel=PANELS[one.group], show_default=False)
    kind: Any = one.type
    annotation = Annotated[kind | None, option]
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def name_value_pairs(texts: list[str]) -> dict[str, Any]:
    """`--set NAME=VALUE` as settings; a value that is not JSON is a word."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingsError(
                f"--set {shown(text)} is not allowed; write NAME=VALUE, as in particles=8"
            )
        try:
            found[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            found[name.strip()] = value.strip()
    return found
