"""Fuzzers: generators and properties, no recorded payloads.

Each has a small count in the quick set and a larger one in the slow set (`pytest -m slow tests/fuzz`), which
the environment variable S3DLM_FUZZ multiplies: S3DLM_FUZZ=10 tries ten times as much.
"""

from __future__ import annotations

import os
from typing import Any

import pytest


def counts(few: int, many: int) -> Any:
    """Runs a test with its argument `count`: quickly, and slowly with what the environment asks for."""
    many = max(1, round(many * float(os.environ.get("S3DLM_FUZZ", "1"))))
    slow = pytest.param(many, marks=[pytest.mark.slow, pytest.mark.timeout(7200)], id="slow")
    return pytest.mark.parametrize("count", [*([few] if few else []), slow])


def check_line(text: str, about: object) -> None:
    """What an error says: one line that is not too long."""
    assert text, about
    assert "\n" not in text, about
    assert len(text) < 900, about
