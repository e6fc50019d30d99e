"""One OpenTelemetry span per request, if OTEL_TRACES_EXPORTER names an exporter; extra `otel`.

As in the log, there are no prompts and no answers.
"""

from __future__ import annotations

import os
import time
from typing import Any

from starlette.requests import Request

from s3dlm.errors import MissingExtraError, SettingsError
from s3dlm.inputs import find_entry_points, load_entry_point

ATTRIBUTES = {  # of what the log says; named as OpenTelemetry does for generative AI where it can be
    "prompt_tokens": "gen_ai.usage.input_tokens", "completion_tokens": "gen_ai.usage.output_tokens",
    "nfe": "s3dlm.nfe", "search": "s3dlm.method", "task": "s3dlm.task", "error": "error.type",
}  # fmt: skip


def tracing() -> Any:
    """A provider of tracers with the exporter that the environment names, or None."""
    name = os.environ.get("OTEL_TRACES_EXPORTER") or "none"
    if name == "none":
        return None
    try:
        from opentelemetry.sdk import resources, trace
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtraError("opentelemetry-sdk", "otel") from error
    known = find_entry_points("opentelemetry_traces_exporter")
    if name not in known:
        raise SettingsError(
            f"OTEL_TRACES_EXPORTER={name!r} is not installed; there are: {', '.join(known)}, none. "
            "For otlp run: pip install opentelemetry-exporter-otlp-proto-http"
        )
    service = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "s3dlm")}
    provider = trace.TracerProvider(resource=resources.Resource.create(service))
    exporter: Any = load_entry_point(known[name], object)
    provider.add_span_processor(BatchSpanProcessor(exporter()))
    return provider


def record_span(
    tracer: Any, request: Request, endpoint: str, model: str, status: int, seconds: float
) -> None:
    """The span of a request that has just been answered or refused."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    note, name = request.state.note, f"{request.method} {endpoint}"
    parent = TraceContextTextMapPropagator().extract(request.headers)
    attributes = {"gen_ai.request.model": model, "http.response.status_code": status}
    attributes |= {ATTRIBUTES[key]: note[key] for key in ATTRIBUTES if note.get(key) is not None}
    started = time.time_ns() - int(seconds * 1e9)
    tracer.start_span(name, parent, attributes=attributes, start_time=started).end()
