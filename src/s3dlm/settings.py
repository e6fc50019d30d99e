"""A run as frozen plain data: a method with its settings, how to decode, and the verifier's name.

`Settings("s3", particles=8, temperature=1.0)` takes every setting as a keyword: each name belongs to the
method (its fields) or to `Decoding`. `Settings.for_model` starts from what the model recommends.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from s3dlm.diffusion.decoding import Decoding, overlaid
from s3dlm.errors import SettingsError, TemperatureWarning, short_repr, unknown_name
from s3dlm.search.methods import DEFAULT, METHODS, Method, find_method
from s3dlm.search.options import FROZEN, setting
from s3dlm.verifier.base import SELF

if TYPE_CHECKING:
    from s3dlm.models.base import Defaults, Model

DECODING = frozenset(Decoding.model_fields)
FIRST = ("particles", "budget", "verifier", "temperature", "seed")  # what most people change
Layer = Mapping[str, Any]


class Settings:
    """Everything that decides a run's result, apart from the model and the prompt.

    Args:
        method: A name, a class, or an instance such as `S3(particles=8)`.
        values: Settings of the method, of decoding, and the verifier's name.
    """

    __slots__ = ("decoding", "search", "verifier")
    search: Method
    decoding: Decoding
    verifier: str

    def __init__(self, method: str | Method | type[Method] = DEFAULT, **values: Any) -> None:
        row = find_method(method)
        if isinstance(method, Method):
            values = {**dict(method), **values}
        for name in values:
            _check_belongs(row, name, values[name])
        verifier = values.pop("verifier", row.verifier)
        if not isinstance(verifier, str) or not verifier:
            raise SettingsError(f"verifier={short_repr(verifier)} is not allowed; give a name")
        own = {name: value for name, value in values.items() if name not in DECODING}
        object.__setattr__(self, "search", _build(row, own))
        object.__setattr__(self, "decoding", _build(Decoding, decoded(row, values)))
        object.__setattr__(self, "verifier", verifier)
        several = self.search.size * self.search.children > 1
        if self.decoding.temperature == 0 and several and "temperature" not in row.fixed:
            warnings.warn(
                f"temperature=0 with method={row.name!r}: all children of a particle are equal, "
                "so the search changes nothing; set a temperature above 0 or method='baseline'",
                TemperatureWarning,
                stacklevel=2,
            )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"settings are frozen; use settings.replace({name}=…)")

    def __reduce__(self) -> tuple[Any, ...]:
        return Settings.from_json, (self.to_json(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.hash())

    @classmethod
    def for_model(
        cls, model: Model, method: str | Method | type[Method] = DEFAULT, task: str | None = None,
        **overrides: Any,
    ) -> Settings:  # fmt: skip
        """What the model recommends for a method (and a task), with some settings overridden."""
        return cls.recommended(model.defaults, method, task, **overrides)

    @classmethod
    def recommended(
        cls, defaults: Defaults, method: str | Method | type[Method] = DEFAULT,
        task: str | None = None, **overrides: Any,
    ) -> Settings:  # fmt: skip
        """As `for_model`, for a model that is not loaded."""
        row = find_method(method)
        return cls.over(method, defaults.layers(row.name, task, row.like), overrides)

    @classmethod
    def over(
        cls, method: str | Method | type[Method], layers: Sequence[Layer], changes: Layer
    ) -> Settings:
        """Changes over layers of settings, of which those count that the method has."""
        row = find_method(method)
        if isinstance(method, Method):
            changes = {**{n: getattr(method, n) for n in method.model_fields_set}, **changes}
        return cls(row, **merged(row, layers, changes))

    @property
    def method(self) -> str:
        """The method's name."""
        return self.search.name

    def to_json(self) -> dict[str, Any]:
        """The settings as a flat dictionary: the method's name, its settings, and how to decode."""
        data = {"method": self.method, **dict(self.search), **dict(self.decoding)}
        if self.search.verified != "never":
            data["verifier"] = self.verifier
        for name in self.search.fixed:
            data.pop(name, None)
        if self.decoding.reveal == "threshold":
            data.pop("steps", None)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Settings from a flat dictionary; a key that is no setting is an error."""
        if not isinstance(data, Mapping):
            raise SettingsError(f"settings={data!r} is not allowed; give a dictionary of settings")
        values = dict(data)
        return cls(values.pop("method", DEFAULT), **values)

    def replace(self, **changes: Any) -> Settings:
        """A copy with some settings changed; another method starts from its own settings."""
        base, row = self.to_json(), find_method(changes.pop("method", self.search))
        base.pop("method")
        if row is not type(self.search):
            base = {name: value for name, value in base.items() if name in DECODING}
        return self.over(row, [base], changes)

    def effective(self, changes: Layer) -> dict[str, Any]:
        """Those of the changes that this method has."""
        return {name: value for name, value in changes.items() if has(type(self.search), name)}

    def hash(self) -> str:
        """Twelve hex digits that are equal for equal settings, on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def most_nfe(self) -> int:
        """The most forward passes that a run can take with a model that has no blocks of its own."""
        return self.most_nfe_in_blocks(None)

    def most_nfe_in_blocks(self, block: int | None) -> int:
        """The most forward passes that a run can take with a model of such blocks, if it has any."""
        steps = self.decoding.most_steps(block)
        judged = int(self.verifier == SELF and self.search.verified != "never")
        return self.search.most_passes(steps, self.decoding, judged)

    def __repr__(self) -> str:
        plain = Settings(type(self.search)).to_json()
        changed = [f"{n}={v!r}" for n, v in self.to_json().items() if v != plain.get(n)]
        return f"Settings({', '.join([repr(self.method), *changed])})"


