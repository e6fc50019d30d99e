"""Probabilities: fits recover what is known, and the figures are what their definitions say."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from s3dlm.errors import MissingExtraError, SettingsError
from s3dlm.evaluation.statistics import CalibrationReport
from s3dlm.verifier.calibration import (
    AnswerCalibration,
    GradedAnswer,
    calibrations_in,
    cross_fitted,
    fit_answers,
    sigmoid,
)


def drawn(count=4000, seed=0):
    """Answers whose chance of being right is known."""
    rng = np.random.default_rng(seed)
    truth = AnswerCalibration(intercept=-4.0, score=3.0, agreement=2.0, confidence=1.0)
    answers, chances = [], []
    for number in range(count):
        score, agreement, confidence = rng.random(3).tolist()
        chance = truth.p_correct(score, agreement, confidence)
        right = bool(rng.random() < chance)
        answers.append(GradedAnswer(score, agreement, confidence, right, f"q{number // 2}"))
        chances.append(chance)
    return answers, chances


def test_cross_fitted_probabilities_are_calibrated_on_questions_never_seen():
    answers, _ = drawn()
    right = [bool(a.right) for a in answers]
    found = CalibrationReport.of(cross_fitted(answers), right)
    for one in found.bins:
        assert one.accuracy == pytest.approx(one.mean, abs=0.06 if one.count > 200 else 0.5)
    assert found.brier < found.brier_of_mean - 0.02


def test_no_answer_is_fitted_on_its_own_question():
    """Were it so, changing the verdicts of one question would change its own probability."""
    answers, _ = drawn(200)
    changed = [replace(a, right=not a.right) if a.question == "q7" else a for a in answers]
    before, after = cross_fitted(answers), cross_fitted(changed)
    own = [at for at, a in enumerate(answers) if a.question == "q7"]
    assert [before[at] for at in own] == [after[at] for at in own]
    assert before != after


def test_a_missing_confidence_counts_as_the_typical_one():
    answers = [GradedAnswer(n / 40, 0.5, None, n > 20, str(n)) for n in range(40)]
    fitted = fit_answers(answers)
    assert (fitted.confidence, fitted.agreement) == (0.0, 0.0)  # they never vary
    assert fitted.p_correct(0.9, 0.5) == fitted.p_correct(0.9, 0.5, fitted.typical_confidence)
    assert fitted.p_correct(0.9, 0.5) > 0.7 > 0.3 > fitted.p_correct(0.1, 0.5)


@pytest.mark.parametrize(
    ("good", "bad", "enough"),
    [
        *((2, 18, True), (18, 2, True), (10, 10, True), (20, 20, True)),
        *((1, 19, False), (19, 1, False), (0, 40, False), (40, 0, False), (10, 9, False)),
    ],
)
def test_two_right_and_two_wrong_of_twenty_are_enough(good, bad, enough):
    answers = [GradedAnswer(n / 40, 0.5, None, n >= bad, str(n)) for n in range(good + bad)]
    if enough:  # finite weights, although the answers are separable
        fitted = fit_answers(answers)
        assert 0.0 < fitted.p_correct(0.0, 0.5) < fitted.p_correct(1.0, 0.5) < 1.0
    else:
        with pytest.raises(SettingsError, match=f"{good} of them right, are too few"):
            fit_answers(answers)


def test_definitions():
    assert CalibrationReport.of([1.0, 0.5], [True, False]).brier == pytest.approx(0.125)
    found = CalibrationReport.of([0.9, 0.8, 0.2, 0.1], [True, True, True, False])
    assert (found.coverage["50%"], found.coverage["100%"]) == (1.0, 0.75)
    assert found.brier_of_mean == pytest.approx(0.75 * 0.25)
    for right in ([True, False], [False, True]):
        # equal probabilities cannot be told apart, whatever their order
        assert CalibrationReport.of([0.5, 0.5], right).coverage["50%"] == 0.5
    bins = CalibrationReport.of([0.05, 0.95, 1.0], [False, True, False]).bins
    assert [(b.low, b.count, b.accuracy) for b in bins] == [(0.0, 1, 0.0), (0.9, 2, 0.5)]
    assert (sigmoid(1e6), sigmoid(-1e6)) == (1.0, 0.0)


def test_fits_are_those_of_newtons_method():
    """Weights of an earlier, independent implementation. More is never worse, even if the few answers
    of a fit say so: a negative weight becomes 0."""
    answers, _ = drawn(400)
    odd = [replace(a, right=a.score > 0.5, agreement=1 - a.score) for a in answers]
    wrong_way = [replace(a, right=a.score < 0.5, agreement=0.5) for a in answers]
    for graded, expected in (
        (answers, (-3.4401515, 2.3586555, 2.0777743, 0.8605238)),
        (drawn(24, seed=3)[0], (-2.3432561, 1.7274188, 0.9841839, 0.691299)),
        (odd, (-6.1056217, 12.3169048, 0.0, 0.085869)),
        (wrong_way, (-0.3514827, 0.0, 0.0, 0.4178929)),
    ):
        fitted = fit_answers(graded)
        weights = (fitted.intercept, fitted.score, fitted.agreement, fitted.confidence)
        assert weights == pytest.approx(expected, abs=1e-6)


def test_a_calibration_is_applied_without_scipy_and_fitted_with_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert AnswerCalibration(-2.0, 3.0, 1.0, 0.5).p_correct(1.0, 1.0, 1.0) > 0.9
    with pytest.raises(MissingExtraError, match=r"s3dlm\[report\]"):
        fit_answers(drawn(40)[0])


def test_a_text_without_an_answer_has_no_chance_and_does_not_bend_the_curve():
    answers, _ = drawn(400)
    none = [GradedAnswer(0.9, 0.0, 0.9, False, f"none {n}", answered=False) for n in range(100)]
    assert fit_answers([*answers, *none]) == fit_answers(answers)
    assert cross_fitted([*answers, *none])[-100:] == [0.0] * 100


def test_a_kind_of_model_has_bundled_calibrations_and_no_other_has(tmp_path):
    for kind in ("dream-3584", "llada-4096"):
        found = calibrations_in(tmp_path, "anyone/finetuned", kind)
        fit = found.find("gsm8k", "best_of_k", None)
        assert fit.verifier == "checker"
        sure, unsure = fit.weights.p_correct(0.9, 1.0), fit.weights.p_correct(0.5, 0.3)
        assert unsure < 0.4 < 0.6 < sure
        assert found.find("math500", "best_of_k", None) is None
        assert (
            found.find("gsm8k", "s3", "checker") is None
        )  # survivors of a search agree more often
    assert not calibrations_in(tmp_path, "anyone/finetuned", "llada-128").fits
    named = calibrations_in(tmp_path, "GSAI-ML/LLaDA-8B-Instruct", "llada-4096")
    assert named.find("gsm8k", "baseline", None).questions == 1130  # its own comes first
