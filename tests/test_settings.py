from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mypy import api

import s3dlm
from s3dlm.cli import main
from s3dlm.diffusion.decoding import overlaid
from s3dlm.models.base import Defaults
from s3dlm.search.methods import METHODS
from s3dlm.search.revise import Revise
from s3dlm.search.smc import S3
from s3dlm.settings import Settings, TemperatureWarning
from tests.fakes import fake_model

SMALL = Settings("s3", gen_length=8, steps=2, block_length=8)


def test_the_defaults_are_the_papers() -> None:
    settings = Settings("s3")
    assert settings.search == S3(particles=4, branching=2, lam=1)
    decoding = settings.decoding
    assert (decoding.gen_length, decoding.steps, decoding.block_length) == (128, 64, 64)
    assert decoding.temperature > 0


def test_revise_looks_often_and_has_one_round_more() -> None:
    revise = Revise(particles=4, look_aheads=16, rounds=1, selection="best_seen")
    assert Settings("revise") == Settings(revise, verifier="checker")
    assert Settings("restarts").search.look_aheads == 16  # type: ignore[attr-defined]


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


def test_another_method_keeps_how_to_decode_and_starts_from_its_own_settings() -> None:
    changed = Settings("revise", particles=9, seed=3).replace(method="s3")
    assert changed == Settings("s3", seed=3)
    assert Settings("hex").replace(method="s3").decoding.block_length == 64


def test_of_a_models_recommendations_those_count_that_the_method_has() -> None:
    defaults = Defaults(settings={"*": {"lam": 3.0, "seed": 7}, "s3": {"budget": 64}})
    assert Settings.recommended(defaults, "baseline") == Settings("baseline", seed=7)
    assert Settings.recommended(defaults, "s3", lam=5.0) == Settings("s3", lam=5, seed=7, budget=64)
    assert Settings.recommended(defaults, "s3_paper").search.budget == 64  # a preset is its method


@pytest.mark.parametrize(
    ("given", "block_length"),
    [
        ({"gen_length": 96}, 32),  # the one below divides it
        ({"gen_length": 81}, 81),  # it does not: one block
        ({"gen_length": 81, "block_length": 16}, 16),
        ({"block_length": 16}, 16),
    ],
)
def test_a_block_length_that_was_given_is_never_overwritten(given: Any, block_length: int) -> None:
    below = {"gen_length": 64, "block_length": 32}
    assert overlaid(below, given) == {**below, **given, "block_length": block_length}


def test_settings_are_frozen_and_travel() -> None:
    settings = Settings(S3(particles=8), temperature=1.0)
    assert (
        pickle.loads(pickle.dumps(settings))
        == settings
        == Settings("s3", particles=8, temperature=1)
    )
    assert len({settings, Settings("s3", particles=8, temperature=1.0)}) == 1
    with pytest.raises(AttributeError, match="are frozen"):
        settings.verifier = "checker"


def shell(question: str, *options: str) -> Callable[[], object]:
    def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["s3dlm", "generate", question, "-q", *options])
            main.main()

    return run


FEW: Any = {"gen_length": 8, "steps": 2, "block_length": 8}
QUESTION = "Start with 7. Step 1: Add 5."


@pytest.mark.parametrize(
    ("ask", "times"),
    [
        (lambda: s3dlm.generate(fake_model(), "q", **FEW), 1),
        (lambda: s3dlm.generate(fake_model(), "q", verifier="checker", budget=9, **FEW), 1),
        (lambda: s3dlm.generate("tiny", QUESTION, grammar=["1", "2"], gen_length=32), 1),
        (lambda: s3dlm.generate(fake_model(), "q", settings=SMALL), 0),
        (shell(QUESTION), 1),
        (shell(QUESTION, "--regex", "[0-9]+"), 1),
    ],
    ids=["library", "verifier", "grammar", "given", "shell", "shell with a grammar"],
)
def test_settings_are_built_once_for_a_question(
    ask: Callable[[], object], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, original = list[str](), Settings.__init__

    def counted(self: Settings, *given: Any, **values: Any) -> None:
        made.append(repr((given, values)))
        original(self, *given, **values)

    monkeypatch.setattr(Settings, "__init__", counted)
    ask()
    assert len(made) == times, made


def test_a_type_checker_finds_wrong_settings(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "import s3dlm\n"
        "s3dlm.generate('tiny', 'x', method=s3dlm.S3(particles=3))\n"
        "s3dlm.generate('tiny', 'x', method=s3dlm.S3(particels=3))\n"
        "s3dlm.generate('tiny', 'x', method=s3dlm.S3(particles='many'))\n"
    )
    out, _, status = api.run([str(file)])  # with the options of `make check`, whose cache it uses
    assert status == 1
    assert [int(line.split(":")[1]) for line in out.splitlines()[:-1] if "error" in line] == [3, 4]


@pytest.mark.parametrize(
    ("model_block", "most"),
    [
        (None, 4),  # its own steps
        (4, 12),  # 11 positions: three blocks and one more of two steps, and four first tokens
        (8, 13),  # 15 positions
        (32, 25),  # 39 positions
    ],
)
def test_the_most_steps_that_a_model_with_blocks_takes(model_block: int | None, most: int) -> None:
    decoding = Settings("s3", gen_length=8, steps=4, block_length=4).decoding
    assert decoding.most_steps(model_block) == most
