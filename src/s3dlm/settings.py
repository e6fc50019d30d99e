"""A run as frozen plain data: validated when built, hashed the same on every machine.

`Settings(method="s3", particles=8, temperature=1.0)` names a method, overrides what that method has to
set (search/methods.py) and says how to decode. `Settings.for_model` starts from what the model
recommends. A setting that the method would ignore is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from s3dlm.declare import Declaration, declared, setting
from s3dlm.diffusion.schedule import (
    COUNTS,
    MOST_EDITS,
    POLICIES,
    REVEAL_RULES,
    REVEALS,
    SCHEDULE,
    block_lengths,
)
from s3dlm.errors import SettingsError, shown, unknown_name
from s3dlm.search.methods import METHODS, Method, find_method, method_settings

if TYPE_CHECKING:
    from s3dlm.models.base import Model
    from s3dlm.models.defaults import Defaults


PROBABILITIES = ("plain", "sampled")
END_TOKENS = ("allowed", "last", "never")
# Names in files that were recorded before they were renamed.
_RENAMED = {
    "hiding": "remask",
    "hidden": "remask_fraction",
    "fresh": "restart_fraction",
    "keep": "accept",
}


class TemperatureWarning(UserWarning):
    """A search was asked to compare children that are all equal."""


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Settings:
    """Everything that decides a run's result, apart from the model, the prompt and the verifier."""

    method: Method
    temperature: float = setting(0.7, "sampling temperature; 0 is greedy", low=0, high=100)
    gen_length: int = setting(128, "tokens of the answer", low=1, high=65536)
    steps: int = setting(64, "denoising steps, shared out over the blocks", low=1, high=65536)
    block_length: int = setting(
        64, "tokens per block, filled from left to right", low=1, high=65536
    )
    policy: str = setting(
        "low_confidence", "which masked positions are revealed first", choices=lambda: POLICIES
    )
    reveal: str = setting(
        SCHEDULE,
        "how many positions a step reveals: by LLaDA's or Dream's schedule, or all that a rule "
        "considers sure",
        choices=lambda: REVEALS,
    )
    reveal_threshold: float = setting(
        0.98, "with reveal=threshold: the least probability of a sampled token", low=0, high=1
    )
    reveal_factor: float = setting(
        1.0, "with reveal=factor: the n-th token needs a probability of 1 − factor/(n + 1)", low=0
    )
    reveal_bound: float = setting(
        0.1,
        "with reveal=entropy: the most that the entropies of one step may add up to, in nats",
        low=0,
    )
    top_k: int | None = setting(None, "sample among the k best tokens only", low=1)
    top_p: float | None = setting(
        None, "sample among the best tokens that hold this much probability", low=0, high=1
    )
    probabilities: str = setting(
        "plain",
        "which probability ranks a token: the model's plain one, or that of the distribution it is "
        "sampled from, after temperature, top_p and top_k, as in Dream",
        choices=lambda: PROBABILITIES,
    )
    position_temperature: float = setting(
        0.0,
        "above 0, positions are drawn by softmax(rank / temperature) and not taken in order; "
        "alg_temp in Dream",
        low=0,
    )
    guidance: float = setting(
        0.0,
        "classifier-free guidance away from what is likely without the prompt; above 0 a canvas "
        "takes two forward passes",
        low=0,
        high=100,
    )
    end_tokens: str = setting(
        "allowed",
        "tokens that end the answer: allowed, revealed after all others of their block, or never "
        "predicted",
        choices=lambda: END_TOKENS,
    )
    edit_threshold: float | None = setting(
        None,
        "block-causal models with a reveal rule: replace a revealed token of the open block by one "
        "whose probability is above this, as LLaDA2.1 does",
        low=0,
        high=1,
    )
    seed: int = setting(0, "same seed, same answer", low=0, high=2**63 - 1)

    def __init__(self, method: str | Method = "s3", **given: Any) -> None:
        row = find_method(method)
        for name in given:
            if name not in declarations():
                raise SettingsError(unknown_name("setting", name, declarations()))
        own = {name: value for name, value in given.items() if name in method_settings()}
        object.__setattr__(self, "method", row.configure(**own))
        for name, one in _decoding().items():
            object.__setattr__(self, name, one.check(given.get(name, one.default)))
        self._check_decoding(given)
        if self.temperature == 0 and self.method.size * self.method.children > 1:
            warnings.warn(
                f"temperature=0 with method={row.name!r}: all children of a particle are equal, "
                "so the search changes nothing; set a temperature above 0 or method='baseline'",
                TemperatureWarning,
                stacklevel=2,
            )

    def _check_decoding(self, given: Mapping[str, Any]) -> None:
        unused = _unused_decoding(self.method, self.reveal)
        for name in given:
            if name in unused:
                raise SettingsError(
                    f"{name}={given[name]!r} changes nothing in method={self.method.name!r}: "
                    f"{unused[name]}; leave it out"
                )
        for name in ("block_length", "steps"):  # the largest that can occur
            if name in unused:
                object.__setattr__(self, name, self.gen_length)
        blocks = -(-self.gen_length // self.block_length)
        if not blocks <= self.steps <= self.gen_length:
            raise SettingsError(
                f"steps={self.steps} cannot fill gen_length={self.gen_length} in {blocks} blocks of "
                f"{self.block_length}: every block needs a step and every step reveals a token; "
                f"choose steps from {blocks} to {self.gen_length}, or another block_length"
            )

    @classmethod
    def for_model(
        cls, model: Model, method: str | Method = "s3", task: str | None = None, **overrides: Any
    ) -> Settings:
        """What the model recommends for a method (and a task), with some settings overridden."""
        return cls.recommended(model.defaults, method, task, **overrides)

    @classmethod
    def recommended(
        cls,
        defaults: Defaults,
        method: str | Method = "s3",
        task: str | None = None,
        **overrides: Any,
    ) -> Settings:
        """As `for_model`, for a model that is not loaded."""
        row = find_method(method)
        # A recommendation for all methods leaves out what this one has no use for.
        usual = {**defaults.for_method(row.name, task)}
        changed = row
        for name, value in usual.items():  # some count only beside others
            with contextlib.suppress(SettingsError):
                changed = _changed(changed, {name: value})
        usual = only_used(_changed(changed, overrides), usual, reveal=overrides.get("reveal"))
        return cls(row, **{**usual, **overrides})

    def to_json(self) -> dict[str, Any]:
        """The settings as a flat dictionary: the method's name, and all that changes the run."""
        data: dict[str, Any] = {"method": self.method.name}
        if not _registered(self.method):
            data["row"] = {name: getattr(self.method, name) for name in _ROW}
        decoding = {name: getattr(self, name) for name in _decoding()}
        return {**data, **self.method.settings(), **only_used(self.method, decoding)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Settings from a flat dictionary; a key that is no setting is an error."""
        if not isinstance(data, Mapping):
            raise SettingsError(f"settings={data!r} is not allowed; give a dictionary of settings")
        given = {_RENAMED.get(name, name): value for name, value in data.items()}
        method, row = given.pop("method", "s3"), given.pop("row", None)
        if row is not None:  # a method that is not registered here is described in full
            if not isinstance(row, Mapping):
                raise SettingsError(f"row={shown(row)} is not allowed; give a dictionary")
            for name in row:
                if name not in _ROW:
                    raise SettingsError(unknown_name("row", name, _ROW))
            own = {name: given.pop(name) for name in method_settings() if name in given}
            method = Method(name=method, **row, **own)
        return cls(method, **given)

    def replace(self, **changes: Any) -> Settings:
        """A copy with some settings changed; another method starts from its own settings."""
        if "method" in changes:
            other = self.replace_method(find_method(changes.pop("method")))
            return other.replace(**changes) if changes else other
        row = _changed(self.method, changes)
        usual = only_used(row, self.to_json(), reveal=changes.get("reveal"))
        return Settings.from_json({**usual, **changes})

    def effective(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the changes that would change something here, all made together."""
        row = _changed(self.method, changes)
        return only_used(row, changes, reveal=changes.get("reveal", self.reveal))

    def replace_method(self, method: Method) -> Settings:
        """A copy that runs another method, or the same with other settings, and decodes alike."""
        decoding = {name: getattr(self, name) for name in _decoding()}
        own = only_used(self.method, decoding)  # the others hold nothing that anybody asked for
        return Settings(method, **only_used(method, own))

    def hash(self) -> str:
        """Twelve hex digits that are equal for equal settings, on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def reveal_number(self) -> float:
        """The number that the reveal rule needs; 0 for a schedule, which needs none."""
        if self.reveal not in REVEAL_RULES:
            return 0.0
        return float(getattr(self, REVEAL_RULES[self.reveal].setting))

    @property
    def most_nfe(self) -> int:
        """The most forward passes that a run can take with a model that has no blocks of its own."""
        return self.most_nfe_in_blocks(None)

    def most_nfe_in_blocks(self, block: int | None) -> int:
        """The most forward passes that a run can take with a model of such blocks, if it has any."""
        method, starts = self.method, 1
        if method.ensemble == "block_lengths":
            starts = min(method.size, len(block_lengths(self.gen_length, self.steps)))
        once = starts + self._most_steps(block) * method.size * method.children
        passes = 2 if self.guidance else 1
        most = passes * (method.rounds + 1) * method.sweeps * once
        if method.budget is None:
            return most
        return method.budget if method.has_rounds else min(method.budget, most)

    def _most_steps(self, block: int | None) -> int:
        """A block-causal model fills its first and its last block whole, may reveal the first token
        of a block by itself, and may edit what it has filled."""
        if block is None:
            return self.steps
        length, size = self.gen_length + block - 1, min(self.block_length, block)
        pace = max(1, min(size, self.steps * size // self.gen_length))
        blocks = -(-length // block) + 1
        edits = 0 if self.edit_threshold is None else MOST_EDITS * blocks
        return min(length, (-(-length // size) + 1) * pace) + blocks + edits

    def __repr__(self) -> str:
        usual = {name: one.default for name, one in _decoding().items()}
        usual |= METHODS[self.method.name].settings() if self.method.name in METHODS else {}
        changed = {
            name: value
            for name, value in self.to_json().items()
            if name not in ("method", "row") and value != usual.get(name)
        }
        parts = [repr(self.method.name), *(f"{name}={value!r}" for name, value in changed.items())]
        return f"Settings({', '.join(parts)})"


# What makes a row: all of a method but its settings and its description.
_ROW = tuple(
    field.name
    for field in dataclasses.fields(Method)
    if "setting" not in field.metadata and field.name not in ("name", "summary", "source")
)


def _registered(method: Method) -> bool:
    known = METHODS.get(method.name)
    return known is not None and all(getattr(known, n) == getattr(method, n) for n in _ROW)


def _changed(method: Method, changes: Mapping[str, Any]) -> Method:
    """The method as the changes leave it, which may have no more use for other settings."""
    own = {name: value for name, value in changes.items() if name in method_settings()}
    return dataclasses.replace(method, **own)


def only_used(
    method: Method, settings: Mapping[str, Any], *, reveal: str | None = None
) -> dict[str, Any]:
    """Those of the settings that change something in the method, under the given reveal rule or the
    one among them; where neither names one, those that do under some rule."""
    if reveal is not None:
        reveal = _decoding()["reveal"].check(reveal)
    unused = {**method.unused(), **_unused_decoding(method, reveal or settings.get("reveal"))}
    return {name: value for name, value in settings.items() if name not in unused}


def _unused_decoding(method: Method, reveal: str | None) -> dict[str, str]:
    """The decoding settings that change nothing, each with the reason; None is any reveal rule."""
    reasons = {
        rule.setting: f"reveal={reveal!r} does not use it"
        for name, rule in REVEAL_RULES.items()
        if reveal not in (name, None)
    }
    if reveal in COUNTS:
        reasons["edit_threshold"] = f"reveal={reveal!r} leaves no steps for edits"
    if reveal in REVEAL_RULES:
        reasons["steps"] = f"with reveal={reveal!r} an answer takes as many steps as it needs"
        reasons["policy"] = f"reveal={reveal!r} chooses the positions"
        reasons["position_temperature"] = reasons["policy"]
    if method.ensemble == "block_lengths":
        reasons["block_length"] = "it decodes with several block lengths of its own"
    return reasons


@cache
def _decoding() -> dict[str, Declaration]:
    return declared(Settings, "decoding")


@cache
def declarations() -> dict[str, Declaration]:
    """Every setting, by name: those of the method first, then those of decoding."""
    return {**method_settings(), **_decoding()}
