"""Costs before a run: the arithmetic, the published run it is calibrated on, and `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from s3dlm.cli.main import app
from s3dlm.evaluation.cost import MODEL_SHAPES, estimate
from s3dlm.evaluation.plan import Condition
from s3dlm.settings import Settings
from tests.evaluation.small_run import write_task

LLADA = "GSAI-ML/LLaDA-8B-Instruct"


def test_it_meets_the_published_run_it_is_calibrated_on() -> None:
    """LLaDA's authors: GSM8K, 512 tokens, 512 steps, eight A100, three hours. And their models' sizes."""
    settings = Settings("baseline", gen_length=512, steps=512, block_length=512)
    asked = [Condition("gsm8k", "baseline", settings)]
    found = estimate(LLADA, asked, 1319, 1)
    assert found.parts == {"baseline": (1319, 1319 * 513)}
    assert 2.5 < found.seconds["A100"] / 8 / 3600 < 3.5
    for name, parameters in ((LLADA, 8.0e9), ("Dream-org/Dream-v0-Instruct-7B", 7.6e9)):
        assert MODEL_SHAPES[name].parameters == pytest.approx(parameters, rel=0.02)
    for name in (f"{LLADA}/", f"{LLADA}@0123abc"):  # other ways to write a name
        assert estimate(name, asked, 1319, 1) == found


def test_dry_runs_load_nothing(tmp_path: Path) -> None:
    words = ["--model", LLADA, "--task", "math500", "--dry-run", "--out", "nowhere"]
    shown = CliRunner().invoke(app, ["eval", "--method", "s3,revise", *words])
    assert "s3: 500 samples, at most 513 passes each" in shown.output
    assert "on one GPU: A100 8.4 h, H100 2.6 h" in shown.output
    plain = CliRunner().invoke(app, ["reproduce", *words, "--size", "full", "--json"])
    found = json.loads(plain.output)
    assert {*found["parts"]} >= {"greedy", "s3", "s3, sweeps", "s3_verified"}
    assert {*found["seconds"]} == {"A100", "H100", "L40S", "RTX4090"}
    words = ["eval", "--task", write_task(tmp_path, 3), "--method", "s3", "--out", "x", "--dry-run"]
    assert "times are known for" in CliRunner().invoke(app, words).output