LENGTHS = ("steps", "block_length")
_DECODING_DEFAULTS = {name: field.default for name, field in Decoding.model_fields.items()}


def merged(method: type[Method], layers: Sequence[Layer], changes: Layer) -> dict[str, Any]:
    """Changes over those settings of some layers that the method has; nothing is checked."""
    usable = [{n: v for n, v in each.items() if has(method, n)} for each in layers]
    return reduce(overlaid, (*usable, changes), {})


def decoded(method: type[Method], values: Layer) -> dict[str, Any]:
    """How to decode by some settings, by what the method decides, and by default; nothing is checked."""
    given = overlaid(_DECODING_DEFAULTS, {n: v for n, v in values.items() if n in DECODING})
    for name, value in method.fixed.items():
        given[name] = given["gen_length"] if value is None and name in LENGTHS else value
    if given["reveal"] == "threshold":
        given["steps"] = given["gen_length"]  # the most that there can be
    return given


def has(method: type[Method], name: str) -> bool:
    """Whether a method takes a setting."""
    if name in method.fixed:
        return False
    if name == "verifier":
        return method.verified != "never"
    return name in DECODING or name in method.model_fields


def names(method: type[Method]) -> list[str]:
    """The settings that a method takes, those that most people change first."""
    every = [*method.model_fields, "verifier", *Decoding.model_fields]
    every = [name for name in every if has(method, name)]
    return sorted(every, key=_place)


def _check_belongs(row: type[Method], name: str, value: Any) -> None:
    if has(row, name):
        return
    given = f"{name}={short_repr(value)}"
    if name in row.fixed:
        own = "" if row.fixed[name] is None else f": it is {row.fixed[name]!r}"
        raise SettingsError(
            f"{given} is not a setting of method={row.name!r}, which decides it{own}"
        )
    if name in fields():
        owners = [each for each in METHODS if has(METHODS.find(each), name)]
        others = f"methods that have it: {', '.join(owners[:4])}" if owners else "no method has it"
        raise SettingsError(
            f"{given} is not a setting of method={row.name!r}; leave it out ({others})"
        )
    raise SettingsError(unknown_name("setting", name, names(row)))


def _build(model: type[Any], values: Mapping[str, Any]) -> Any:
    try:
        return model(**values)
    except ValidationError as error:
        raise SettingsError(_message(error)) from None


def fields() -> dict[str, FieldInfo]:
    """Every setting of every method, by name."""
    found: dict[str, FieldInfo] = {}
    for name in METHODS:
        for field, info in METHODS.find(name).model_fields.items():
            found.setdefault(field, info)
    return {**found, **_Verifier.model_fields, **Decoding.model_fields}


def schema() -> dict[str, dict[str, Any]]:
    """Every setting by name as a flat JSON schema, with its group and whether forms show it; what most people
    change comes first."""
    found: dict[str, dict[str, Any]] = {}
    found["method"] = {"type": "string", "enum": list(METHODS), "description": "the search method"}
    found["method"] |= {"default": DEFAULT, "shown": True, "nullable": False, "group": "search"}
    classes: list[type[BaseModel]] = [METHODS.find(name) for name in METHODS]
    classes += [_Verifier, Decoding]
    for model in classes:
        for name, made in model.model_json_schema()["properties"].items():
            if name in found and "const" not in found[name]:
                continue
            options = made.pop("anyOf", [{}])
            group = "decoding" if model is Decoding else "search"
            found[name] = {**made, **options[0], "nullable": len(options) > 1, "group": group}
    return dict(sorted(found.items(), key=lambda one: _place(one[0])))


def _place(name: str) -> int:
    first = ("method", *FIRST)
    return first.index(name) if name in first else len(first)


class _Verifier(BaseModel):
    verifier: str = setting(
        "paper",
        "paper, checker, self (the model as judge), or an installed verifier",
    )


def allowed(name: str) -> str:
    """What a setting may be, in words."""
    one = schema()[name]
    if "enum" in one:
        return "one of: " + ", ".join(map(str, one["enum"]))
    if "const" in one:
        return f"{one['const']}, or leave it out"
    kinds = {"integer": "a whole number", "number": "a number", "string": "a name"}
    kind = kinds.get(one["type"], "true or false")
    top = f"to {one['maximum']}" if "maximum" in one else "up"
    return f"{kind} from {one['minimum']:g} {top}" if "minimum" in one else kind


def check(name: str, value: Any) -> Any:
    """The value of one setting in its type, or an error that says what is allowed."""
    field = fields()[name]
    annotated: Any = field.annotation
    if field.metadata:
        annotated = Annotated[(field.annotation, *field.metadata)]
    try:
        return TypeAdapter(annotated, config=FROZEN).validate_python(value)
    except ValidationError as error:
        raise SettingsError(_message(error, name)) from None


def _message(error: ValidationError, name: str = "") -> str:
    """Pydantic's first complaint in our words."""
    first = error.errors(include_url=False)[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), SettingsError):
        return str(cause)
    name = name or str(first["loc"][0])
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        return unknown_name(name, first["input"], schema()[name]["enum"])
    return f"{name}={short_repr(first['input'])} is not allowed; give {allowed(name)}"
