from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from tests.server.live import Live, serving


@pytest.fixture(scope="session")
def live() -> Iterator[Live]:
    """One server for all tests that leave it as they found it."""
    with serving() as server:
        yield server
