"""A run as frozen plain data: checked when built, hashed the same on every machine.

`Settings(method="s3", particles=8, temperature=1.0)` names a method (search/methods.py), overrides
settings that it uses and says how to decode. `Settings.for_model` starts from what the model
recommends. A setting that would change nothing is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import cache, reduce
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from pydantic import TypeAdapter, ValidationError

from s3dlm.diffusion import decoding
from s3dlm.diffusion.blocks import block_lengths
from s3dlm.diffusion.decoding import Decoding, DecodingKwargs, overlaid
from s3dlm.errors import SettingsError, TemperatureWarning, short_repr, unknown_name
from s3dlm.search import cost
from s3dlm.search.expand import CHILD_SAMPLINGS
from s3dlm.search.methods import METHODS, MOVING, SEARCH, Beside, Method, find_method
from s3dlm.search.options import FROZEN, SearchKwargs, SearchOptions
from s3dlm.search.remask import ACCEPT_RULES, RULES
from s3dlm.search.resample import RESAMPLERS
from s3dlm.search.select import SELECTIONS

if TYPE_CHECKING:
    from s3dlm.models.base import Model
    from s3dlm.models.defaults import Defaults

# Names in files that were recorded before these settings were renamed.
_RENAMED = {"hiding": "remask", "hidden": "remask_fraction", "fresh": "restart_fraction"}
_RENAMED |= {"keep": "accept"}
CHOICES: dict[str, Collection[str]] = {  # the tables that define the names a setting may have
    "method": METHODS, "resampling": RESAMPLERS, "cadence": ("step", "block"),
    "child_sampling": CHILD_SAMPLINGS, "selection": SELECTIONS, "remask": RULES,
    "stop_when": ("satisfied", "agreed", "never"), "accept": ACCEPT_RULES, **decoding.CHOICES,
}  # fmt: skip
# What counts only beside others, in an order in which each comes after what it depends on.
BESIDE: Beside = {**MOVING, **decoding.BESIDE}


class SettingsKwargs(SearchKwargs, DecodingKwargs, total=False):
    """The settings as keywords of `generate` and the like, where a verifier may be a function."""


class AllKwargs(SettingsKwargs, total=False):
    verifier: str


class Settings(Decoding, SearchOptions):
    """Everything that decides a run's result, apart from the model, the prompt and the verifier."""

    def __init__(self, method: str | Method = "s3", **overrides: Unpack[AllKwargs]) -> None:
        row = find_method(method)
        _refuse_unused(row, overrides)
        values: dict[str, Any] = {**row.defaults, **overrides}
        sizes = overlaid({**_DEFAULTS, **row.defaults}, overrides)
        values["block_length"] = sizes["block_length"]
        for name in {"block_length", "steps"} - active(row, values):  # the largest that can occur
            values[name] = sizes["gen_length"]
        for name, value in values.items():
            _check_name(name, value)
        try:
            super().__init__(**{"method": row.name, **values})
        except ValidationError as error:
            raise SettingsError(_message(error)) from None
        self._row = row
        self._check_together()
        several = self.size * self.children * max(self.screen, 1) > 1
        if self.temperature == 0 and row.needs_chance and several:
            warnings.warn(
                f"temperature=0 with method={row.name!r}: all children of a particle are equal, "
                "so the search changes nothing; set a temperature above 0 or method='baseline'",
                TemperatureWarning,
                stacklevel=2,
            )

    def _check_together(self) -> None:
        """Refuse values that are allowed alone and cannot run together."""
        row, selection, where = self._row, self.selection, f"method={self.method!r}"
        kind, filled = SELECTIONS[selection], self.child_sampling == "filled"
        equal_weights = (self.resampling and self.ess_threshold is None) or row.weight == "none"
        chosen = selection != row.defaults.get("selection")
        mistakes = {
            **self.misfits(),
            **self.mistakes_in_screening(),
            f"resampling=None is not allowed in {where}, which resamples; choose one of: "
            f"{', '.join(RESAMPLERS)}, or method='tilting', which keeps all to the end": (
                self.resampling is None and (row.branches or "resampling" in row.defaults)
            ),
            f"child_sampling='filled' and ess_threshold={self.ess_threshold} exclude each other: below "
            "the threshold every particle continues as one of its own children, and 'filled' may "
            "leave it none; choose child_sampling='distinct' or no threshold": (
                filled and self.ess_threshold is not None
            ),
            f"child_sampling='filled' changes nothing in {where}: only a method that branches can "
            "fill a step; leave it out": filled and not row.branches,
            f"selection={selection!r} needs scores, and {where} never calls the verifier; choose "
            "another selection, or verified_best_of_k or s3 as method": (
                kind.needs_scores and row.scored == "never"
            ),
            f"selection={selection!r} changes nothing in {where}: its survivors carry equal "
            "weights; choose 'majority', or give an ess_threshold": (
                chosen and kind.needs_weights and equal_weights
            ),
            f"careless={self.careless} changes nothing with reveal={self.reveal!r}; give reveal="
            "'threshold', or leave it out": self.careless > 0 and self.reveal != "threshold",
            **self.mistakes_in_stopping(kind.votes),
        }
        for mistake in (each for each, made in mistakes.items() if made):
            raise SettingsError(mistake)

    @classmethod
    def for_model(
        cls, model: Model, method: str | Method = "s3", task: str | None = None,
        **overrides: Unpack[AllKwargs],
    ) -> Settings:  # fmt: skip
        """What the model recommends for a method (and a task), with some settings overridden."""
        return cls.recommended(model.defaults, method, task, **overrides)

    @classmethod
    def recommended(
        cls, defaults: Defaults, method: str | Method = "s3", task: str | None = None,
        **overrides: Unpack[AllKwargs],
    ) -> Settings:  # fmt: skip
        """As `for_model`, for a model that is not loaded; what the method does not use is left out."""
        row = find_method(method)
        return cls.over(row, defaults.layers(row.names, task), {**overrides})

    @classmethod
    def over(
        cls, row: Method, layers: Sequence[Mapping[str, Any]], changes: Mapping[str, Any]
    ) -> Settings:
        """Changes over layers of settings, which are taken as far as they count beside them."""
        values: dict[str, Any] = reduce(overlaid, (*layers, changes), {})
        counting = active(row, values).union(changes)
        return cls(row, **{name: value for name, value in values.items() if name in counting})

    @property
    def active(self) -> frozenset[str]:
        """The settings that count in this run."""
        return active(self._row, dict(self))

    def to_json(self) -> dict[str, Any]:
        """The settings as a flat dictionary: the method's name, and all that counts."""
        data: dict[str, Any] = {"method": self.method}
        if METHODS.get(self.method) != self._row:  # it is not registered: described in full
            data["row"] = self._row.to_json()
        counting = self.active
        return {**data, **{name: value for name, value in self if name in counting}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Settings from a flat dictionary; a key that is no setting is an error."""
        if not isinstance(data, Mapping):
            raise SettingsError(f"settings={data!r} is not allowed; give a dictionary of settings")
        values = {_RENAMED.get(name, name): value for name, value in data.items()}
        block, length = values.get("block_length"), values.get("gen_length")
        if isinstance(block, int) and isinstance(length, int):  # older records have longer blocks
            values["block_length"] = min(block, length)
        method, row = values.pop("method", "s3"), values.pop("row", None)
        if row is not None:
            try:
                sets = {n: frozenset(row[n]) for n in ("uses", "fixed") if n in row}
                method = Method(name=method, **{**row, **sets})
            except TypeError as error:
                raise SettingsError(f"row={short_repr(row)} is not allowed: {error}") from None
        return cls(method, **values)

    def replace(self, **changes: Any) -> Settings:
        """A copy with some settings changed; another method starts from its own settings."""
        row, base = self._row, self.to_json()
        if "method" in changes:
            row = find_method(changes.pop("method"))
            base = {name: value for name, value in base.items() if name not in SEARCH}
        return self.over(row, [base], changes)

    def adapted(self, **changes: Any) -> Settings:
        """A copy for a part of a search, unchecked: other values, and other blanks of the row."""
        structure = {n: changes.pop(n) for n in [*changes] if n not in _DEFAULTS}
        copy = self.model_copy(update=changes)
        copy._row = dataclasses.replace(self._row, **structure)
        return copy

    def effective(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the changes that would change something here, all made together."""
        return only_used(self._row, {**self.to_json(), **changes}, changes)

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
        starts = self.size if self.stop_when == "agreed" else 1  # each round begins anew
        if self._row.ensemble == "block_lengths":
            starts = min(self.size, len(block_lengths(self.gen_length, self.steps)))
        most = cost.most_passes(self, self.most_steps(block), starts)
        bound = most if self.budget is None else self.budget
        return bound if self.has_rounds else min(bound, most)

    def nfe_formula(self) -> str:
        """A formula for the most forward passes in T steps; equal and finished answers are saved."""
        return cost.formula(self)

    def __repr__(self) -> str:
        plain = dict(type(self)(self._row))
        changed = [f"{n}={v!r}" for n, v in self.to_json().items() if n in plain and v != plain[n]]
        return f"Settings({', '.join([repr(self.method), *changed])})"

    __str__ = __repr__


DECODING = frozenset(Decoding.model_fields)
_DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


def active(row: Method, values: Mapping[str, Any]) -> frozenset[str]:
    """The settings that count in a method with these values."""
    used = (row.uses | DECODING) - row.fixed
    current = {**_DEFAULTS, **row.defaults, **values}
    for name, others in (*BESIDE.items(), *row.beside.items()):
        if not any(current[o] in some if some else current[o] for o, some in others.items()):
            used -= {name}
            current[name] = row.defaults.get(name, _DEFAULTS[name])
    return used


def only_used(method: str | Method, values: Mapping[str, Any], of: Any = None) -> dict[str, Any]:
    """Those of the values (or of some of them) that count in the method."""
    counting = active(find_method(method), values)
    return {name: value for name, value in (of or values).items() if name in counting}


def _refuse_unused(row: Method, overrides: Mapping[str, Any]) -> None:
    """The one check of whether settings count: the method uses them, beside what else is given."""
    for name in overrides:
        if name not in _DEFAULTS or name == "method":
            raise SettingsError(unknown_name("setting", name, _DEFAULTS))
    for name in overrides.keys() - active(row, overrides):
        needed = "leave it out, or choose a method that uses it (s3dlm list methods)"
        if name in (row.uses | DECODING) - row.fixed:
            others = {**BESIDE.get(name, {}), **row.beside.get(name, {})}
            ways = [f"{n}={' or '.join(some)}" if some else n for n, some in others.items()]
            needed = f"it counts only beside {', or '.join(ways)}; give that too, or leave it out"
        value = short_repr(overrides[name])
        raise SettingsError(f"{name}={value} changes nothing in method={row.name!r}: {needed}")


def schema() -> dict[str, dict[str, Any]]:
    """Every setting by name as a flat JSON schema, with its group and whether forms show it."""
    chosen = {name: {"enum": list(names)} for name, names in CHOICES.items()}
    return {name: {**made, **chosen.get(name, {})} for name, made in _properties().items()}


@cache
def _properties() -> dict[str, dict[str, Any]]:
    found = {}
    for name, made in Settings.model_json_schema()["properties"].items():
        options = made.pop("anyOf", [{}])
        group = "decoding" if name in DECODING else "search"
        found[name] = {**made, **options[0], "nullable": len(options) > 1, "group": group}
    return found


def allowed(name: str) -> str:
    """What a setting may be, in words."""
    if name in CHOICES:
        return "one of: " + ", ".join(CHOICES[name])
    one = schema()[name]
    kind = {"integer": "a whole number", "number": "a number", "string": "a name"}[one["type"]]
    top = f"to {one['maximum']}" if "maximum" in one else "up"
    return f"{kind} from {one['minimum']:g} {top}" if "minimum" in one else kind


def check(name: str, value: Any) -> Any:
    """The value of one setting in its type, or an error that says what is allowed."""
    _check_name(name, value)
    field = Settings.model_fields[name]
    annotated: Any = Annotated[(field.annotation, name, *field.metadata)]
    try:
        return TypeAdapter(annotated, config=FROZEN).validate_python(value)
    except ValidationError as error:
        raise SettingsError(_message(error, name)) from None


def _check_name(name: str, value: Any) -> None:
    if isinstance(value, str) and value not in CHOICES.get(name, (value,)):
        raise SettingsError(unknown_name(name, value, CHOICES[name]))


def _message(error: ValidationError, name: str = "") -> str:
    """Pydantic's first complaint in our words."""
    first = error.errors(include_url=False)[0]
    name = name or str(first["loc"][0])
    return f"{name}={short_repr(first['input'])} is not allowed; give {allowed(name)}"
