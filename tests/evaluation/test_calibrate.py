"""p_correct: fitted on a run, kept beside the weights, and found again by every later search."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from s3dlm.cli.main import app
from s3dlm.engine import generate
from s3dlm.errors import ModelError
from s3dlm.evaluation import calibrate, frames, report
from s3dlm.evaluation.run import evaluate
from s3dlm.verifier import calibration, for_task, own
from s3dlm.verifier.calibration import (
    AnswerCalibration,
    Calibrations,
    Fit,
    calibrations_in,
    read_calibrations,
)
from tests.evaluation.small_run import FAKE, small_model, small_plan, write_task
from tests.fakes import fake_model

QUESTION = "Target: 22 Numbers: 6, 4, 12"
WEIGHTS = AnswerCalibration(intercept=-2.0, score=3.0, agreement=1.0, confidence=0.5)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    plan = small_plan(write_task(folder, 36), ("baseline", "s3"), traces=0)
    evaluate(small_model(), plan, folder / "run", batch_size=32)
    return folder / "run"


def calibrated(*fits: Fit):
    return dataclasses.replace(small_model(), calibrations=Calibrations(fits))


@pytest.mark.parametrize("method", ["baseline", "s3", "revise"])
def test_the_probability_is_the_curve_at_what_the_search_knows(method: str) -> None:
    verifier = "checker" if method == "revise" else "paper"
    fit = Fit("countdown", method, verifier, WEIGHTS)
    result = generate(calibrated(fit), QUESTION, task="countdown", method=method)
    plain = generate(small_model(), QUESTION, task="countdown", method=method)
    assert plain.p_correct is None
    assert (plain.text, plain.score, plain.nfe) == (result.text, result.score, result.nfe)
    score = result.score
    if method == "baseline":  # it never scores, so the text is scored for the probability alone
        assert score is None
        score = for_task("countdown").score(QUESTION, result.text, result.confidence).total
    assert result.p_correct == WEIGHTS.p_correct(score, result.agreement, result.confidence)


@pytest.mark.parametrize(
    ("how", "known"),
    [
        ({}, True),
        ({"method": "best_of_k"}, False),
        ({"task": "none"}, False),
        ({"verifier": "checker"}, False),
        ({"verifier": lambda prompt, text, confidence: 0.5}, False),
    ],
    ids=["its own", "method", "task", "verifier", "own verifier"],
)
def test_there_is_none_for_another_task_method_or_verifier(how: dict, known: bool) -> None:
    model = calibrated(Fit("countdown", "s3", "paper", WEIGHTS))
    result = generate(model, QUESTION, **{"task": "countdown", "method": "s3", **how})
    assert (result.p_correct is not None) is known


def test_without_an_answer_the_probability_is_zero() -> None:
    fits = Calibrations((Fit("gsm8k", "s3", "paper", WEIGHTS),))
    model = dataclasses.replace(fake_model(["I cannot say."]), defaults=FAKE, calibrations=fits)
    result = generate(model, "How many?", task="gsm8k", method="s3")
    assert (result.answer, result.p_correct) == (None, 0.0)


def test_a_run_is_calibrated_and_its_file_read_back(run: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(
        app, ["calibrate", str(run), "--out", str(tmp_path / "c.json"), "--json"]
    )
    assert said.exit_code == 0, said.output
    fits = json.loads(said.output)["fits"]
    assert {fit["method"] for fit in fits} == {"baseline", "s3"}
    for fit in fits:
        assert fit["questions"] == 36
        assert fit["brier"] <= fit["brier_of_mean"] + 0.02
        assert sum(one["count"] for one in fit["bins"]) == fit["answers"] == 72
    stored = read_calibrations(tmp_path / "c.json")
    assert stored.fingerprint == frames.read(run).manifest.fingerprint
    assert len(stored.fits) == 2
    printed = CliRunner().invoke(app, ["calibrate", str(run), "--out", str(tmp_path / "c.json")])
    assert "Reliability" in printed.output
    assert "written to" in printed.output


@pytest.mark.usefixtures("undrawn")
def test_what_the_calibrated_model_promises_is_what_the_report_measures(
    run: Path, tmp_path: Path
) -> None:
    """The same searches with a calibrated model: records carry p_correct, and its Brier score is that
    of the promises in them."""
    source = calibrate.read_answers(run, "checker")
    made, _ = calibrate.fit_groups(source.groups)
    model = calibrated(*(row.fit for row in made))
    plan = small_plan(frames.read(run).tasks[0], ("baseline", "s3"))
    evaluate(model, plan, tmp_path / "run", batch_size=32)
    before, after = frames.read(run), frames.read(tmp_path / "run")
    for condition in plan.conditions:
        texts = {r.key: r.text for r in before.records[condition]}
        assert all(
            texts[r.key] == r.text and r.p_correct is not None for r in after.records[condition]
        )
    assert calibrate.reliabilities(before) == {}
    assert calibrate.reliabilities(after).keys() == set(plan.conditions)
    for condition, found in calibrate.reliabilities(after).items():
        records = after.records[condition]
        assert found.brier == pytest.approx(
            sum((r.p_correct - (r.correct == 1.0)) ** 2 for r in records) / len(records)
        )
    grid = next(g for g in report.write(tmp_path / "run").tables if g.key == "probability")
    assert {row[1] for row in grid.rows} == {"baseline", "s3"}


def test_a_command_that_writes_no_calibration_has_failed(tmp_path: Path) -> None:
    plan = small_plan(write_task(tmp_path, 2), ("s3",), seeds=(0,))
    evaluate(small_model(), plan, tmp_path / "run")
    words = ["calibrate", str(tmp_path / "run"), "--out", str(tmp_path / "c.json")]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, "nothing was written" in done.stdout) == (1, True)


def test_a_verifier_of_ones_own_judges_answers_that_were_never_scored(
    run: Path, tmp_path: Path
) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "c.json"
    file.write_text("def length(prompt, text, confidence):\n    return 1 / (1 + len(text))\n")
    words = ["calibrate", str(run), "--verifier", f"{file}:length", "--out", str(out)]
    assert CliRunner().invoke(app, words).exit_code == 0
    judges = {fit.method: fit.verifier for fit in read_calibrations(out).fits}
    assert judges == {"baseline": own.from_file(f"{file}:length"), "s3": "paper"}


def test_too_few_answers_are_no_calibration(run: Path) -> None:
    groups = calibrate.read_answers(run, "checker").groups
    key = next(iter(groups))
    made, skipped = calibrate.fit_groups({key: groups[key][:8]})
    assert not made
    assert "too few" in skipped[0]
    assert "at least 20" in skipped[0]
    right = [dataclasses.replace(groups[key][0], right=True, question=str(n)) for n in range(30)]
    assert "two right and two wrong" in calibrate.fit_groups({key: right})[1][0]


def test_a_calibration_of_other_weights_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"first weights")
    fits = (Fit("countdown", "s3", "paper", WEIGHTS),)
    made = Calibrations(fits, "abc", calibration.signature(folder))
    (folder / "calibration.json").write_text(json.dumps(dataclasses.asdict(made)))
    assert calibrations_in(folder) == made
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert calibrations_in(folder) == Calibrations()
    (folder / "calibration.json").write_text('{"fits": [{"task": "countdown"}]}')
    with pytest.raises(ModelError, match="s3dlm calibrate"):
        calibrations_in(folder)


def test_fits_of_the_same_weights_are_added_and_of_others_replaced(
    run: Path, tmp_path: Path
) -> None:
    source = calibrate.read_answers(run, "checker")
    made, _ = calibrate.fit_groups(source.groups)
    path = tmp_path / "c.json"
    calibrate.write_fits(source, made[:1], path)
    calibrate.write_fits(source, made[1:], path)
    assert len(read_calibrations(path).fits) == len(made) == 2
    calibrate.write_fits(dataclasses.replace(source, fingerprint="other"), made[:1], path)
    assert len(read_calibrations(path).fits) == 1
