"""`s3dlm score`: what a report says of outputs, whoever wrote their file."""

import json
import os
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from s3dlm.cli.main import app
from s3dlm.errors import RecordError
from s3dlm.evaluation.outputs import read_rows
from s3dlm.evaluation.score import score_file
from s3dlm.evaluation.statistics import auc, pair_accuracy, resamples
from s3dlm.verifier import as_verifier

RIGHT = r"First we compute 6 * 7 = 42, and therefore the total is 42 in the end. \boxed{42}"
WRONG = r"I would say that it must be something like \boxed{41}"


def write(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def made(tmp_path, *rows, task="gsm8k", **how):
    """The report of a file of these rows."""
    return score_file(write(tmp_path / "f.jsonl", rows), task, **how)


def row(output=RIGHT, **more):
    return {"question": "q", "output": output, **more}


@pytest.fixture
def file(tmp_path):
    rows = [
        {"task": "gsm8k", "question": f"q{n}", "output": text, "gold": 42}
        for n in range(20)
        for text in (RIGHT, WRONG)
    ]
    rows.append({"task": "arc", "question": "other", "output": "B", "gold": "B"})
    return write(tmp_path / "outputs.jsonl", rows)


def test_a_report_of_outputs_that_are_easy_to_tell_apart(file):
    report = score_file(file, "gsm8k")
    assert (report.outputs, report.questions, report.pairs, report.skipped) == (40, 20, 20, 1)
    assert report.accuracy == {"fixed": 0.5, "d1": 0.5, "d1_whole": 0.5}
    total = report.components[0]
    assert (total.name, total.auc.value, total.pair_accuracy.value) == ("total", 1.0, 1.0)
    assert sum(row.count for row in report.reliability.bins) == 40
    assert report.reliability.brier < report.reliability.brier_of_mean == 0.25
    assert report.reliability.coverage["50%"] == 1.0
    assert any("confidence is constant" in warning for warning in report.warnings)


def test_a_verifier_that_points_the_wrong_way_is_called_so(file):
    judge = as_verifier(lambda prompt, text, confidence: -float(len(text)))
    report = score_file(file, "gsm8k", verifier=judge)
    assert (report.verifier, report.components[0].auc.value) == ("custom", 0.0)
    assert any("total points the wrong way" in warning for warning in report.warnings)


def test_the_same_seed_gives_the_same_report_and_it_is_json(file):
    first, again = (asdict(score_file(file, "gsm8k", seed=3)) for _ in range(2))
    assert json.loads(json.dumps(first)) == again


def test_outputs_without_a_step_or_an_answer_are_counted(tmp_path):
    bare = row(r"We add them up. \boxed{42}", gold=42)
    report = made(tmp_path, row(gold=42), bare, bare, verifier="checker")
    assert any("2 of 3 outputs have no step to check" in line for line in report.warnings)
    part = report.components[-1]
    assert (part.name, part.weight, part.mean) == ("checkable", 0.0, pytest.approx(1 / 3))
    paper = made(tmp_path, *[row("I cannot tell", gold=42)] * 3)
    assert not any("to check" in line for line in paper.warnings)
    assert paper.unreadable == 3
    assert any("3 of 3 outputs" in w and "'I cannot tell'" in w for w in paper.warnings)


def test_without_gold_there_are_means_only(tmp_path):
    report = made(tmp_path, {"prompt": "q", "text": RIGHT, "confidence": 0.75})
    assert (report.accuracy, report.components[0].auc.value) == ({}, None)
    assert {c.name: c.mean for c in report.components}["confidence"] == 0.75
    assert report.reliability is None
    assert any("no gold" in warning for warning in report.warnings)


def test_one_question_has_no_interval(tmp_path):
    report = made(tmp_path, row("#### 42", gold=42), row("#### 41", gold=42))
    share = report.selection["single"]
    assert (share.value, share.low, share.high) == (0.5, None, None)


def test_the_tables_show_what_is_in_the_report_within_80_columns(file, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = CliRunner().invoke(app, ["score", str(file), "--task", "gsm8k"]).output
    words = ("gsm8k", "reachability", "outputs 40", "pairs 20", "50.00 %")
    assert all(
        word in text for word in (*words, "1.000 (1.000–1.000)", "oracle", "100.0 (100.0–100.0)")
    )
    assert "…" not in text


def test_a_choice_among_several_outputs(tmp_path):
    """Two of three questions are voted right; the verifier, which likes long texts, is right on one."""
    texts = {"a": ["42 " * 9, "#### 42", "#### 42", "#### 1"],
             "b": ["#### 42", "#### 42", "#### 41 and that is all"],
             "c": ["so 41 in the end", "#### 41", "#### 42"]}  # fmt: skip
    rows = [row(text, question=q, gold=42) for q, many in texts.items() for text in many]
    whole = made(tmp_path, *rows, verifier=lambda p, t, c: len(t) / 30)
    third, found = (
        pytest.approx(1 / 3),
        {rule: each.value for rule, each in whole.selection.items()},
    )
    single = pytest.approx((3 / 4 + 2 / 3 + 1 / 3) / 3)
    assert found == {"single": single, "vote": pytest.approx(2 / 3), "weighted vote": third,
                     "best by verifier": third, "agreement": third, "oracle": 1.0}  # fmt: skip
    assert whole.distinct == pytest.approx(8 / 3)
    assert whole.components[0].pair_accuracy.value is not None


LM_EVAL = {
    "doc_id": 0, "filter": "strict-match", "filtered_resps": ["42"], "exact_match": 1.0,
    "doc": {"question": "What is 6 * 7?", "answer": "6 * 7 = 42\n#### 42"},
    "target": "6 * 7 = 42\n#### 42", "resps": [["#### 42", "#### 41"]],
    "arguments": {"gen_args_0": {"arg_0": "Question: What is 6 * 7?\nAnswer:", "arg_1": {}}},
}  # fmt: skip


MATHS = {"problem": "p", "solution": r"so \boxed{\frac{1}{2}}"}
D1 = {"question": "q", "prompt_input": "p", "generations": r"\boxed{42}", "ground_truth": 42.0}


def test_samples_of_lm_eval_and_generations_of_d1_are_read_as_they_are(tmp_path):
    def read(task, *rows):
        return [(r.line, r.question, r.output, r.gold)
                for r in read_rows(write(tmp_path / "f.jsonl", rows), task)[0]]  # fmt: skip

    again = {**LM_EVAL, "filter": "flexible-extract"}  # the same outputs
    first = [(1, "What is 6 * 7?", f"#### {n}", LM_EVAL["target"]) for n in (42, 41)]
    second = [(3, *row[1:]) for row in first]
    assert read("gsm8k", LM_EVAL, again, {**LM_EVAL, "doc_id": 1}) == first + second
    maths = read("math500", {**LM_EVAL, "doc": MATHS, "target": "x"})[0]
    assert (maths[1], maths[3]) == ("p", r"\frac{1}{2}")
    assert read("gsm8k", {**LM_EVAL, "doc": {}})[0][1].startswith("Question: What is 6 * 7?")
    path = tmp_path / "gsm8k_0_generations.json"
    path.write_text(json.dumps({"generations": [D1, D1], "gen_length": 128}, indent=2))
    found = [(r.line, r.output, r.gold) for r in read_rows(path, "gsm8k")[0]]
    assert found == [(n, r"\boxed{42}", 42.0) for n in (1, 2)]


def test_code_is_judged_by_its_tests_and_compared_with_the_files_verdict(tmp_path):
    doc = {"task_id": "t/0", "prompt": "def add(a, b):\n", "entry_point": "add",
           "test": "def check(f):\n    assert f(1, 2) == 3\n"}  # fmt: skip
    rows = [{**doc, "output": "    return a + b\n", "passed": 1.0},
            {**doc, "output": "    return a - b\n", "passed": 1.0}]  # fmt: skip
    report = made(tmp_path, *rows, task="humaneval", draws=2)
    assert (report.accuracy, report.agreement) == ({"fixed": 0.5}, 0.5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "line 1, cannot be read"),
        ("[1]", "list, not an object"),
        ('{"question": "q"}', "'output'"),
        ('{"question": "q", "output": 3}', "'output'"),
        ('{"question": "q", "output": "x", "confidence": "high"}', "confidence='high'"),
        ('{"question": "q", "output": "x", "confidence": true}', "confidence=True is not a number"),
        ("", "no output of task"),
        ('{"task": "arc", "question": "q", "output": "x"}', "1 of other tasks"),
    ],
)
def test_a_file_that_does_not_fit_is_a_record_error(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(RecordError, match=message):
        score_file(path, "gsm8k")


@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.json", "pipe.jsonl.gz"])
def test_a_pipe_to_which_nobody_writes_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(RecordError, match=r"no output of task|cannot be read"):
        score_file(tmp_path / name, "gsm8k")


def test_the_escape_sequences_of_an_output_do_not_reach_the_terminal(tmp_path):
    hidden = "\x1b[2J\x1b]0;x\x07\x9b31m"
    rows = [row(f"{hidden}{n}", gold=n) for n in range(4)]
    path = write(tmp_path / "f.jsonl", rows)
    shown = CliRunner().invoke(app, ["score", str(path), "--task", "math500"]).output
    assert "no readable answer" in shown
    assert not set(shown) & set("\x1b\x07\x9b")


OUTPUTS = st.lists(
    st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 4)), min_size=1, max_size=30
)


