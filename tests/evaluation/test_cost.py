"""Costs before a run: the arithmetic, the published run it is calibrated on, and `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from s3dlm.cli.main import app
from s3dlm.evaluation.cost import MODEL_SHAPES, estimate, shares
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.run import evaluate
from s3dlm.settings import Settings
from tests.evaluation.small_run import small_model, small_plan, write_task

LLADA = "GSAI-ML/LLaDA-8B-Instruct"


def cost(settings: Settings, samples: int, gpu: str = "H100", **more: Any) -> Any:
    condition = Condition("gsm8k", settings.method, settings)
    return estimate(LLADA, [condition], 1, samples, gpu, **more)


def test_it_meets_the_published_run_it_is_calibrated_on() -> None:
    """LLaDA's authors: GSM8K, 512 tokens, 512 steps, eight A100, three hours. And their models' sizes."""
    settings = Settings("baseline", gen_length=512, steps=512, block_length=512)
    assert 2.5 < cost(settings, 1319, "A100")["costs"][1]["seconds"] / 3600 < 3.5
    for name, parameters in ((LLADA, 8.0e9), ("Dream-org/Dream-v0-Instruct-7B", 7.6e9)):
        assert MODEL_SHAPES[name].parameters == pytest.approx(parameters, rel=0.02)
    for name in (f"{LLADA}/", f"{LLADA}@0123abc"):  # other ways to write a name
        found = estimate(name, [Condition("gsm8k", "baseline", settings)], 1, 10, "H100")
        assert found["costs"] == cost(settings, 10)["costs"]


def test_cards_share_the_work_and_the_bill() -> None:
    found = cost(Settings("s3"), 6400)
    one, eight, many = found["costs"]
    assert one["seconds"] == pytest.approx(8 * eight["seconds"])
    assert one["seconds"] == pytest.approx(64 * many["seconds"])
    assert one["dollars"] == pytest.approx(many["dollars"])
    assert found["nfe"] == 6400 * 513
    half = cost(Settings("s3"), 6400, measured={"s3": 0.5})["costs"][0]
    assert half["seconds"] == pytest.approx(one["seconds"] / 2)
    dear = cost(Settings("s3"), 6400, "H100=5")["costs"][0]
    assert dear["dollars"] == pytest.approx(2 * one["dollars"])
    assert cost(Settings("s3"), 1, "RTX4090")["fits"]


def test_a_dry_run_names_the_run_it_measured(tmp_path: Path) -> None:
    task, out = write_task(tmp_path, 3), tmp_path / "run"
    evaluate(small_model(), small_plan(task, ("s3",), seeds=(0,)), out)
    assert 0 < shares(out)["s3"] < 1
    words = ["eval", "--task", task, "--method", "s3", "--out", str(out), "--dry-run"]
    said = CliRunner().invoke(app, words).output
    assert f"3 samples, about (measured in {out})" in said
    assert "times can be estimated for" in said


def test_dry_runs_load_nothing() -> None:
    words = ["--model", LLADA, "--task", "math500", "--dry-run", "--out", "nowhere"]
    shown = CliRunner().invoke(app, ["eval", "--method", "s3,revise", *words])
    assert "math500, s3: 500 samples, at most 513 passes each, 1.3 h" in shown.output
    plain = CliRunner().invoke(app, ["reproduce", *words, "--size", "full", "--json"])
    found = json.loads(plain.output)
    assert {row["method"] for row in found["conditions"]} >= {"greedy", "s3", "s3_verified"}
    assert [line["gpus"] for line in found["costs"]] == [1, 8, 64]
