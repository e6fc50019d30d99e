"""Small parts: token counters, fingerprints, progress."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
import torch

from s3dlm.evaluation import manifest, run
from s3dlm.evaluation.plan import Condition, Plan
from s3dlm.evaluation.records import Failure
from s3dlm.evaluation.run import Bars
from s3dlm.models.base import Denoiser
from s3dlm.tasks import Loaded, Sample
from tests.evaluation.small_run import BASE
from tests.evaluation.test_records import record
from tests.fakes import ByteTokenizer, fake_model


def test_without_its_file_the_models_tokenizer_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    name, count = manifest.token_counter(ByteTokenizer())
    assert (name, count("four")) == ("the model's tokenizer", 4)


def test_the_fingerprint_knows_the_weights() -> None:
    class Network(torch.nn.Linear, Denoiser):
        mask_id, vocabulary, context = 1, 4, 64

    one = Network(3, 2)
    model = dataclasses.replace(fake_model(), denoiser=one)
    before = manifest.fingerprint(model)
    assert before == manifest.fingerprint(model)
    with torch.no_grad():
        one.weight[1, 2] += 1
    assert manifest.fingerprint(model) != before


def test_progress_without_a_terminal_is_one_line_per_condition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LINE_EVERY", math.inf)  # however slow this machine is
    condition = Condition("countdown", "s3", BASE)
    problems = {"countdown": Loaded((Sample("a", "?", 1),) * 3, "", 3)}
    with Bars(Plan([condition], problems)) as bars:
        bars.begin(condition, 3, [record("a")])
        bars.record(condition, record("b", correct=0.0))
        bars.record(condition, Failure(condition.spec, "c", 0, "ValueError", "a test"))
    failed, said = capsys.readouterr().err.splitlines()
    assert failed == "c failed: ValueError: a test"
    assert said == "[1/1] Countdown s3 (N=2 b=2 block=24 T=1 λ=2) 3/3 33.3 % 1 failed"
