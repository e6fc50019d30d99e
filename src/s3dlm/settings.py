"""A run as frozen plain data: checked when built, hashed the same on every machine.

`Settings(method="s3", particles=8, temperature=1.0)` names a method (search/methods.py), overrides
settings that it uses and says how to decode. `Settings.for_model` starts from what the model
recommends. A setting that would change nothing is refused. `schema()` feeds the HTTP schema, the
viewer's form and docs/settings.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from pydantic import PrivateAttr, TypeAdapter, ValidationError

from s3dlm.diffusion.decoding import Decoding, DecodingKwargs
from s3dlm.diffusion.schedule import COUNTS, REVEAL_RULES, block_lengths
from s3dlm.errors import SettingsError, shown, unknown_name
from s3dlm.search.methods import METHODS, MOVES, SEARCH, Beside, Method, find_method
from s3dlm.search.options import FROZEN, SearchKwargs, SearchOptions, setting
from s3dlm.search.resample import RESAMPLERS
from s3dlm.search.select import SELECTIONS

if TYPE_CHECKING:
    from s3dlm.models.base import Model
    from s3dlm.models.defaults import Defaults

# Names in files that were recorded before these settings were renamed.
_RENAMED = {"hiding": "remask", "hidden": "remask_fraction", "fresh": "restart_fraction"}
_RENAMED |= {"keep": "accept"}


_SCHEDULED, _ADAPTIVE = {"reveal": tuple(COUNTS)}, {"reveal": tuple(REVEAL_RULES)}
# What counts only beside others, in an order in which each comes after what it depends on.
BESIDE: Beside = {
    "stop_when": {"budget": ()},
    "remask": {"budget": (), "rounds": ()},
    "remask_fraction": {"remask": MOVES},
    "restart_fraction": {"remask": MOVES},
    "accept": {"remask": MOVES},
    "steps": _SCHEDULED,
    "policy": _SCHEDULED,
    "position_temperature": _SCHEDULED,
    **{rule.setting: {"reveal": (name,)} for name, rule in REVEAL_RULES.items()},
    "edit_threshold": _ADAPTIVE,
}


class TemperatureWarning(UserWarning):
    """A search was asked to compare children that are all equal."""


class SettingsKwargs(SearchKwargs, DecodingKwargs, total=False):
    """The settings as keywords of `generate`, `stream`, `infill` and `evaluate`."""


class AllKwargs(SettingsKwargs, total=False):
    """Those of `Settings`; for `generate` a verifier may also be a function."""

    verifier: str


class Settings(Decoding, SearchOptions):
    """Everything that decides a run's result, apart from the model, the prompt and the verifier."""

    method: str = setting("s3", "the search method")
    _row: Method = PrivateAttr()

    def __init__(self, method: str | Method = "s3", **overrides: Unpack[AllKwargs]) -> None:
        row = find_method(method)
        _refuse_unused(row, overrides)
        values: dict[str, Any] = {**row.defaults, **overrides}
        for name in {"block_length", "steps"} - active(row, values):  # the largest that can occur
            values[name] = values.get("gen_length", Decoding.model_fields["gen_length"].default)
        try:
            super().__init__(**{"method": row.name, **values})
        except ValidationError as error:
            raise SettingsError(_message(error)) from None
        self._row = row
        self._check_together()
        if self.temperature == 0 and self.size * self.children > 1:
            warnings.warn(
                f"temperature=0 with method={row.name!r}: all children of a particle are equal, "
                "so the search changes nothing; set a temperature above 0 or method='baseline'",
                TemperatureWarning,
                stacklevel=2,
            )

    def _check_together(self) -> None:
        """Refuse values that are allowed alone and cannot run together."""
        row, selection = self._row, SELECTIONS[self.selection]
        blocks = -(-self.gen_length // self.block_length)
        carried = self.resampling is None or self.ess_threshold is not None
        chosen = self.selection != row.defaults.get("selection")
        mistakes = {
            f"steps={self.steps} cannot fill gen_length={self.gen_length} in {blocks} blocks of "
            f"{self.block_length}: every block needs a step and every step reveals a token; choose "
            f"steps from {blocks} to {self.gen_length}, or another block_length": not (
                blocks <= self.steps <= self.gen_length
            ),
            f"resampling=None is not allowed in method={row.name!r}, which resamples; choose one of: "
            f"{', '.join(RESAMPLERS)}, or method='tilting', which keeps all to the end": (
                self.resampling is None and (row.branches or "resampling" in row.defaults)
            ),
            f"child_sampling='filled' and ess_threshold={self.ess_threshold} exclude each other: below "
            "the threshold every particle continues as one of its own children, and 'filled' may "
            "leave it none; choose child_sampling='distinct' or no threshold": (
                self.child_sampling == "filled" and self.ess_threshold is not None
            ),
            f"child_sampling='filled' changes nothing in method={row.name!r}: only a method that "
            "branches can fill a step; leave it out": (
                self.child_sampling == "filled" and not row.branches
            ),
            f"selection={self.selection!r} needs scores, and method={row.name!r} never calls the "
            "verifier; choose another selection, or verified_best_of_k or s3 as method": (
                selection.needs_scores and row.scored == "never"
            ),
            f"selection={self.selection!r} changes nothing in method={row.name!r}: its survivors "
            "carry equal weights; choose 'majority', or give an ess_threshold": (
                chosen and selection.needs_weights and not (carried and row.weight != "none")
            ),
        }
        for message, wrong in mistakes.items():
            if wrong:
                raise SettingsError(message)

    @classmethod
    def for_model(
        cls,
        model: Model,
        method: str | Method = "s3",
        task: str | None = None,
        **overrides: Unpack[AllKwargs],
    ) -> Settings:
        """What the model recommends for a method (and a task), with some settings overridden."""
        return cls.recommended(model.defaults, method, task, **overrides)

    @classmethod
    def recommended(
        cls,
        defaults: Defaults,
        method: str | Method = "s3",
        task: str | None = None,
        **overrides: Unpack[AllKwargs],
    ) -> Settings:
        """As `for_model`, for a model that is not loaded. A recommendation for all methods leaves out
        what this one has no use for."""
        row = find_method(method)
        return cls._over(row, defaults.for_method(row.kin, task), {**overrides})

    @classmethod
    def _over(cls, row: Method, base: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
        """Changes over what is taken as far as it counts beside them."""
        counting = active(row, {**row.defaults, **base, **changes})
        return cls(row, **{**{n: v for n, v in base.items() if n in counting}, **changes})

    @property
    def row(self) -> Method:
        """The method's row."""
        return self._row

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
        method, row = values.pop("method", "s3"), values.pop("row", None)
        if row is not None:
            allowed = Method().to_json()
            for name in row if isinstance(row, Mapping) else (row,):
                if name not in allowed:
                    raise SettingsError(unknown_name("row", name, allowed))
            sets = {n: frozenset(row[n]) for n in ("uses", "fixed") if n in row}
            method = Method(name=method, **{**row, **sets})
        return cls(method, **values)

    def replace(self, **changes: Any) -> Settings:
        """A copy with some settings changed; another method starts from its own settings."""
        row, base = self._row, self.to_json()
        if "method" in changes:
            row = find_method(changes.pop("method"))
            base = {name: value for name, value in base.items() if name not in SEARCH}
        return self._over(row, base, changes)

    def adapted(self, **changes: Any) -> Settings:
        """A copy for a part of a search, unchecked: other values, and other blanks of the row."""
        structure = {n: changes.pop(n) for n in [*changes] if n not in type(self).model_fields}
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
    def size(self) -> int:
        """Particles at the start of a search."""
        product = self.particles * self.branching
        return {"one": 1, "particles": self.particles, "product": product}[self._row.population]

    @property
    def children(self) -> int:
        """Children of each particle in a step that branches."""
        return self.branching if self._row.branches else 1

    @property
    def sweeps(self) -> int:
        """How often the whole search is run."""
        return self.branching if self._row.ensemble == "sweeps" else 1

    @property
    def has_rounds(self) -> bool:
        """Whether it goes on after its first search; one answer decoded again would be the same."""
        if self.remask == "all" and self._row.population == "one":
            return False
        return self.budget is not None or self.rounds > 0

    def survivors(self, step: int, steps: int) -> int:
        """Particles kept after a step, counted from 0."""
        if not self._row.pruned:
            return self.size
        halvings = max(0, self.size.bit_length() - 2)  # at least two are left to vote
        return self.size >> min(halvings, halvings * 2 * (step + 1) // steps)

    @property
    def most_nfe(self) -> int:
        """The most forward passes that a run can take with a model that has no blocks of its own."""
        return self.most_nfe_in_blocks(None)

    def most_nfe_in_blocks(self, block: int | None) -> int:
        """The most forward passes that a run can take with a model of such blocks, if it has any."""
        starts = 1
        if self._row.ensemble == "block_lengths":
            starts = min(self.size, len(block_lengths(self.gen_length, self.steps)))
        once = starts + self.most_steps(block) * self.size * self.children
        most = (2 if self.guidance else 1) * (self.rounds + 1) * self.sweeps * once
        if self.budget is None:
            return most
        return self.budget if self.has_rounds else min(self.budget, most)

    def nfe_formula(self) -> str:
        """A formula for the most forward passes in T steps; equal and finished answers are saved."""
        formula = {
            "none": "1 + T" if self.size * self.children == 1 else "1 + T·N·b",
            "sweeps": "b·(1 + T·N)",
            "block_lengths": "5 + T·N·b",
        }[self._row.ensemble]
        if self.budget is not None:
            return str(self.budget)
        return f"{self.rounds + 1}·({formula})" if self.rounds else formula

    def __repr__(self) -> str:
        usual = dict(type(self)(self._row))
        changed = [f"{n}={v!r}" for n, v in self.to_json().items() if n in usual and v != usual[n]]
        return f"Settings({', '.join([repr(self.method), *changed])})"

    __str__ = __repr__


DECODING = frozenset(Decoding.model_fields)
_DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}


def active(row: Method, values: Mapping[str, Any]) -> frozenset[str]:
    """The settings that count in a method with these values."""
    used = (row.uses | DECODING) - row.fixed
    current = {**_DEFAULTS, **row.defaults, **values}
    for name, others in (*BESIDE.items(), *row.beside.items()):
        if name in used and not _any_of(others, current):
            used -= {name}
            current[name] = row.defaults.get(name, _DEFAULTS[name])
    return used


def _any_of(others: Mapping[str, tuple[Any, ...]], values: Mapping[str, Any]) -> bool:
    return any(values[name] in some if some else values[name] for name, some in others.items())


def only_used(
    method: str | Method, values: Mapping[str, Any], of: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Those of the values (or of some of them) that count in the method."""
    counting = active(find_method(method), values)
    return {name: value for name, value in (of or values).items() if name in counting}


def _refuse_unused(row: Method, overrides: Mapping[str, Any]) -> None:
    """The one check of whether settings count: they are used by the method, beside what is given."""
    for name in overrides:
        if name not in _DEFAULTS or name == "method":
            raise SettingsError(unknown_name("setting", name, _DEFAULTS))
    counting = active(row, overrides)
    for name, value in overrides.items():
        if name in counting:
            continue
        needed = "leave it out, or choose a method that uses it (s3dlm list methods)"
        if name in (row.uses | DECODING) - row.fixed:
            rules = [rules[name] for rules in (BESIDE, row.beside) if name in rules]
            others = {other: some for rule in rules for other, some in rule.items()}
            ways = [f"{n}={' or '.join(some)}" if some else n for n, some in others.items()]
            needed = f"it counts only beside {', or '.join(ways)}; give that too, or leave it out"
        raise SettingsError(
            f"{name}={shown(value)} changes nothing in method={row.name!r}: {needed}"
        )


@cache
def schema() -> dict[str, dict[str, Any]]:
    """Every setting by name as a JSON schema: type, bounds, enum, default, description, nullable,
    group ("search" or "decoding") and whether forms show it."""
    found = {}
    for name, made in Settings.model_json_schema()["properties"].items():
        options = made.pop("anyOf", [{}])
        group = "decoding" if name in DECODING else "search"
        found[name] = {**made, **options[0], "nullable": len(options) > 1, "group": group}
    found["method"]["enum"] = list(METHODS)
    return found


def allowed(name: str) -> str:
    """What a setting may be, in words."""
    one = schema()[name]
    if "enum" in one:
        return "one of: " + ", ".join(one["enum"])
    kind = {"integer": "a whole number", "number": "a number", "string": "a name"}[one["type"]]
    if "minimum" in one and "maximum" in one:
        return f"{kind} from {one['minimum']:g} to {one['maximum']:g}"
    return f"{kind} from {one['minimum']:g} up" if "minimum" in one else kind


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Settings.model_fields[name]
    annotated: Any = Annotated[(field.annotation, name, *field.metadata)]
    return TypeAdapter(annotated, config=FROZEN)


def check(name: str, value: Any) -> Any:
    """The value of one setting in its type, or an error that says what is allowed."""
    try:
        return _adapter(name).validate_python(value)
    except ValidationError as error:
        raise SettingsError(_message(error, name)) from None


def _message(error: ValidationError, name: str = "") -> str:
    """Pydantic's first complaint in our words."""
    first = error.errors(include_url=False)[0]
    name, value = name or str(first["loc"][0]), first["input"]
    if "enum" in schema()[name] and isinstance(value, str):
        return unknown_name(name, value, schema()[name]["enum"])
    return f"{name}={shown(value)} is not allowed; give {allowed(name)}"
