"""Every setting that a method's row lists can change what the method does; any other is refused."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest

import s3dlm
from s3dlm.diffusion.schedule import REVEAL_RULES
from s3dlm.errors import SettingsError
from s3dlm.search.methods import METHODS, SEARCH, Method
from s3dlm.settings import BESIDE, DECODING, Settings, only_used, schema
from tests.fakes import events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
# Two blocks, so that a block's end is not the end; texts short enough for many runs.
SMALL = {"gen_length": 24, "steps": 6, "block_length": 12, "temperature": 0.9, "lam": 8.0}
TEXTS = ("6+4=11. <answer>6+4<", "6*4=25. <answer>6*4<", "12+4=15 <answer>12-4<")
VALUES: dict[str, list[object]] = {
    "particles": [7], "branching": [5], "lam": [60.0], "verifier": ["checker", "paper"],
    "look_aheads": [1, 9], "screen": [16], "ess_threshold": [0.1, 0.95], "rounds": [0, 1, 3],
    "budget": [9, 3],  # one answer takes six passes here
    "remask_fraction": [0.1], "restart_fraction": [1.0], "remask_floor": [0.9], "patience": [1],
    "remask_below": [0.0], "careless": [0.1], "temperature": [3.0], "gen_length": [30],
    "steps": [12], "block_length": [24], "reveal_threshold": [0.2], "reveal_factor": [3.0],
    "reveal_bound": [4.0], "top_k": [2], "top_p": [0.5], "position_temperature": [1.0],
    "guidance": [1.0], "edit_threshold": [0.5], "memo": [0], "seed": [1], "decided_at": [0.8],
    **{name: rules["enum"] for name, rules in schema().items() if "enum" in rules},
}  # fmt: skip
# What a setting counts beside; in methods that never score a move may ask the verifier.
MOVED = {"rounds": 2, "remask": "random"}
COMPANIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("remask", "remask_fraction", "restart_fraction", "remask_below"), MOVED),
    "careless": {**MOVED, "reveal": "threshold"},
    "accept": {"rounds": 3, "remask": "random"},
    "patience": {"rounds": 3, "remask": "random", "accept": "metropolis"},
    "remask_floor": {"rounds": 2, "remask": "weighted"},
    **{rule.setting: {"reveal": name} for name, rule in REVEAL_RULES.items()},
}
JUDGED = {"rounds": 3, "remask": "random", "accept": "metropolis"}
# These need a block-causal model, a satisfied verifier, a decided vote: other tests show what they change.
ACCEPTED = {"edit_threshold", "memo", "stop_when", "decided_at"}
# Every seed gives the same texts, which here are all equal; tests/laws shows what the selection changes.
WITHOUT_CHANCE = {("unmaskfork", "seed"), ("unmaskfork", "selection")}
SEEDS = 40  # most pairs differ on the first


@cache
def outcome(method: str, seed: int, given: tuple[tuple[str, Any], ...]) -> dict[str, object]:
    usual = {**SMALL, "seed": seed, **({"gen_length": 16} if method == "vgb" else {})}
    base = only_used(method, {**usual, **dict(given)}, usual)  # a walk has many moves per token
    model = fake_model(TEXTS, noise=2.0, push=6.5)
    read = {"verifier": "checker"} if "screen" in dict(given) else {}  # by which partial texts are
    settings = Settings(method, **{**base, **read, **dict(given)})
    result = s3dlm.generate(model, QUESTION, task="countdown", settings=settings)
    data = dataclasses.asdict(result)
    return {name: data[name] for name in ("text", "survivors", "nfe", "stopped")}


def changes(method: str, setting: str, beside: dict[str, Any]) -> bool:
    """Whether a value changes an outcome; all are tried on a seed before the next one."""
    usual = getattr(Settings(method, **beside), setting)
    tried = [{**beside, setting: value} for value in VALUES[setting] if value != usual]
    allowed = [tuple(values.items()) for values in tried if accepted(method, values)]
    base = tuple(beside.items())
    return any(
        outcome(method, seed, values) != outcome(method, seed, base)
        for seed in range(SEEDS)
        for values in allowed
    )


def accepted(method: str, values: dict[str, Any]) -> bool:
    try:
        Settings(method, **{**only_used(method, {**SMALL, **values}, SMALL), **values})
    except SettingsError:
        return False
    return True


@pytest.mark.parametrize("method", METHODS)
def test_a_setting_changes_what_a_method_does_or_is_refused(method: str) -> None:
    row = METHODS[method]
    for setting in schema().keys() - {"method"}:
        if setting in (row.uses | DECODING) - row.fixed:
            assert has_an_effect(method, setting), (method, setting)
        else:
            said = f"^{setting}=.* changes nothing in method={method!r}"
            with pytest.raises(SettingsError, match=said):
                Settings(method, **{setting: VALUES[setting][-1]})  # type: ignore[arg-type]


def has_an_effect(method: str, setting: str) -> bool:
    row = METHODS[method]
    beside = {**COMPANIONS.get(setting, {}), **(JUDGED if setting in row.beside else {})}
    if setting == "screen" and "verifier" not in row.beside:
        beside = {"verifier": "checker"}
    if (method, setting) == ("revise", "ess_threshold"):
        beside = {"child_sampling": "distinct"}
    without_chance = method == "greedy" or (method, setting) in WITHOUT_CHANCE
    if (method, setting) == ("vgb", "verifier"):
        return True  # it needs one that reads partial texts; tests/laws has two
    return setting in ACCEPTED or without_chance or changes(method, setting, beside)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_lists_what_it_uses_and_nothing_else(method: str) -> None:
    row = METHODS[method]
    assert row.uses <= SEARCH
    assert row.fixed <= DECODING
    assert set(row.beside) <= row.uses
    assert set(row.defaults) <= row.uses | row.fixed | {"selection"}
    assert set(schema()) - {"method"} == SEARCH | DECODING


@pytest.mark.parametrize("setting", BESIDE)
def test_a_setting_that_counts_beside_another_says_so(setting: str) -> None:
    value = VALUES[setting][-1]
    wrong = {"reveal": "threshold"} if "schedule" in str(BESIDE[setting]) else {}
    with pytest.raises(SettingsError, match=f"^{setting}=.* it counts only beside"):
        Settings("s3", **{**wrong, setting: value})  # type: ignore[arg-type]


def test_rounds_of_an_ensemble_keep_the_ensemble() -> None:
    """Every member of HEX's ensemble is there before the second round begins."""
    plain, repaired = (
        [*events_of(fake_model(), QUESTION, task="countdown", settings=Settings(
            "hex", gen_length=64, steps=16, rounds=rounds, **rest
        ))]
        for rounds, rest in ((0, {}), (2, {"remask": "from_doubt"}))
    )  # fmt: skip
    assert len(repaired) > len(plain)
    for one, two in zip(plain[:-1], repaired, strict=False):
        assert (one.tokens == two.tokens).all()


def test_a_method_can_be_given_as_a_value_and_travels_through_json() -> None:
    row = Method(
        name="mine",
        branches=True,
        weight="twist",
        defaults={"resampling": "systematic", "particles": 3},
    )
    settings = Settings(row, lam=5.0)
    assert settings.row.weight == "twist"
    back = Settings.from_json(settings.to_json())
    assert back == settings
    assert back.hash() == settings.hash()
    with pytest.raises(SettingsError, match="weight='twisst'"):
        Method(weight="twisst")
