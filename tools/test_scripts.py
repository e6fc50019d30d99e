"""What is run by hand follows the package: every tool and every study can be imported."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in ("tools", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.stem.startswith(("test_", "conftest"))
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_tools_and_benchmarks_follow_the_package(name: str) -> None:
    importlib.import_module(name)
