"""A report says which problems a verifier was fitted on, and calls accuracy on code pass@1."""

import json
from pathlib import Path

import pytest

from s3dlm.evaluation import frames, probability, report
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.run import evaluate
from s3dlm.verifier.weights import in_fit_half
from tests.evaluation.small_run import small_model, small_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("in_fit")
    rows = [{"question": f"What is {n} + 4?", "gold": n + 4} for n in range(12)]
    (place / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = small_plan(f"{place / 'sums.jsonl'}:gsm8k", ("best_of_k", "s3", "best"), seeds=(0,))
    evaluate(small_model(), plan, place / "run", batch_size=32)
    return place / "run"


def test_only_methods_with_the_fitted_verifier_are_flagged(folder: Path) -> None:
    run = frames.read(folder)
    ((_, label, count, *_),) = probability.in_fit(run).rows
    seen = sum(in_fit_half(sample.question) for sample in run.samples[run.tasks[0]])
    assert (label, count) == ("best", f"{seen} of 12")
    assert 0 < seen < 12


@pytest.mark.usefixtures("undrawn")
def test_the_report_says_so_in_words_and_in_a_table(folder: Path) -> None:
    made = report.write(folder)
    ((_, _, count, *_),) = probability.in_fit(made.run).rows
    words = f"{count} problems were used to fit its verifier"
    assert any(words in line for line in made.verdict)
    assert words in made.markdown.read_text()
    assert any(table.key == "in_fit" for table in made.tables)


def test_accuracy_on_code_is_called_pass_at_1() -> None:
    assert [title_of(task) for task in ("humaneval", "mbpp", "gsm8k")] == [
        "HumanEval (pass@1)",
        "MBPP (pass@1)",
        "GSM8K",
    ]
