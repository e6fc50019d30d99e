"""Command-line options of the settings, read off their schema."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection
from typing import Annotated, Any

import typer

from s3dlm.errors import SettingsError, shown, unknown_name
from s3dlm.settings import check, schema

SHORT = {"particles": "-N", "branching": "-b"}
TYPES = {"integer": int, "number": float, "string": str}
PANELS = {"search": "Search settings", "decoding": "Decoding settings"}
Command = Callable[..., None]


def _unsafe_code(given: bool) -> bool:
    """Accept missing protections, here and in the workers that inherit this environment."""
    if given:
        from s3dlm.sandbox import configure
        from s3dlm.sandbox.runner import UNSAFE

        os.environ[UNSAFE] = "1"
        configure(allow_unprotected=True)
    return given


UnsafeCode = Annotated[
    bool,
    typer.Option(
        "--unsafe-code",
        callback=_unsafe_code,
        help="Run code that the model writes even if this machine lacks protections.",
    ),
]
"""For commands that may run code; the sandbox refuses without it where a protection is missing."""


def with_settings(command: Command) -> Command:
    """The command with an option for every setting; it gets those that were given as `overrides`."""
    return _with_options(
        command, lambda name: TYPES[schema()[name]["type"]], lambda name, value: value
    )


def with_setting_lists(command: Command) -> Command:
    """The same for commands that sweep: an option takes several values, `overrides` has lists, and
    the seed is the command's own affair."""
    words = " Several values sweep: 1,2,4."
    return _with_options(command, lambda name: str, values_of, words, left_out=("seed",))


def _with_options(
    command: Command,
    kind: Callable[[str], Any],
    read: Callable[[str, Any], Any],
    more_help: str = "",
    left_out: Collection[str] = (),
) -> Command:
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.name != "overrides"]
    taken = {*left_out, *(one.name for one in own)}
    settings = [name for name in schema() if name not in taken]
    added = [
        _parameter(name, kind(name), more_help if schema()[name]["type"] != "string" else "")
        for name in settings
    ]

    def wrapped(**values: Any) -> None:
        given = {name: values.pop(name) for name in settings}
        overrides = {name: read(name, value) for name, value in given.items() if value is not None}
        command(**values, overrides=overrides)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in [*own, *added]}
    return wrapped


def _parameter(name: str, kind: Any, more_help: str) -> inspect.Parameter:
    one, flag = schema()[name], f"--{name.replace('_', '-')}"
    flags = [flag, SHORT[name]] if name in SHORT else [flag]
    words = f"{one['description'][0].upper()}{one['description'][1:]}.{more_help}"
    choices = one.get("enum")
    if choices:
        words += f" One of: {', '.join(choices)}."
    option = typer.Option(
        *flags,
        help=words,
        rich_help_panel=PANELS[one["group"]],
        show_default=False,
        autocompletion=(lambda: list(choices)) if choices else None,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )


def values_of(name: str, text: str) -> list[Any]:
    """Several values of a setting, separated by commas, each checked."""
    kind = TYPES[schema()[name]["type"]]
    try:
        found = [kind(part.strip()) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise SettingsError(
            f"{name}={shown(text)} is not a list of numbers; write one or several, as in 1,2,4"
        ) from error
    return [check(name, value) for value in found]


def method_names() -> list[str]:
    """The methods, for shell completion."""
    from s3dlm.search.methods import all_methods

    return list(all_methods())


def task_names() -> list[str]:
    """The tasks, for shell completion."""
    from s3dlm import tasks

    return tasks.names()


def lists_of(names: Callable[[], list[str]]) -> Callable[[str], list[str]]:
    """Shell completion of the last of several names, separated by commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


def lists_from_pairs(texts: list[str]) -> dict[str, list[Any]]:
    """`--set NAME=VALUE` as settings."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise SettingsError(
                f"--set {shown(text)} is not allowed; write NAME=VALUE, as in particles=8"
            )
        if name not in schema():
            raise SettingsError(unknown_name("setting", name, schema()))
        found[name] = values_of(name, value)
    return found
