"""One thread for small tensors, no look-ups on the network, and tables as every test found them."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_worker_niceness", "0")  # by Ray's own 15 they starve on a busy machine

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from s3dlm.search.methods import METHODS
from s3dlm.verifier import own

# `make test` runs files side by side in this order: the longest first, so that none is left to one
# worker at the end.
LONGEST = (
    "test_block_decoding.py",
    "test_replicas.py",
    "test_sharded.py",
    "test_distributed.py",
    "test_documented_answers.py",
    "test_report.py",
    "test_golden.py",
    "test_frontier.py",
    "test_rounds.py",
    "test_viewer.py",
    "test_docs.py",
    "test_checker.py",
    "test_gpu.py",
    "test_own_loops.py",
    "test_connections.py",
    "test_mathverify.py",
    "test_cache.py",
    "test_screening.py",
    "test_steering.py",
    "test_run.py",
    "test_memo.py",
    "test_reveal.py",
    "test_examples.py",
    "test_fuzz.py",
    "test_problems.py",
    "test_target.py",
    "test_tiny.py",
    "test_resampling.py",
    "test_lm_eval.py",
    "test_reproduce.py",
    "test_scheduler.py",
    "test_patterns.py",
    "test_hostile.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one process alone runs what it is given, in that order
        rank = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Workers must name a test alike: packed bytes may hold the time, and a set has no order."""
    return f"{argname}:{len(val)}" if isinstance(val, bytes | set | frozenset) else None


@pytest.fixture(autouse=True)
def _tables_as_they_were() -> Iterator[None]:
    """Examples register methods, and tests name files of verifiers; the next test must not see them."""
    tables: tuple[dict[Any, Any], ...] = (METHODS._known, own._FILES)
    before = [dict(table) for table in tables]
    yield
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports get the data of their figures only: drawing takes most of the time of a small report.

    tests/evaluation/test_report.py and benchmarks/frontier/test_frontier.py draw every figure.
    """
    from s3dlm.evaluation import figures, records

    def write_data(make: Any, name: str, data: Any, folder: Path) -> str:
        for key, frame in data.items():
            records.write_atomic(folder / f"{key}.csv", frame.to_csv())
        (folder / f"{name}.png").touch()
        (folder / f"{name}.svg").write_text("<svg/>")
        return "<svg/>"

    monkeypatch.setattr(figures, "save", write_data)
