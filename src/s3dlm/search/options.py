"""What a setting is: a field with a default, a meaning and bounds, or a name out of a table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from s3dlm.errors import SettingsError, unknown_name

FROZEN = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def setting(default: Any, description: str, *, shown: bool = True, **bounds: Any) -> Any:
    """A setting.

    Args:
        default: Its value unless another is given.
        description: What it means, for help, forms and docs/settings.md.
        shown: Whether forms and help show it; what few need is documented apart.
        bounds: As in `pydantic.Field`: ge, le and the like.
    """
    extra: Any = {"shown": shown}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


more = partial(setting, shown=False)
# What a type means that settings of several methods have: its default stands with each.
meaning = partial(setting, ...)


Size = Annotated[int, Field(ge=1, le=65536)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    """The type of a setting whose values are the names in a table, to which others may be added."""

    what: str
    table: Collection[str]

    def check(self, value: str) -> str:
        if value not in self.table:
            raise SettingsError(unknown_name(self.what, value, self.table))
        return value

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(core), "enum": list(self.table)}
