"""Every setting changes what a method does, or is refused with a reason when the settings are built."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest

import s3dlm
from s3dlm.errors import SettingsError
from s3dlm.search.methods import METHODS, Method
from s3dlm.settings import Settings, declarations, only_used
from tests.fakes import fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
# Two blocks, so that a block's end is not the end; texts short enough for many runs.
SMALL = {"gen_length": 24, "steps": 6, "block_length": 12, "temperature": 0.9, "lam": 8.0}
TEXTS = ("6+4=11. <answer>6+4<", "6*4=25. <answer>6*4<", "12+4=15 <answer>12-4<")
VALUES: dict[str, list[object]] = {
    "particles": [7],
    "branching": [5],
    "lam": [60.0],
    "verifier": ["plus"],
    "look_aheads": [1, 9],
    "ess_threshold": [0.1, 0.95],
    "budget": [9, 3],  # one answer takes six passes here
    "rounds": [0, 3],
    "remask_fraction": [0.1],
    "restart_fraction": [1.0],
    "temperature": [3.0],
    "gen_length": [30],
    "steps": [12],
    "block_length": [24],
    "reveal_threshold": [0.2],
    "reveal_factor": [3.0],
    "reveal_bound": [4.0],
    "top_k": [2],
    "top_p": [0.5],
    "position_temperature": [1.0],
    "guidance": [1.0],
    "edit_threshold": [0.5],
    "seed": [1],
}
SEEDS = 40  # most pairs differ on the first


@cache
def outcome(method: str, seed: int, setting: str = "", value: object = None) -> dict[str, object]:
    given = {"seed": seed, **only_used(METHODS[method], SMALL)}
    settings = Settings(method, **{**given, setting: value} if setting else given)
    model = fake_model(TEXTS, noise=2.0, push=6.5)
    result = s3dlm.generate(model, QUESTION, task="countdown", settings=settings)
    data = dataclasses.asdict(result)
    return {name: data[name] for name in ("text", "survivors", "nfe")}


def changes(method: str, setting: str, values: list[object]) -> bool:
    """Whether one of the values changes an outcome; all are tried on a seed before the next one."""
    return any(
        outcome(method, seed, setting, value) != outcome(method, seed)
        for seed in range(SEEDS)
        for value in values
    )


@pytest.mark.parametrize("setting", declarations())
@pytest.mark.parametrize("method", METHODS)
def test_a_setting_changes_what_a_method_does_or_is_refused(method: str, setting: str) -> None:
    one = declarations()[setting]
    usual = getattr(METHODS[method], setting, SMALL.get(setting, one.default))
    tried = [value for value in one.choices or VALUES[setting] if value != usual]
    taken = [value for value in tried if accepted(method, setting, value)]
    assert not taken or changes(method, setting, taken)


def accepted(method: str, setting: str, value: object) -> bool:
    given = {**only_used(METHODS[method], SMALL), setting: value}
    try:
        Settings(method, **given)
    except SettingsError as error:
        said = str(error)
        return not (setting in said and (method in said or "exclude each other" in said))
    return True


@pytest.mark.parametrize(
    ("method", "changes", "reason"),
    [
        ("baseline", {"selection": "majority"}, "decodes one answer"),
        ("best_of_k", {"lam": 3.0}, "never calls the verifier"),
        ("baseline", {"particles": 4}, "decodes one answer"),
        ("best_of_k", {"selection": "verified"}, "never calls the verifier"),
        ("s3", {"selection": "weighted"}, "equal weights"),
        ("hex", {"block_length": 8}, "several block lengths of its own"),
        ("prism", {"ess_threshold": 0.5}, "shrinks on schedule"),
        ("verified_best_of_k", {"child_sampling": "filled"}, "that branches"),
    ],
)
def test_the_refusal_gives_the_reason(method: str, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Settings(method, **changes)


def test_lambda_counts_in_tilting() -> None:
    assert Settings("tilting", lam=3.0).method.lam == 3.0


def test_rounds_of_an_ensemble_keep_the_ensemble() -> None:
    """Every member of HEX's ensemble is there before the second round begins."""
    plain, repaired = (
        [*s3dlm.stream(fake_model(), QUESTION, task="countdown", settings=Settings(
            "hex", gen_length=64, steps=16, rounds=rounds, **rest
        ))]
        for rounds, rest in ((0, {}), (2, {"remask": "rest"}))
    )  # fmt: skip
    assert len(repaired) > len(plain)
    for one, two in zip(plain[:-1], repaired, strict=False):
        assert (one.tokens == two.tokens).all()


def test_a_method_can_be_given_as_a_value_and_travels_through_json() -> None:
    row = Method(name="mine", branches=True, weight="twist", resampling="systematic", particles=3)
    settings = Settings(row, lam=5.0)
    assert settings.method.weight == "twist"
    back = Settings.from_json(settings.to_json())
    assert back == settings
    assert back.hash() == settings.hash()
    with pytest.raises(SettingsError, match="weight='twisst'"):
        Method(weight="twisst")
