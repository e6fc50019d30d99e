"""The verifiers and the grading on 4,284 real outputs of LLaDA-8B-Instruct, and on samples of other models.

The folder with the files is named by S3DLM_DATA; nothing of it is part of this project.
"""

import json
import os
from pathlib import Path

import pytest

from s3dlm.answers.grading import grade
from s3dlm.evaluation.score import score_file
from s3dlm.verifier import for_task
from s3dlm.verifier.weights import CHECKER, in_fit_half

FOLDER = Path(os.environ.get("S3DLM_DATA") or "no folder")
FILE, SAMPLES = FOLDER / "llada8b_outputs.jsonl", FOLDER / "dlm_samples_gsm8k.jsonl"
pytestmark = pytest.mark.skipif(
    not (FILE.exists() and SAMPLES.exists()), reason="S3DLM_DATA names no folder with both files"
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


@pytest.mark.parametrize(("task", "gen_length"), D1_ACCURACY)
def test_grading_d1_gives_the_published_accuracies(rows, task, gen_length):
    percent, count = D1_ACCURACY[task, gen_length]
    chosen = [r for r in rows if r["task"] == task and r["gen_length"] == gen_length]
    grades = [grade(task, r["output"], r["gold"], "d1", r["question"]) for r in chosen]
    assert len(grades) == count
    digits = 2 if task == "gsm8k" else 1
    assert round(100 * sum(grades) / count, digits) == percent


@pytest.mark.parametrize("task", FLOORS)
def test_the_papers_composite_tells_right_from_wrong(rows, tmp_path, task):
    auc, pair_accuracy = FLOORS[task]
    at_128 = tmp_path / "short.jsonl"
    kept = [json.dumps(row) for row in rows if row["gen_length"] == 128]
    at_128.write_text("\n".join(kept), encoding="utf-8")
    assert score_file(at_128, task, draws=2).components[0].auc.value >= auc
    assert score_file(FILE, task, draws=2).components[0].pair_accuracy.value >= pair_accuracy


@pytest.mark.parametrize(("task", "floor"), [("gsm8k", 0.72), ("math500", 0.65)])
def test_checker_orders_pairs_of_questions_it_never_saw_better_than_the_papers(
    rows, tmp_path, task, floor
):
    unseen = tmp_path / "unseen.jsonl"
    kept = [json.dumps(row) for row in rows if not in_fit_half(row["question"])]
    unseen.write_text("\n".join(kept), encoding="utf-8")
    paper, checker = (
        score_file(unseen, task, verifier=name, grading="d1", draws=2).components[0]
        for name in ("paper", "checker")
    )
    assert checker.pair_accuracy.value > max(floor, paper.pair_accuracy.value + 0.04)
    assert checker.auc.value > paper.auc.value + 0.03


def test_outputs_that_are_wrong_are_doubted_more_often(rows):
    doubted = {1.0: [], 0.0: []}
    checker = for_task("gsm8k", "checker")
    for row in [row for row in rows if row["task"] == "gsm8k"][::3]:
        right = grade("number", row["output"], row["gold"], "fixed", row["question"])
        doubted[right].append(bool(checker.score(row["question"], row["output"]).spans))
    share = {right: sum(them) / len(them) for right, them in doubted.items()}
    assert share[1.0] < 0.05 < 0.1 < share[0.0]


def test_shipped_weights_are_the_fitted_ones_and_order_few_shot_outputs_they_never_saw():
    from benchmarks import free_text

    groups = free_text.read()
    fitted = free_text.fit([group for group in groups if in_fit_half(group.question)])
    shipped = [CHECKER["gsm8k"].features[name] for name in free_text.NAMES]
    assert fitted.tolist() == pytest.approx(shipped, abs=0.011)
    held = [(g, g.shipped) for g in groups if g.mixed and not in_fit_half(g.question)]
    few_shot = [pair for pair in held if "few-shot" in pair[0].model]
    assert free_text.pair_accuracy(few_shot) > 0.72
    assert free_text.pair_accuracy((g, g.paper) for g, _ in few_shot) < 0.72


def test_grading_reads_the_samples_of_other_models_as_a_plain_reader_does(tmp_path):
    from benchmarks.real_samples import agreement, by_model

    files = by_model(SAMPLES, tmp_path)
    assert len(files) == 4
    assert all(agreement(path) >= 0.98 for path in files.values())
