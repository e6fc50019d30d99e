from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes import fake_model
from tests.server.live import Live, serving

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """One server for all tests that leave it as they found it."""
    with serving(fake_model()) as server:
        yield server
