"""One thread for small tensors, and no look-ups on the network."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from s3dlm.search.methods import METHODS
from s3dlm.search.weigh import WEIGHTS

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _methods_as_they_were() -> Iterator[None]:
    """Examples register methods; the next test must not see them."""
    methods, weights = dict(METHODS), dict(WEIGHTS)
    yield
    for table, before in ((METHODS, methods), (WEIGHTS, weights)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]
