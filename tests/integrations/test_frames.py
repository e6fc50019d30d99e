"""Rows for data frames agree with what they were made from."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import s3dlm
from s3dlm.evaluation import records
from s3dlm.evaluation.run import evaluate
from s3dlm.integrations import frames
from tests.evaluation.small_run import small_model, small_plan, write_task
from tests.fakes import events_of, fake_model

QUESTION = "Target: 24 Numbers: 6, 4, 12"
SETTINGS = s3dlm.Settings(gen_length=64, steps=8, particles=2, branching=2)


def test_frames_of_a_search() -> None:
    *steps, result = events_of(fake_model(), QUESTION, task="countdown", settings=SETTINGS)
    assert isinstance(result, s3dlm.Result)
    table = pd.DataFrame(frames.survivors(result))
    assert table["text"].tolist() == [one.text for one in result.survivors]
    assert table["chosen"].any()
    assert {"part.structure", "part.constraint"} <= set(table.columns)
    by_step = pd.DataFrame(frames.steps([*steps, result]))
    assert len(by_step) == 8
    assert by_step["nfe"].sum() + 1 == result.nfe
    children = pd.DataFrame(frames.children(steps))
    assert (children.groupby("step")["offspring"].sum() == 2).all()
    assert (children.groupby("step").size() == 4).all()


def test_frames_of_a_run(tmp_path: Path) -> None:
    task = write_task(tmp_path, 3)
    evaluate(small_model(), small_plan(task, seeds=(0,)), tmp_path / "run")
    table = pd.DataFrame(frames.runs(tmp_path / "run"))
    assert len(table) == len(records.read(tmp_path / "run")) == 9
    assert set(table["method"]) == {"baseline", "best_of_k", "s3"}
