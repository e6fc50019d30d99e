"""Benchmarks: their counts, prompts and gold answers, and what is said when data is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from s3dlm import answers, tasks
from s3dlm.answers.grading import grade
from s3dlm.errors import RecordError, SettingsError
from s3dlm.inputs import read_json_lines
from s3dlm.models.folder import defaults_of
from s3dlm.search.methods import METHODS
from s3dlm.settings import Settings
from s3dlm.tasks import benchmarks
from s3dlm.tasks.benchmarks import OPTION_LETTERS, lettered, shuffled
from s3dlm.verifier import for_task
from tools.sudoku9.problems import unique_puzzles
from tools.tiny.problems import problems
from tools.tiny.problems.__main__ import bundled

DATA = Path(os.environ.get("S3DLM_DATA", ""))
needs_data = pytest.mark.skipif(
    "S3DLM_DATA" not in os.environ, reason="S3DLM_DATA names no folder of benchmark files"
)
COUNTS = {
    "gsm8k": 1319, "math500": 500, "arc": 1172, "truthfulqa": 817, "truthfulqa_mc": 684,
    "aime": 30, "countdown": 256, "sudoku": 256,
}  # fmt: skip


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_has_a_verifier_an_answer_and_prompts(name: str) -> None:
    task = tasks.get(name)
    assert task.name == name
    answers.kind_of(task.answer)
    for_task(task.verifier, "paper")
    d1, tiny = task.render("How many?", "d1"), task.render("How many?", "tiny")
    assert d1.user == f"{task.instruction}\n\nHow many?"
    assert (tiny.user, tiny.prefill) == ("How many?", "")
    assert d1.prefill == ("```python\n" if task.answer == "code" else "<reasoning>")
    assert task.answer == "code" or "<answer>" in d1.user


@needs_data
@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_published_problems_are_complete_and_grade_themselves(name: str, count: int) -> None:
    task = tasks.get(name)
    loaded = tasks.load(task, data=DATA)
    assert len(loaded.samples) == loaded.total == count
    assert len({sample.id for sample in loaded.samples}) == count
    json.dumps([sample.gold for sample in loaded.samples])  # gold answers are plain data
    for sample in loaded.samples[:20] if name != "countdown" else ():  # its gold is a target
        gold = str(sample.gold) if name == "sudoku" else f"\\boxed{{{sample.gold}}}"
        text = f"<answer>{gold}</answer>"
        assert grade(task.answer, text, sample.gold, "fixed", sample.question) == 1.0


@needs_data
@pytest.mark.parametrize("name", ["sudoku", "countdown"])
def test_d1_subsets_are_the_questions_d1_stored(name: str) -> None:
    rows = [row for _, row in read_json_lines(DATA / "llada8b_outputs.jsonl")]
    stored = {(row["question"], json.dumps(row["gold"])) for row in rows if row["task"] == name}
    samples = tasks.load(tasks.get(name), data=DATA).samples
    assert {(sample.question, json.dumps(sample.gold)) for sample in samples} == stored


@pytest.mark.parametrize("name", ["arithmetic", "countdown", "sudoku", "choice", "chain"])
@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_bundled_problems_are_the_generators(name: str, split: str) -> None:
    """Equal to a sample made again, answered right by their responses, and in a fixed order."""
    task = tasks.get(name)
    samples = tasks.load(task, prompt_style="tiny", split=split, limit=40).samples
    assert samples[:5] == tasks.load(task, prompt_style="tiny", split=split, limit=5).samples
    made = zip(samples, bundled(name, split, 40), problems(name, split, 40), strict=True)
    for sample, row, problem in made:
        shipped = {"question": sample.question, "gold": sample.gold, "group": sample.group}
        assert {"group": "", **row} == {"task": name, "split": split, **shipped}
        assert grade(task.answer, problem.response, sample.gold, "fixed", sample.question)


ARC = {"text": ["x", "y", "z"], "label": ["1", "2", "3"]}


@pytest.mark.parametrize(
    ("parse", "row", "question", "gold"),
    [
        (benchmarks.parse_gsm8k, {"question": "?", "answer": "<<1=1>>.\n#### $-1,234.5"}, "?", -1234.5),
        (benchmarks.parse_arc, {"question": "Which?", "choices": ARC, "answerKey": "2"},
         "Which?\n\nOptions:\nA. x\nB. y\nC. z\n\nChoose ONE letter.", "B"),
        (benchmarks.parse_sudoku, {"question": "1..4", "answer": "1234"},
         "Solve the following Sudoku puzzle: 1004\n", "1234"),
    ],
)  # fmt: skip
def test_rows_become_problems(parse, row, question, gold) -> None:  # type: ignore[no-untyped-def]
    assert parse(row) == (question, gold)


def test_shuffled_options_hold_the_right_one_at_its_letter() -> None:
    golds = set()
    for key in map(str, range(50)):
        options, gold = shuffled("right", ["w1", "w2", "w3"], key)
        assert options[OPTION_LETTERS.index(gold)] == "right"
        assert sorted(options) == ["right", "w1", "w2", "w3"]
        assert shuffled("right", ["w1", "w2", "w3"], key) == (options, gold)
        golds.add(gold)
    assert golds == set("ABCD")


def test_truthfulqa_variants_differ_in_their_options() -> None:
    wrong = "; ".join(f"no{number}" for number in range(12))
    row = {"Question": "Why?", "Best Answer": "yes", "Incorrect Answers": wrong}
    full, gold = benchmarks.parse_truthfulqa(row)
    assert f"{gold}. yes" in full
    assert ("H. " in full, "I. " in full) == (True, False)
    four = benchmarks.parse_truthfulqa_mc(row)
    assert ("D. " in four[0], "E. " in four[0]) == (True, False)
    assert benchmarks.parse_truthfulqa_mc(row | {"Incorrect Answers": "no; never"}) is None
    ready = {"question": "Why?", "choices": ["no", "yes"], "label": 1}
    assert benchmarks.parse_truthfulqa_mc(ready) == (lettered("Why?", ["no", "yes"]), "B")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("aime", '{"problem": "?", "answer": "1"}', "gives 1 problems.*the published set has 30"),
        ("gsm8k", None, r"gsm8k_test\.jsonl.*--data DIR"),
        ("gsm8k", '{"question": "?", "answer": "#### \u00b2"}', r"gsm8k\.jsonl, row 1 is not a problem of task='gsm8k'"),
        ("gsm8k", "", "holds no problem"),
        ("gsm8k", '{"question": \n', "line 1, cannot be read"),
    ],
)  # fmt: skip
def test_data_that_is_missing_or_wrong_is_named(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    if content is not None:
        (tmp_path / f"{name}.jsonl").write_text(content)
    with pytest.raises(RecordError, match=words):
        tasks.load(tasks.get(name), data=tmp_path)


def test_a_users_own_file_is_a_task(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"question": "1 + 1?", "gold": 2}\n\n{"question": "2 + 2?", "answer": 4}\n')
    task = tasks.get(f"{path}:gsm8k")
    assert (task.name, task.verifier, task.answer) == ("mine", "gsm8k", "gsm8k")
    assert [sample.gold for sample in tasks.load(task).samples] == [2, 4]
    assert len(tasks.load(task, prompt_style="tiny", limit=1).samples) == 1
    with pytest.raises(SettingsError, match=r"lacks the name.*write FILE\.jsonl:TASK"):
        tasks.get(str(path))
    path.write_text('{"question": "1 + 1?"}\n')
    with pytest.raises(RecordError, match=r"row 1 is not.*it has the fields question"):
        tasks.load(task)
    with pytest.raises(RecordError, match=r"none\.jsonl does not exist"):
        tasks.load(tasks.get(f"{tmp_path / 'none.jsonl'}:gsm8k"))


@pytest.mark.parametrize("model", ["tiny", "GSAI-ML/LLaDA-8B-Instruct"])
def test_recommended_settings_are_settings(model: str) -> None:
    for method in METHODS:
        Settings.recommended(defaults_of(model), method)
    assert all(tasks.get(name) for name in defaults_of(model).tasks)


@pytest.mark.parametrize(
    "header", ["puzzle,solution", "quizzes,solutions", "question,answer", "puzzle"]
)
def test_puzzles_are_read_from_a_csv_file(header: str, tmp_path: Path) -> None:
    """Which may leave their solutions out."""
    row = next(unique_puzzles("validation"))
    path = tmp_path / "hard.csv"
    cells = f"{row['question']},{row['gold']},7" if "," in header else f"{row['question']},7"
    path.write_text(f"{header},rating\n{cells}\n")
    task = tasks.get(f"{path}:sudoku9")
    (sample,) = tasks.load(task, prompt_style="tiny").samples
    assert sample.question == row["question"]
    assert sample.gold == row["gold"] or header == "puzzle"
    assert grade("sudoku9", str(row["gold"]), sample.gold, question=sample.question) == 1.0
    assert (task.name, task.verifier, task.answer) == ("hard", "sudoku9", "sudoku9")
    path.write_text("grid\n123\n")
    with pytest.raises(RecordError, match="'puzzle' and, if known, 'solution'"):
        tasks.load(task, prompt_style="tiny")
