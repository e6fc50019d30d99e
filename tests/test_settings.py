from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from mypy import api

from s3dlm.errors import SettingsError
from s3dlm.models.defaults import Defaults
from s3dlm.search.methods import METHODS, Method
from s3dlm.settings import AllKwargs, Settings, SettingsKwargs, TemperatureWarning


def test_the_defaults_are_the_papers() -> None:
    settings = Settings()
    assert (settings.method, settings.particles, settings.branching, settings.lam) == (
        "s3",
        4,
        2,
        1,
    )
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
    assert moved.replace(remask="all").remask == "all"
    with pytest.raises(SettingsError, match=r"remask_fraction=0\.4 changes nothing"):
        moved.replace(remask="all", remask_fraction=0.4)
    defaults = Defaults(settings={"*": {"remask_fraction": 0.3}})
    assert Settings.recommended(defaults, "best", remask="all").remask == "all"


def test_recommendations_that_count_only_together_are_kept() -> None:
    recommended = Defaults(
        settings={
            "*": {"selection": "verified"},
            "baseline": {"rounds": 2, "remask": "random"},
            "s3": {"budget": 64, "stop_when": "never"},
        }
    )
    one = Settings.recommended(recommended, "baseline")
    assert (one.rounds, one.remask) == (2, "random")
    assert Settings.recommended(recommended, "s3").stop_when == "never"


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
    assert Settings("s3", particles=1).nfe_formula() == "1 + T·N·b"


def test_names_of_older_records_are_read() -> None:
    old = {"method": "best", "rounds": 1, "hiding": "random", "hidden": 0.25, "fresh": 0.5}
    new = Settings("best", rounds=1, remask="random", remask_fraction=0.25, restart_fraction=0.5)
    assert Settings.from_json({**old, "keep": "replace"}) == new


def test_the_keywords_are_the_settings() -> None:
    """`generate(**settings: Unpack[SettingsKwargs])` knows the names and types of the model."""
    hints = {"method": str, **get_type_hints(AllKwargs)}
    fields = get_type_hints(Settings)
    assert hints == {name: fields[name] for name in Settings.model_fields}
    assert "verifier" not in get_type_hints(SettingsKwargs)


def test_a_type_checker_finds_wrong_keywords(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "import s3dlm\n"
        "s3dlm.generate('tiny', 'x', particles=3)\n"
        "s3dlm.generate('tiny', 'x', particels=3)\n"
        "s3dlm.generate('tiny', 'x', particles='many')\n"
    )
    out, _, status = api.run([str(file), "--follow-imports=silent"])
    assert status == 1
    assert [int(line.split(":")[1]) for line in out.splitlines()[:-1] if "error" in line] == [3, 4]
