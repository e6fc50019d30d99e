"""What tests of evaluation share: a checkpoint, and a run that all who only read have in common."""

import dataclasses
from pathlib import Path

import pytest

from s3dlm.evaluation import frames, plan, report
from s3dlm.evaluation.frames import RecordedRun
from s3dlm.evaluation.plan import Plan
from s3dlm.evaluation.run import evaluate
from s3dlm.verifier.calibration import AnswerCalibration, Calibrations, Fit
from tests.evaluation.small_run import (
    HOSTILE,
    READ_LABELS,
    defaults,
    small_model,
    small_plan,
    write_task,
)
from tests.models.checkpoints import LLADA, edit_json, llada_tensors, write_folder


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint that has LLaDA's shape but not its size."""
    config = LLADA | {"max_sequence_length": 4096, "n_layers": 1}
    folder = tmp_path_factory.mktemp("models") / "a-folder-of-another-name"
    write_folder(folder, config, llada_tensors(config))
    edit_json(folder / "tokenizer_config.json", model_max_length=4096)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its report: a main comparison, both sweeps, one trace and a hostile question."""
    place = tmp_path_factory.mktemp("report")
    task = write_task(place, 6, {1: {"question": HOSTILE}})
    main, axes = small_plan(task, READ_LABELS, traces=1), {"particles": [1, 2], "branching": [1, 2]}
    more = [
        *plan.grid([task], ["best_of_k", "s3"], defaults, sweeps=axes),
        *plan.grid([task], ["baseline", "s3"], defaults, sweeps={"block_length": [8, 24]}),
    ]
    conditions = plan.unique([*main.conditions, *plan.as_sweep(more, 4)])
    whole = Plan(conditions, main.problems, main.seeds, traces=1)
    weights = AnswerCalibration(intercept=-2.0, score=3.0, agreement=1.0, confidence=0.5)
    sure = Calibrations((Fit(task, "s3", "paper", weights),))
    evaluate(dataclasses.replace(small_model(), calibrations=sure), whole, place / "run")
    report.write(place / "run")
    return place / "run"


@pytest.fixture
def run(folder: Path) -> RecordedRun:
    return frames.read(folder)
