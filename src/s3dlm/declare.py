"""A setting is declared once: its default, its meaning and what is allowed.

`Method` and `Settings` are dataclasses whose fields are made by `setting`. Checks, command-line
options, the server's schema, the viewer's form and docs/settings.md are all read off the declaration.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from s3dlm.errors import SettingsError, shown, unknown_name

LARGEST = 1e300  # no setting needs a larger number

Group = Literal["method", "decoding"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One setting, as everything outside the search needs to know it."""

    name: str
    type: type  # int, float or str
    default: Any
    help: str
    choices: tuple[str, ...]  # empty: not a choice between names
    low: float | None
    high: float | None
    optional: bool  # None is allowed and means: not used
    group: Group

    @property
    def allowed(self) -> str:
        """What may be given, in words."""
        if self.choices:
            return "one of: " + ", ".join(self.choices)
        kind = {int: "a whole number", float: "a number", str: "a name"}[self.type]
        if self.low is not None and self.high is not None:
            return f"{kind} from {self.low:g} to {self.high:g}"
        return kind if self.low is None else f"{kind} from {self.low:g} up"

    def check(self, value: Any) -> Any:
        """The value in the setting's type, or an error that says what is allowed."""
        if value is None and self.optional:
            return None
        if self.choices and value not in self.choices:
            raise SettingsError(unknown_name(self.name, value, self.choices))
        if not self._fits(value):
            raise SettingsError(f"{self.name}={shown(value)} is not allowed; give {self.allowed}")
        return self.type(value)

    def _fits(self, value: Any) -> bool:
        if self.type is str:
            return isinstance(value, str) and bool(value)
        kinds = (int,) if self.type is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        low = -LARGEST if self.low is None else self.low
        high = LARGEST if self.high is None else self.high
        return low <= value <= high  # false for NaN, too


def setting(
    default: Any,
    help: str,
    *,
    choices: Callable[[], Collection[str]] | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A dataclass field that is a setting; `choices` gives the names of the table that defines them."""
    metadata = {"help": help, "choices": choices, "low": low, "high": high}
    return dataclasses.field(default=default, metadata={"setting": metadata})


def declared(owner: type, group: Group) -> dict[str, Declaration]:
    """The settings that a dataclass declares, by name, in their order."""
    hints = get_type_hints(owner)
    return {
        field.name: _declaration(field, hints[field.name], group)
        for field in dataclasses.fields(owner)
        if "setting" in field.metadata
    }


def _declaration(field: dataclasses.Field[Any], hint: Any, group: Group) -> Declaration:
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    (kind,) = (one for one in kinds if one is not types.NoneType)
    given = field.metadata["setting"]
    return Declaration(
        name=field.name,
        type=kind,
        default=field.default,
        help=given["help"],
        choices=tuple(given["choices"]()) if given["choices"] else (),
        low=given["low"],
        high=given["high"],
        optional=types.NoneType in kinds,
        group=group,
    )
