"""Spans of requests, in memory."""

from __future__ import annotations

import pytest

from s3dlm.errors import SettingsError
from s3dlm.server.telemetry import tracing
from tests.server.live import QUESTION, serving, wait_for
from tests.server.test_door import KEY

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_one_span_per_request_without_its_text() -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with serving(spans=provider, api_key=KEY) as live:
        headers = {"authorization": f"Bearer {KEY}", "traceparent": PARENT}
        body = {"model": "fake", "prompt": QUESTION}
        usage = live.http.post("/v1/completions", json=body, headers=headers).json()["usage"]
        live.http.post("/v1/completions", json=body)
        live.http.get("/health")
        live.http.get("/v1/traces/a-secret/name", headers=headers)
        wait_for(lambda: len(spans.get_finished_spans()) == 3)
    answered, refused, elsewhere = spans.get_finished_spans()
    assert elsewhere.name == "GET other"  # no path of a client's choosing
    assert answered.name == refused.name == "POST /v1/completions"
    told = dict(answered.attributes or {})
    assert told == {
        "gen_ai.request.model": "fake",
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
        "http.response.status_code": 200,
        "s3dlm.method": "s3",
        "s3dlm.nfe": usage["nfe"],
    }
    assert answered.parent is not None
    assert format(answered.parent.span_id, "016x") == PARENT.split("-")[2]
    assert dict(refused.attributes or {})["error.type"] == "invalid_api_key"


def test_spans_are_off_unless_the_environment_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_EXPORTER", raising=False)
    assert tracing() is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert tracing() is None
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nowhere")
    with pytest.raises(SettingsError, match="pip install opentelemetry-exporter"):
        tracing()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    provider = tracing()
    assert provider.resource.attributes["service.name"] == "s3dlm"
    provider.shutdown()
