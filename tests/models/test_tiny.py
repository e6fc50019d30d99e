"""The bundled model: its files, its tokenizer, and that it still scores what its card says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import s3dlm
from s3dlm import tasks
from s3dlm.evaluation.manifest import fingerprint
from s3dlm.models.base import Model
from s3dlm.settings import Settings
from s3dlm.tasks import data

FOLDER = Path(s3dlm.__file__).parent / "models" / "tiny"
RECORD = json.loads((FOLDER / "accuracy.json").read_text())
TASKS = RECORD["tasks"]
COUNT = 16


@pytest.fixture(scope="module")
def tiny() -> Model:
    return s3dlm.load("tiny", device="cpu")


def test_the_files_are_a_llada_checkpoint_of_at_most_12_mb() -> None:
    config = json.loads((FOLDER / "config.json").read_text())
    assert config["model_type"] == "llada"
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) <= 12_000_000
    assert (FOLDER / "README.md").read_text().startswith("# tiny")


def test_the_tokenizer_is_small_and_gives_each_digit_a_token(tiny: Model) -> None:
    vocabulary = tiny.tokenizer.inner.get_vocab()  # type: ignore[attr-defined]
    assert len(vocabulary) <= 512
    assert len(tiny.tokenizer.encode("1234567890")) == 10
    assert len(tiny.tokenizer.encode("12 + 345")) == 6
    assert vocabulary["<|mdm_mask|>"] == tiny.denoiser.mask_id
    assert vocabulary["<|endoftext|>"] in tiny.end_ids


# One is enough here, as tests/golden has some answers of every task; the slow set runs them all.
QUICK = ("sudoku",)


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=[pytest.mark.slow] * (task not in QUICK)) for task in TASKS]
)
def test_recorded_accuracy_is_reproduced(tiny: Model, task: str) -> None:
    """The first problems through the whole package; one may flip where arithmetic rounds elsewhere."""
    from s3dlm.answers.grading import grade

    samples = data.load(tasks.get(task), split="test", limit=COUNT, prompt_style="tiny").samples
    how = Settings(method="baseline", temperature=0.0, **TASKS[task]["decoding"])
    found = s3dlm.generate_batch(tiny, [s.question for s in samples], task=task, settings=how)
    right = sum(
        grade(task, result.text, sample.gold, question=sample.question)
        for result, sample in zip(found, samples, strict=True)
    )
    assert abs(right - TASKS[task]["first_16"]) <= 1


def test_nothing_is_imported_before_it_is_wanted() -> None:
    """PyTorch's compiler and transformers take longer than all the rest of starting."""
    program = """
import sys
from s3dlm.models import folder
folder.known()
assert not {"torch", "transformers"} & sys.modules.keys()
for name in [name for name in sys.modules if name.startswith("huggingface_hub")]:
    del sys.modules[name]  # it looks at what is on disk
import s3dlm
s3dlm.generate(s3dlm.load("tiny"), "x", method="greedy", gen_length=8, steps=2)
wanted = {"torch._dynamo", "transformers", "rich", "huggingface_hub"} & sys.modules.keys()
assert not wanted, wanted
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_its_calibration_was_fitted_on_these_weights(tiny: Model) -> None:
    """After a change of the weights: python -m tools.tiny.calibrate."""
    assert tiny.calibrations.fingerprint == fingerprint(tiny)
    assert {fit.task for fit in tiny.calibrations.fits} == set(tiny.defaults.tasks)
    found = s3dlm.generate(tiny, "Target: 15 Numbers: 10, 1, 6", task="countdown", method="s3")
    assert found.p_correct is not None
    assert 0 <= found.p_correct <= 1
