"""A network in parts, in two processes, is the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import s3dlm
from s3dlm.errors import SettingsError
from tests.extras.parallel.sharded_worker import ASKED
from tests.models.networks import SHAPES


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two processes found."""
    out, root = tmp_path_factory.mktemp("sharded") / "found.json", Path(__file__).parents[3]
    command = [sys.executable, "-m", "tests.extras.parallel.sharded_worker", str(out)]
    workers = [
        subprocess.Popen(
            command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank)},
            stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        told = [worker.communicate(timeout=900)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert not any(worker.returncode for worker in workers), told
    return json.loads(out.read_text())


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_are_those_of_one_process(found: Any, shape: str) -> None:
    assert found["errors"][shape] < 2e-4


def test_a_search_in_two_processes_ends_both(found: Any) -> None:
    expected = s3dlm.generate(s3dlm.load("tiny", device="cpu"), **ASKED)  # type: ignore[arg-type]
    assert (found["text"], found["nfe"]) == (expected.text, expected.nfe)
    assert found["repr"].startswith("Model('tiny', Sharded, ")
    assert "context" in found["long"]
    assert "heads=3 of this model cannot be dealt to 2 processes" in found["odd"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "torchrun"),
        ({"devices": "cpu,cpu", "quantize": "int8"}, "leave out devices, quantize"),
        ({"device": "cuda:1"}, "leave out the number of the device"),
    ],
)
def test_mistakes(options: Any, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SettingsError, match=told):
        s3dlm.load("tiny", tensor_parallel=True, **options)
