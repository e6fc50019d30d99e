from __future__ import annotations

import json
import warnings

import pytest

from s3dlm.errors import SettingsError
from s3dlm.models.defaults import Defaults
from s3dlm.search.methods import METHODS
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
    moved = Settings("best", hiding="unsure", hidden=0.3)
    assert moved.replace(hiding="all").method.hiding == "all"
    with pytest.raises(SettingsError, match=r"hidden=0\.4 changes nothing"):
        moved.replace(hiding="all", hidden=0.4)
    defaults = Defaults(settings={"*": {"hidden": 0.3}})
    assert Settings.recommended(defaults, "best", hiding="all").method.hiding == "all"
