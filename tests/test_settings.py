from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from s3dlm.errors import SettingsError
from s3dlm.models.defaults import Defaults
from s3dlm.search.methods import METHODS, Method
from s3dlm.settings import Settings, TemperatureWarning


def test_the_defaults_are_the_papers() -> None:
    settings = Settings()
    method = settings.method
    assert (method.name, method.particles, method.branching, method.lam) == ("s3", 4, 2, 1.0)
    assert (settings.gen_length, settings.steps, settings.block_length) == (128, 64, 64)
    assert settings.temperature > 0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"particles": 0}, ["particles=0", "from 1 to"]),
        ({"branching": -3}, ["branching=-3", "from 1 to"]),
        ({"particles": 2.5}, ["particles=2.5", "whole number"]),
        ({"particles": True}, ["particles=True"]),
        ({"lam": float("nan")}, ["lam=nan"]),
        ({"lam": -1.0}, ["lam=-1.0", "from 0 up"]),
        ({"temperature": "hot"}, ["temperature='hot'"]),
        ({"temperature": float("inf")}, ["temperature=inf"]),
        ({"steps": 1, "block_length": 32}, ["steps=1", "4 blocks", "from 4 to 128"]),
        ({"steps": 200}, ["steps=200", "from 2 to 128"]),
        ({"method": "s33"}, ["method='s33'", "did you mean 's3'", "best_of_k"]),
        ({"policy": "low-confidence"}, ["did you mean 'low_confidence'"]),
        ({"resampling": "spp"}, ["resampling='spp'", "did you mean 'ssp'"]),
        ({"selection": "vote"}, ["selection='vote'"]),
        ({"ess_threshold": 1.5}, ["ess_threshold=1.5", "from 0 to 1"]),
        ({"seed": -1}, ["seed=-1"]),
        ({"verifier": ""}, ["verifier=''", "a name"]),
        ({"lam": 10**400}, ["bits)", "from 0 up"]),
        ({"method": "x" * 900_000}, ["...", "best_of_k"]),
        ({"method": 3}, ["method=3", "a name such as"]),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(
    bad: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings(**bad)  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)
    assert len(str(caught.value)) < 600


def test_temperature_zero_warns_for_a_search_and_not_for_the_baseline() -> None:
    with pytest.warns(TemperatureWarning, match="children of a particle are equal"):
        Settings(temperature=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Settings(method="baseline", temperature=0)


def test_json_there_and_back_and_unknown_keys_refused() -> None:
    settings = Settings(method="twisted", lam=2.5, ess_threshold=0.5)
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    with pytest.raises(SettingsError, match="did you mean 'particles'"):
        Settings.from_json({"particle": 3})


def test_the_hash_is_stable_and_tells_settings_apart() -> None:
    assert Settings().hash() == Settings().hash()
    assert Settings().hash() != Settings(seed=1).hash()
    assert Settings().replace(seed=1) == Settings(seed=1)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_to_json_and_back(method: str) -> None:
    settings = Settings(method)
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_a_change_drops_what_it_makes_useless() -> None:
    """Without moves a share to hide has no meaning; only a share that the user gives is refused."""
    moved = Settings("best", remask="unsure", remask_fraction=0.3)
    assert moved.replace(remask="all").method.remask == "all"
    with pytest.raises(SettingsError, match=r"remask_fraction=0\.4 changes nothing"):
        moved.replace(remask="all", remask_fraction=0.4)
    defaults = Defaults(settings={"*": {"remask_fraction": 0.3}})
    assert Settings.recommended(defaults, "best", remask="all").method.remask == "all"


def test_recommendations_that_count_only_together_are_kept() -> None:
    recommended = Defaults(
        settings={
            "*": {"selection": "verified"},
            "baseline": {"rounds": 2, "remask": "random"},
            "s3": {"budget": 64, "stop_when": "never"},
        }
    )
    one = Settings.recommended(recommended, "baseline")
    assert (one.method.rounds, one.method.remask) == (2, "random")
    assert Settings.recommended(recommended, "s3").method.stop_when == "never"


def test_a_block_length_that_nobody_asked_for_is_not_taken_along() -> None:
    assert Settings("hex").replace(method="s3").block_length == Settings("s3").block_length


@pytest.mark.parametrize("make", [Settings("s3").replace, Settings])
def test_a_reveal_rule_of_the_wrong_type_is_refused(make: Any) -> None:
    with pytest.raises(SettingsError, match="reveal"):
        make(reveal=["x"])


def test_rows_that_cannot_run_are_refused() -> None:
    with pytest.raises(SettingsError, match="weight='tilt' needs scores"):
        Method(weight="tilt", scored="never")
    with pytest.raises(SettingsError, match="scored='every step'"):
        Method(weight="twist", scored="at the end")
    with pytest.raises(SettingsError, match="population"):
        Method(population="two")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="foo"):
        Settings.from_json({"method": "x", "row": {"foo": 1}})


def test_a_method_that_resamples_says_why_it_cannot_stop() -> None:
    with pytest.raises(SettingsError, match="which resamples; choose one of: ssp"):
        Settings("fk_difference", resampling=None)


def test_one_particle_that_branches_is_a_search() -> None:
    with pytest.warns(TemperatureWarning):
        Settings("s3", particles=1, branching=4, temperature=0.0)
    assert METHODS["s3"].configure(particles=1).nfe_formula() == "1 + T·N·b"
