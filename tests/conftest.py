"""One thread for small tensors, no look-ups on the network, and tables as every test found them."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator

import pytest

from s3dlm.search.methods import METHODS
from s3dlm.search.weigh import WEIGHTS


@pytest.fixture(autouse=True)
def _methods_as_they_were() -> Iterator[None]:
    """Examples register methods; the next test must not see them."""
    methods, weights = dict(METHODS), dict(WEIGHTS)
    yield
    for table, before in ((METHODS, methods), (WEIGHTS, weights)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]
