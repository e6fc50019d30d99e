"""One OpenTelemetry span per request, if OTEL_TRACES_EXPORTER names an exporter; extra `otel`.

As in the log, there are no prompts and no answers.
"""

from __future__ import annotations

import os
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class Spans:
    """Around everything else, so that refused requests have a span, too."""

    def __init__(self, app: ASGIApp, model: str, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.app, self.model, self.tracer = app, model, provider.get_tracer("s3dlm")
        self.parent = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ("/health", "/metrics"):
            return await self.app(scope, receive, send)
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        name, parent = f"{scope['method']} {scope['path']}"[:80], self.parent.extract(headers)
        with self.tracer.start_as_current_span(name, context=parent) as span:

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            try:
                await self.app(scope, receive, answer)
            finally:
                note = scope.get("state", {}).get("note", {})
                told = {
                    ATTRIBUTES[key]: note[key] for key in ATTRIBUTES if note.get(key) is not None
                }
                span.set_attributes({"gen_ai.request.model": self.model, **told})