@given(OUTPUTS)
def test_auc_and_pair_accuracy_are_what_their_definitions_say(outputs):
    scores = [score for score, _, _ in outputs]
    right = [is_right for _, is_right, _ in outputs]
    question = [number for _, _, number in outputs]
    counts = resamples(5, draws=5, seed=0)
    wins = [
        ((a > b) + (a == b) / 2, q == r)
        for a, x, q in zip(scores, right, question, strict=True)
        for b, y, r in zip(scores, right, question, strict=True)
        if x and not y
    ]
    same = [win for win, same_question in wins if same_question]
    ranked = auc(scores, right, question, counts)
    paired, pairs = pair_accuracy(scores, right, question, counts)
    assert pairs == len(same)
    assert ranked.value == (pytest.approx(np.mean([w for w, _ in wins])) if wins else None)
    assert paired.value == (pytest.approx(np.mean(same)) if same else None)


def test_the_interval_holds_the_figure_and_narrows_with_more_questions():
    rng = np.random.default_rng(0)
    widths = []
    for count in (40, 640):
        right = rng.random(count) < 0.5
        scores = right + rng.normal(0, 1.0, count)
        estimate = auc(list(scores), list(right), range(count), resamples(count, 400, 1))
        assert estimate.low < estimate.value < estimate.high
        widths.append(estimate.high - estimate.low)
    assert widths[1] < widths[0] / 2
