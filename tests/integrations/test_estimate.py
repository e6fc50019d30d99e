"""Costs before a run: the arithmetic, the published run it is calibrated on, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from s3dlm.cli.cost import register
from s3dlm.errors import RecordError, SettingsError
from s3dlm.estimate import CARDS, SHAPES, estimate, measured_share
from s3dlm.evaluation.run import evaluate
from s3dlm.settings import Settings
from tests.evaluation.small_run import small_model, small_plan, write_task

LLADA = "GSAI-ML/LLaDA-8B-Instruct"
app = typer.Typer()
register(app)
app.command("other")(lambda: None)  # so that `estimate` must be named


def test_it_meets_the_published_run_it_is_calibrated_on() -> None:
    """LLaDA's authors: GSM8K, 512 tokens, 512 steps, eight A100, three hours."""
    settings = Settings(method="baseline", gen_length=512, steps=512, block_length=512)
    (cost,) = estimate(LLADA, settings, 1319, card="A100", gpus=[8]).costs
    assert 2.5 < cost.seconds / 3600 < 3.5


def test_parameters_are_those_of_the_models() -> None:
    assert SHAPES[LLADA].parameters() == pytest.approx(8.0e9, rel=0.02)
    assert SHAPES["Dream-org/Dream-v0-Instruct-7B"].parameters() == pytest.approx(7.6e9, rel=0.02)


def test_cards_share_the_work_and_the_bill() -> None:
    found = estimate(LLADA, Settings(), 6400, gpus=[1, 8, 64])
    one, eight, many = found.costs
    assert one.seconds == pytest.approx(8 * eight.seconds) == pytest.approx(64 * many.seconds)
    assert one.dollars == pytest.approx(many.dollars)
    assert found.nfe == 6400 * 513
    half = estimate(LLADA, Settings(), 6400, gpus=[1], share=0.5)
    assert half.costs[0].seconds == pytest.approx(one.seconds / 2)


def test_a_small_card_does_not_hold_a_large_model() -> None:
    assert [estimate(LLADA, Settings(), 1, card=card).fits for card in CARDS] == [True] * 4
    assert not estimate(LLADA, Settings(), 1, card="RTX4090").weights_bytes * 1.6 < 24e9


def test_the_measured_nfe_is_read_from_a_run(tmp_path: Path) -> None:
    task = write_task(tmp_path, 3)
    evaluate(small_model(), small_plan(task, ("s3",), seeds=(0,)), tmp_path / "run")
    assert 0 < measured_share(tmp_path / "run", "s3") < 1
    with pytest.raises(RecordError, match="has no record of method='baseline'"):
        measured_share(tmp_path / "run", "baseline")


def test_the_command_names_the_run_it_measured(tmp_path: Path) -> None:
    task = write_task(tmp_path, 2)
    evaluate(small_model(), small_plan(task, ("s3",), seeds=(0,)), tmp_path / "run")
    shown = CliRunner().invoke(app, ["estimate", "--run", str(tmp_path / "run")])
    assert "at most" not in shown.output
    assert f"measured in {tmp_path / 'run'}" in shown.output


@pytest.mark.parametrize("method", ["baseline", "hex", "best"])
def test_the_command_takes_every_method(method: str) -> None:
    plain = CliRunner().invoke(app, ["estimate", "--method", method, "--json"])
    assert plain.exit_code == 0, plain.output


def test_the_command() -> None:
    shown = CliRunner().invoke(app, ["estimate", "--task", "math500", "--gpus", "8"])
    assert "500 samples, at most 513 NFE" in shown.output
    plain = CliRunner().invoke(app, ["estimate", "--limit", "10", "--seeds", "3", "--json"])
    assert json.loads(plain.output)["samples"] == 30


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "tiny"}, "model='tiny' is unknown"),
        ({"card": "H10"}, "did you mean 'H100'"),
        ({"share": 0.0}, "share=0.0 is not allowed"),
        ({"dollars": -1.0}, "dollars=-1.0 is not allowed"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], said: str) -> None:
    given = {"model": LLADA, "settings": Settings(), "samples": 1, **arguments}
    with pytest.raises(SettingsError, match=said):
        estimate(**given)  # type: ignore[arg-type]
