"""Today's answers are those of the fixture; see record.py for when it may change."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.golden import record
from tests.golden.cases import cases

CASES = {case.name: case for case in cases()}
OTHER_BITS = {  # ways to make the last bits of sums differ on one machine
    "plain instructions": {"ATEN_CPU_CAPABILITY": "default"},
    "compatible sums": {"MKL_CBWR": "COMPATIBLE"},
}
BEGINNINGS = ("revise/arithmetic", "s3/choice", "restarts/countdown", "particle_gibbs/arithmetic")
A_FEW = [next(name for name in CASES if name.startswith(each)) for each in BEGINNINGS]


@pytest.fixture(scope="module")
def golden() -> Any:
    return record.load()


def test_every_case_is_recorded_under_a_name_of_its_own(golden: Any) -> None:
    assert sorted(case.name for case in cases()) == sorted(golden["searches"])


@pytest.mark.parametrize("name", CASES)
def test_first_problem(golden: Any, name: str) -> None:
    """Chains are run whole: padded to more than 192 tokens, a row's last bits were seen to change with
    the lengths that it shares a batch with."""
    case = CASES[name]
    count = case.problems if case.task == "chain" else 1
    found = record.run(dataclasses.replace(case, problems=count))
    assert not record.differences(found, golden["searches"][name][:count])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_all_problems(golden: Any, name: str) -> None:
    assert not record.differences(record.run(CASES[name]), golden["searches"][name])


@pytest.mark.parametrize("bits", OTHER_BITS)
def test_another_processor_gives_the_same_answers(golden: Any, bits: str) -> None:
    """The instruction set is chosen when torch is imported, so this needs a process of its own."""
    program = (
        "import json, sys; from tests.golden import record, test_golden;"
        "print(json.dumps({n: record.run(test_golden.CASES[n]) for n in test_golden.A_FEW}))"
    )
    environment = {**os.environ, **OTHER_BITS[bits]}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == set(A_FEW)
    for name, results in found.items():
        assert not record.differences(results, golden["searches"][name])


def test_server_replies(golden: Any) -> None:
    pytest.importorskip("fastapi")
    assert not record.differences(record.replies(), golden["replies"])


def test_a_difference_says_what_differs() -> None:
    assert record.differences({"nfe": 3, "p": 0.5}, {"nfe": 4, "p": 0.5 + 1e-9}) == [
        ".nfe is 3, recorded as 4"
    ]
    assert record.differences([1.0], [1.0 + 1e-3]) == ["[0] is 1.0, recorded as 1.001"]
    assert len(record.differences([1.0, "a"], [1.0])) == 1
