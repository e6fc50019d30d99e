"""Benchmarks: their counts, prompts and gold answers, and what is said when data is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from s3dlm import answers, tasks
from s3dlm.errors import RecordError, SettingsError
from s3dlm.tasks import benchmarks
from s3dlm.tasks.base import PREFILL
from s3dlm.tasks.benchmarks import LETTERS, lettered, shuffled
from s3dlm.verifier import for_task

DATA = os.environ.get("S3DLM_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="S3DLM_DATA names no folder of benchmark files")

COUNTS = {
    "gsm8k": 1319,
    "math500": 500,
    "arc": 1172,
    "truthfulqa": 817,
    "truthfulqa_mc": 684,
    "aime": 30,
    "countdown": 256,
    "sudoku": 256,
}


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_names_a_verifier_and_an_answer_that_exist(name: str) -> None:
    task = tasks.get(name)
    assert task.name == name
    answers.kind_of(task.answer)
    for_task(task.verifier, "paper")


@pytest.mark.parametrize("name", tasks.names())
def test_prompt_styles_render_as_the_protocol_says(name: str) -> None:
    task = tasks.get(name)
    d1, tiny = task.render("How many?", "d1"), task.render("How many?", "tiny")
    assert d1.user == f"{task.instruction}\n\nHow many?"
    assert (tiny.user, tiny.prefill) == ("How many?", "")
    if task.answer == "code":
        assert d1.prefill == "```python\n"
        return
    assert d1.prefill == PREFILL == "<reasoning>"
    assert "<answer>" in d1.user


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(SettingsError, match="did you mean 'gsm8k'"):
        tasks.get("gsmk8")
    with pytest.raises(SettingsError, match="choose one of: d1, tiny"):
        tasks.get("gsm8k").render("?", "d2")


@needs_data
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_published_counts(name: str, count: int) -> None:
    loaded = tasks.load(tasks.get(name), data=Path(str(DATA)))
    assert len(loaded.samples) == loaded.total == count
    assert len({sample.id for sample in loaded.samples}) == count
    json.dumps([sample.gold for sample in loaded.samples])  # gold answers are plain data


@needs_data
@pytest.mark.parametrize("name", ["sudoku", "countdown"])
def test_d1_subsets_are_the_questions_d1_stored(name: str) -> None:
    stored = set()
    with (Path(str(DATA)) / "llada8b_outputs.jsonl").open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["task"] == name:
                stored.add((row["question"], json.dumps(row["gold"])))
    ours = tasks.load(tasks.get(name), data=Path(str(DATA))).samples
    assert {(s.question, json.dumps(s.gold)) for s in ours} == stored


@needs_data
@pytest.mark.parametrize("name", COUNTS)
def test_gold_answers_grade_themselves(name: str) -> None:
    task = tasks.get(name)
    for sample in tasks.load(task, data=Path(str(DATA)), limit=20).samples:
        if name == "countdown":
            continue  # its gold is a target, not an answer
        text = str(sample.gold) if name == "sudoku" else f"\\boxed{{{sample.gold}}}"
        said = f"<answer>{text}</answer>"
        assert answers.grade(task.answer, said, sample.gold, "fixed", sample.question) == 1.0


@pytest.mark.parametrize("name", ["arithmetic", "countdown", "sudoku", "choice", "chain"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_generated_problems_are_answered_right_by_their_own_response(name: str, split: str) -> None:
    from tools.tiny.problems import problems

    task = tasks.get(name)
    loaded = tasks.load(task, prompt_style="tiny", split=split, limit=20)
    for sample, problem in zip(loaded.samples, problems(name, split, 20, 0), strict=True):
        assert sample.question == problem.question
        assert answers.grade(task.answer, problem.response, sample.gold, "fixed", sample.question)


@pytest.mark.parametrize("name", ["arithmetic", "countdown", "sudoku", "choice", "chain"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_bundled_problems_are_the_generators(name: str, split: str) -> None:
    from tools.tiny.problems.__main__ import bundled

    loaded = tasks.load(tasks.get(name), prompt_style="tiny", split=split, limit=40)
    for sample, row in zip(loaded.samples, bundled(name, split, 40), strict=True):
        assert (sample.question, sample.gold) == (row["question"], row["gold"])
        assert sample.group == row.get("group", "")


def test_more_problems_or_another_split_than_ship_are_refused() -> None:
    countdown = tasks.get("countdown")
    with pytest.raises(SettingsError, match=r"limit=1000 is more than the \d+ test problems"):
        tasks.load(countdown, prompt_style="tiny", limit=1000)
    with pytest.raises(SettingsError, match="split='train' is unknown; choose one of: test, val"):
        tasks.load(countdown, prompt_style="tiny", split="train")


def test_a_higher_limit_keeps_the_first_problems() -> None:
    few, more = (
        tasks.load(tasks.get("choice"), prompt_style="tiny", limit=n).samples for n in (5, 9)
    )
    assert more[:5] == few


def test_gsm8k_gold_is_a_number() -> None:
    row = {"question": "?", "answer": "so it is <<1=1>>.\n#### $-1,234.5"}
    assert benchmarks.parse_gsm8k(row) == ("?", -1234.5)


def test_numeric_labels_become_letters() -> None:
    row = {
        "question": "Which?",
        "choices": {"text": ["x", "y", "z"], "label": ["1", "2", "3"]},
        "answerKey": "2",
    }
    question, gold = benchmarks.parse_arc(row)
    assert gold == "B"
    assert question == "Which?\n\nOptions:\nA. x\nB. y\nC. z\n\nChoose ONE letter."


def test_shuffled_options_hold_the_right_one_at_its_letter() -> None:
    for key in map(str, range(50)):
        options, gold = shuffled("right", ["w1", "w2", "w3"], key)
        assert options[LETTERS.index(gold)] == "right"
        assert sorted(options) == ["right", "w1", "w2", "w3"]
        assert shuffled("right", ["w1", "w2", "w3"], key) == (options, gold)
    golds = {shuffled("right", ["w1", "w2", "w3"], str(key))[1] for key in range(50)}
    assert golds == set("ABCD")


def test_truthfulqa_variants_differ_in_their_options() -> None:
    row = {
        "Question": "Why?",
        "Best Answer": "yes",
        "Incorrect Answers": "; ".join(f"no{i}" for i in range(12)),
    }
    full, gold = benchmarks.parse_truthfulqa(row)
    four = benchmarks.parse_truthfulqa_mc(row)
    assert "H. " in full
    assert "I. " not in full
    assert f"{gold}. yes" in full
    assert four is not None
    assert "D. " in four[0]
    assert "E. " not in four[0]
    assert benchmarks.parse_truthfulqa_mc(row | {"Incorrect Answers": "no; never"}) is None


def test_sudoku_dots_are_empty_cells() -> None:
    question, gold = benchmarks.parse_sudoku({"question": "1..4", "answer": "1234"})
    assert "1004" in question
    assert gold == "1234"


def test_a_wrong_count_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aime24_test.jsonl").write_text('{"problem": "?", "answer": "1"}\n')
    with pytest.raises(RecordError, match=r"gives 1 problems.*the published set has 30"):
        tasks.load(tasks.get("aime"), data=tmp_path)


def test_missing_data_names_the_file_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"gsm8k_test\.jsonl.*--data DIR"):
        tasks.load(tasks.get("gsm8k"), data=tmp_path)
    with pytest.raises(RecordError, match=r"countdown_cd3_test\.jsonl.*--data DIR"):
        tasks.load(tasks.get("countdown"))
    with pytest.raises(SettingsError, match="no split 'validation'"):
        tasks.load(tasks.get("gsm8k"), split="validation")
    with pytest.raises(SettingsError, match="from 1 up"):
        tasks.load(tasks.get("choice"), limit=0)


def test_a_users_own_file_is_a_task(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "1 + 1?", "gold": 2}\n\n{"question": "2 + 2?", "answer": 4}\n')
    task = tasks.get(f"{path}:gsm8k")
    assert (task.name, task.verifier, task.answer) == ("mine", "gsm8k", "gsm8k")
    assert [s.gold for s in tasks.load(task).samples] == [2, 4]
    assert [s.gold for s in tasks.load(task, prompt_style="tiny", limit=1).samples] == [2]
    with pytest.raises(SettingsError, match=r"write FILE\.jsonl:TASK"):
        tasks.get(str(path))
    path.write_text('{"question": "1 + 1?"}\n')
    with pytest.raises(RecordError, match=r"row 1 is not.*it has the fields question"):
        tasks.load(task)
    path.write_text('{"question": \n')
    with pytest.raises(RecordError, match="line 1, cannot be read"):
        tasks.load(task)


def test_a_missing_file_and_a_bad_row_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"none\.jsonl does not exist"):
        tasks.load(tasks.get(f"{tmp_path / 'none.jsonl'}:gsm8k"))
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "?", "answer": "#### \u00b2"}\n')
    with pytest.raises(RecordError, match=r"gsm8k\.jsonl, row 1 is not a problem of task='gsm8k'"):
        tasks.load(tasks.get("gsm8k"), data=tmp_path)


def test_options_are_printed_as_the_protocol_prints_them() -> None:
    assert lettered("S", ["a", "b"]) == "S\n\nOptions:\nA. a\nB. b\n\nChoose ONE letter."


def test_recommended_settings_are_settings() -> None:
    from s3dlm.models.defaults import defaults_of
    from s3dlm.search.methods import METHODS
    from s3dlm.settings import Settings

    for model in ("tiny", "GSAI-ML/LLaDA-8B-Instruct"):
        for method in METHODS:
            Settings.recommended(defaults_of(model), method)
        assert all(tasks.get(name) for name in defaults_of(model).tasks)


def test_tasks_need_no_torch() -> None:
    code = "import sys, s3dlm.tasks; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
