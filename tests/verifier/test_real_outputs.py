"""The verifier and the grading on 4,284 real outputs of LLaDA-8B-Instruct.

The folder with the file is named by S3DLM_DATA; nothing of it is part of this project.
"""

import json
import os
from pathlib import Path

import pytest

from s3dlm.answers.grading import grade
from s3dlm.evaluation.score import score_file

FOLDER = os.environ.get("S3DLM_DATA")
FILE = Path(FOLDER or ".") / "llada8b_outputs.jsonl"
pytestmark = pytest.mark.skipif(
    not (FOLDER and FILE.exists()), reason="S3DLM_DATA names no folder with llada8b_outputs.jsonl"
)

# Published for d1's own parser, in per cent of all rows.
D1_ACCURACY = {
    ("gsm8k", 128): (69.29, 1130), ("gsm8k", 256): (76.37, 1130),
    ("math500", 128): (26.0, 500), ("math500", 256): (32.4, 500),
    ("countdown", 128): (20.7, 256), ("countdown", 256): (19.5, 256),
    ("sudoku", 128): (11.7, 256), ("sudoku", 256): (6.7, 256),
}  # fmt: skip

# Of the grading d1; fixed reads one more of the 330 pairs of MATH-500, an unboxed 1/4, as right.
FLOORS = {"gsm8k": (0.65, 0.68), "math500": (0.65, 0.577), "countdown": (0.97, 0.94)}


@pytest.fixture(scope="module")
def rows():
    with FILE.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def reports():
    """One report per task and grading, made when first asked for."""
    made = {}

    def report(task, grading):
        if (task, grading) not in made:
            made[task, grading] = score_file(FILE, task, grading=grading, draws=50)
        return made[task, grading]

    return report


@pytest.mark.parametrize(("task", "gen_length"), D1_ACCURACY)
def test_grading_d1_gives_the_published_accuracies(rows, task, gen_length):
    percent, count = D1_ACCURACY[task, gen_length]
    chosen = [r for r in rows if r["task"] == task and r["gen_length"] == gen_length]
    grades = [grade(task, r["output"], r["gold"], "d1", r["question"]) for r in chosen]
    assert len(grades) == count
    digits = 2 if task == "gsm8k" else 1
    assert round(100 * sum(grades) / count, digits) == percent


@pytest.mark.parametrize("task", FLOORS)
def test_the_papers_composite_tells_right_from_wrong(reports, task):
    auc, pair_accuracy = FLOORS[task]
    report = reports(task, "fixed")
    whole, at_128, _ = report.sections
    assert at_128.name == "gen_length=128"
    assert at_128.components[0].auc.value >= auc
    assert whole.components[0].pair_accuracy.value >= pair_accuracy


@pytest.mark.parametrize("task", ["gsm8k", "math500", "countdown", "sudoku"])
def test_every_changed_verdict_is_listed_with_a_reason(rows, reports, task):
    report = reports(task, "fixed")
    changed = {
        number
        for number, r in enumerate(rows, start=1)
        if r["task"] == task
        and grade(task, r["output"], r["gold"], "d1", r["question"])
        != grade(task, r["output"], r["gold"], "fixed", r["question"])
    }
    assert {change.line for change in report.changes} == changed
    assert all(change.reason for change in report.changes)


SAMPLES = FILE.with_name("dlm_samples_gsm8k.jsonl")


@pytest.mark.skipif(not SAMPLES.exists(), reason="the folder has no dlm_samples_gsm8k.jsonl")
def test_grading_reads_the_samples_of_other_models_as_a_plain_reader_does():
    from benchmarks.real_samples import agreement

    from s3dlm.evaluation.outputs import read_rows

    models = {row.group.removeprefix("model=") for row in read_rows(SAMPLES, "gsm8k", "model")[0]}
    assert len(models) == 4
    assert all(agreement(SAMPLES, model) >= 0.98 for model in models)
