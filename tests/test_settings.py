from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from mypy import api

from s3dlm.diffusion.decoding import overlaid
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
        ({"reveal": ["x"]}, ["reveal=['x']", "one of: schedule"]),
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


@pytest.mark.parametrize("changes", [{}, {"particles": 1, "branching": 4}])
def test_temperature_zero_warns_for_a_search_and_not_for_the_baseline(changes: Any) -> None:
    with pytest.warns(TemperatureWarning, match="children of a particle are equal"):
        Settings("s3", temperature=0.0, **changes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Settings("baseline", temperature=0)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_goes_to_json_and_back(method: str) -> None:
    settings = Settings(method, seed=3)
    assert Settings.from_json(json.loads(json.dumps(settings.to_json()))) == settings
    assert settings == Settings(method).replace(seed=3)
    assert settings.hash() == Settings(method, seed=3).hash() != Settings(method).hash()


def test_a_change_drops_what_it_makes_useless() -> None:
    """Without moves a share to hide has no meaning; only a share that the user gives is refused."""
    moved = Settings("revise", remask="unsure", remask_fraction=0.3)
    assert moved.replace(remask="all").remask == "all"
    with pytest.raises(SettingsError, match=r"remask_fraction=0\.4 changes nothing"):
        moved.replace(remask="all", remask_fraction=0.4)
    defaults = Defaults(settings={"*": {"remask_fraction": 0.3}})
    assert Settings.recommended(defaults, "revise", remask="all").remask == "all"
    assert Settings("hex").replace(method="s3").block_length == Settings("s3").block_length


def test_recommendations_that_count_only_together_are_kept() -> None:
    recommended = Defaults(
        settings={
            "*": {"selection": "verified"},
            "baseline": {"rounds": 2, "remask": "random"},
            "s3": {"budget": 64, "stop_when": "never"},
        }
    )
    baseline = Settings.recommended(recommended, "baseline")
    assert (baseline.rounds, baseline.remask) == (2, "random")
    assert Settings.recommended(recommended, "s3").stop_when == "never"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Method(weight="tilt", scored="never"), "weight='tilt' needs scores"),
        (lambda: Method(weight="twist", scored="at the end"), "scored='every step'"),
        (lambda: Method(population="two"), "population"),  # type: ignore[arg-type]
        (lambda: Settings.from_json({"method": "x", "row": {"foo": 1}}), "foo"),
        (lambda: Settings.from_json({"particle": 3}), "did you mean 'particles'"),
        (lambda: Settings("s3").replace(reveal=["x"]), "reveal"),
        (lambda: Settings("fk_max", resampling=None), "which resamples; choose one of: ssp"),
    ],
)
def test_what_cannot_run_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        make()


def test_names_of_older_records_are_read() -> None:
    old = {"method": "revise", "rounds": 1, "hiding": "random", "hidden": 0.25, "fresh": 0.5}
    new = Settings("revise", rounds=1, remask="random", remask_fraction=0.25, restart_fraction=0.5)
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
    out, _, status = api.run([str(file)])  # with the options of `make check`, whose cache it uses
    assert status == 1
    assert [int(line.split(":")[1]) for line in out.splitlines()[:-1] if "error" in line] == [3, 4]


@pytest.mark.parametrize(
    ("below", "above", "block_length"),
    [
        ({"block_length": 64}, {"gen_length": 96, "block_length": 40}, 40),  # what is given stays
        ({"gen_length": 96}, {"block_length": 40}, 40),
        ({"block_length": 64}, {"gen_length": 96}, 96),  # does not divide: one block
        ({"block_length": 32}, {"gen_length": 96}, 32),
        ({"gen_length": 96, "block_length": 40}, {"temperature": 0.5}, 40),
    ],
    ids=str,
)
def test_a_block_length_that_is_given_is_never_overwritten(
    below: dict[str, int], above: dict[str, float], block_length: int
) -> None:
    assert overlaid(below, above) == {**below, **above, "block_length": block_length}
