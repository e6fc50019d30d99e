"""A model folder or a run folder names no verifier that runs code, loads weights or opens a connection."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm.errors import ModelError
from s3dlm.evaluation import calibrate, frames, series
from s3dlm.evaluation.run import evaluate
from s3dlm.models.folder import defaults_in
from s3dlm.verifier import names
from s3dlm.verifier.calibration import AnswerCalibration, Calibrations, Fit
from tests.evaluation.small_run import small_model, small_plan, write_task
from tests.fakes import fake_model

JUDGE = "judge:http://127.0.0.1:9/v1#x"


@pytest.mark.parametrize("name", [JUDGE, "reward:folder", "code", 3, ["paper"]])
def test_a_model_may_recommend_only_bundled_verifiers(tmp_path: Path, name: Any) -> None:
    for settings in ({"*": {"verifier": name}}, {"*": "checker!"}):
        (tmp_path / "s3dlm.json").write_text(json.dumps({"settings": settings}))
        with pytest.raises(ModelError, match="may name only paper or checker"):
            defaults_in(tmp_path)


def test_a_calibration_builds_no_verifier_that_the_user_did_not_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(names, "_loaded", lambda name: pytest.fail(name))
    weights = AnswerCalibration(0.0, 1.0, 1.0, 1.0, 0.5)
    calibrations = Calibrations((Fit("countdown", "best_of_k", JUDGE, weights),))
    model = dataclasses.replace(fake_model(), calibrations=calibrations)
    result = s3dlm.generate(
        model, "Target: 24 Numbers: 6, 4, 12", task="countdown", method="best_of_k", gen_length=24,
        steps=4, block_length=24,
    )  # fmt: skip
    assert result.p_correct is None


def test_a_report_builds_no_verifier_that_a_run_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = small_plan(write_task(tmp_path, 6))
    evaluate(small_model(), plan, tmp_path / "run")
    run = frames.read(tmp_path / "run")
    monkeypatch.setattr(names, "_loaded", lambda name: pytest.fail(name))

    def hostile(condition: Any) -> Any:
        settings = condition.settings
        if settings.search.verified == "never":
            return condition
        return dataclasses.replace(condition, settings=settings.replace(verifier=JUDGE))

    unscored = {
        hostile(condition): [dataclasses.replace(r, chosen_score=None) for r in records]
        for condition, records in run.records.items()
    }
    manifest = dataclasses.replace(run.manifest, conditions=tuple(unscored))
    foreign = dataclasses.replace(run, manifest=manifest, records=unscored)
    assert any(condition.settings.verifier == JUDGE for condition in unscored)
    for condition in unscored:
        if condition.settings.verifier == JUDGE:
            assert calibrate.answers(foreign, condition, "checker") == []
    assert len(series.finished_texts(foreign, "fixed"))
