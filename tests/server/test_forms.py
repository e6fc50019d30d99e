"""A JSON form is built and read outside the event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from s3dlm.verifier.json_format import JsonFormat
from tests.fakes import fake_model
from tests.server.live import code, serving

LARGE_SCHEMA = {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}}] * 80 + [{}]}


def wanted(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}


def test_no_form_is_read_in_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    where: set[str] = set()
    for name in ("__post_init__", "progress"):
        original = getattr(JsonFormat, name)

        def noted(form: JsonFormat, *more: Any, original: Any = original) -> Any:
            where.add(threading.current_thread().name.partition("-")[0].partition("_")[0])
            return original(form, *more)

        monkeypatch.setattr(JsonFormat, name, noted)
    with serving(fake_model(('{"a": 1}',))) as live:
        answer = live.ask("x", response_format=wanted(LARGE_SCHEMA), n=2)
        assert answer.status_code in (200, 422), answer.text
        too_many = live.ask("x", response_format=wanted({"anyOf": [{}] * 4900}))
    assert where == {"form", "verifier"}
    assert code(too_many) == (400, "invalid_settings")
