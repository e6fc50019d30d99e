"""Today's answers are those of the fixture; see record.py for when it may change."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.fuzz import counts
from tests.golden import record


@pytest.fixture(scope="module")
def golden() -> Any:
    return json.loads(gzip.decompress(record.GOLDEN.read_bytes()))


# Chains take half of the time: two methods run them here, the others in the slow set, which has all
# problems. No problem's result depends on the others.
PAIRS = [
    pytest.param(
        method, task, marks=[pytest.mark.slow] * (task == "chain" and method not in ("s3", "best"))
    )
    for task in record.TASKS
    for method in record.METHODS
]


@pytest.mark.parametrize(("method", "task"), PAIRS)
@counts(6, record.PROBLEMS)
def test_searches(golden: Any, method: str, task: str, count: int) -> None:
    found = record.searches(method, task, count)
    assert found == golden["searches"][f"{method}/{task}"][:count]


def test_infilling(golden: Any) -> None:
    assert record.infilling() == golden["infilling"]


def test_server_replies(golden: Any) -> None:
    pytest.importorskip("fastapi")
    assert record.replies() == golden["replies"]
