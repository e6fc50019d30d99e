"""What is told to whom: errors to clients, log lines and metrics to the operator.

Errors have OpenAI's shape, {"error": {"message": …, "type": …, "param": …, "code": …}}, with the types and
status codes that the official clients map to their exceptions; a path of another API has its own shape.
Nothing of an unexpected error leaves the server: its traceback goes to the log, and the client gets the
request id. Neither log nor metrics contain prompts or answers.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from starlette.exceptions import HTTPException

from s3dlm.errors import PromptError, S3dlmError, SettingsError, VerifierError

LONGEST_MESSAGE = 600  # characters; a request must not be echoed whole
LONGEST_PARAM = 120
LONGEST_REASON = 500
TYPES = {401: "authentication_error", 429: "rate_limit_error"}  # others go by their first digit
CODES = {404: "not_found", 405: "method_not_allowed"}
LOGGER = logging.getLogger("s3dlm.server")
SECONDS_BETWEEN_LINES = 10.0
_LAST_TIME: dict[str, float] = {}  # of events that are logged seldom
SECONDS_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ApiError(HTTPException):
    """A request that is not answered: status, message and headers for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        if retry_after is not None:
            headers = {"Retry-After": str(retry_after)}
        elif status >= 500:  # the official clients retry by themselves unless they are told not to
            headers = {"x-should-retry": "false"}
        super().__init__(status, _shortened(message, LONGEST_MESSAGE), headers)
        kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        self.body: dict[str, Any] = {
            "error": {
                "message": self.detail,
                "type": kind,
                "param": None if param is None else _shortened(param, LONGEST_PARAM),
                "code": code,
            }
        }


# Bodies of errors in the shape of another API, by its path.
ERROR_SHAPES: dict[str, Callable[[ApiError], dict[str, Any]]] = {}


def _shortened(text: str, longest: int) -> str:
    """The beginning of a text, without characters that cannot be sent."""
    text = text if len(text) <= longest else f"{text[:longest]}…"
    return text.encode(errors="replace").decode()


def shutting_down() -> ApiError:
    message = "the server is shutting down and accepts no new requests"
    return ApiError(503, message, code="shutting_down", retry_after=10)


def engine_failed() -> ApiError:
    message = "the server's engine has failed and the server will end; try again later"
    return ApiError(503, message, code="engine_failed", retry_after=30)


def as_api_error(error: BaseException, request_id: str | None = None) -> ApiError:
    """What the client is told about any error; unexpected ones reveal nothing."""
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return _malformed(error.errors(), error.body)
        case HTTPException(status_code=status, detail=detail):
            return ApiError(status, str(detail), code=CODES.get(status))
        case SettingsError():
            return ApiError(400, str(error), code="invalid_settings")
        case PromptError():
            return ApiError(400, str(error), code="invalid_prompt")
        case VerifierError():  # its text is foreign: it belongs in the log
            message = "the verifier failed on this request; the server's log says why"
            return ApiError(500, message, code="verifier_failed")
        case S3dlmError():
            return ApiError(500, str(error), code="model_failed")
    where = f"; its id in the log is {request_id}" if request_id else ""
    return ApiError(500, f"the server failed on this request{where}", code="internal_error")


def _malformed(mistakes: Sequence[Mapping[str, Any]], body: object) -> ApiError:
    """A body that is not JSON or does not match the schema."""
    first = mistakes[0]
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        return ApiError(400, message, code="invalid_json")
    places = [_place(each, body) for each in mistakes]
    # The deepest: who sends a list with a wrong part need not hear that a text is allowed, too.
    place = max(places, key=lambda place: place.count("."))
    told = zip(mistakes, places, strict=True)  # one message for each type that was tried there
    messages = dict.fromkeys(each["msg"] for each, where in told if where == place)
    name = _shortened(place, LONGEST_PARAM) or "the body"
    return ApiError(400, f"{name}: {'; or: '.join(messages)}", param=place or None)


def _place(mistake: Mapping[str, Any], body: object) -> str:
    """Where in the body, without the names of the types that were tried there."""
    path: list[str] = []
    for left, part in enumerate(mistake["loc"][1:], 2 - len(mistake["loc"])):
        if isinstance(body, dict) and part in body:
            body = body[part]
        elif isinstance(body, list) and isinstance(part, int):
            body = body[part] if part < len(body) else None
        elif left or mistake["type"] != "missing":
            continue
        path.append(str(part))
    return ".".join(path)


class JsonLines(logging.Formatter):
    """Time, level, event, and the fields that came with it; ASCII, so that one event is one line."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Where it happened; messages of this package quote the prompt, so only their type."""
        kind, error, place = ei
        what = kind.__name__ if isinstance(error, S3dlmError) else f"{kind.__name__}: {error}"
        return "".join(traceback.format_tb(place)) + what


def configure_logging() -> None:
    """Send the server's lines, and the web server's own warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in (("s3dlm.server", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def log(
    event: str,
    *,
    level: int = logging.INFO,
    with_traceback: bool = False,
    seldom: bool = False,
    **fields: object,
) -> None:
    """One line, `seldom` at most every ten seconds; a traceback is that of the exception being
    handled."""
    if seldom:
        if time.monotonic() - _LAST_TIME.get(event, -math.inf) < SECONDS_BETWEEN_LINES:
            return
        _LAST_TIME[event] = time.monotonic()
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=with_traceback)


def log_verifier_failure(error: VerifierError, hidden: Sequence[str]) -> None:
    """Why a verifier failed, without the prompt."""
    cause = error.__cause__
    # A message of this package ends with the place and the prompt.
    text = str(error).partition(" at ")[0] if cause is None else str(cause)
    for secret in filter(None, hidden):
        text = text.replace(secret, "[prompt]")
    reason = f"{type(cause or error).__name__}: {text}"[:LONGEST_REASON]
    log("verifier failed", level=logging.ERROR, reason=reason)


class Metrics:
    """Prometheus metrics, one registry per server; each carries the model's name as a label."""

    def __init__(self, model: str) -> None:
        self.model, self.registry = model, CollectorRegistry()
        shared: dict[str, Any] = {"namespace": "s3dlm", "registry": self.registry}
        counter, gauge = partial(Counter, **shared), partial(Gauge, **shared)
        histogram = partial(Histogram, buckets=SECONDS_BUCKETS, **shared)
        self.requests = counter("requests", "Answered requests.", ("endpoint", "status"))
        self.latency = histogram("request_seconds", "Arrival to last byte.", ("endpoint",))
        self.waiting = gauge("queue_waiting", "Searches in the queue.")
        self.running = gauge("searches_running", "Searches that are running.")
        self.queued = histogram("queue_seconds", "Seconds a search waited.")
        self.ended = counter("searches", "Searches by how they ended.", ("method", "outcome"))
        self.nfe = counter("nfe", "Canvases forwarded.")
        self.forwards = counter("forwards", "Batched forward passes.")
        self.batch = histogram("batch_size", "Canvases per pass.", buckets=BATCH_BUCKETS)
        self.forward_seconds = counter("forward_seconds", "Seconds in the model.")
        self.verifier_seconds = counter("verifier_seconds", "Seconds in verifiers.")
        self.stuck = gauge("verifiers_stuck", "Abandoned verifier calls still alive.")
        self.tokens = counter("tokens", "Tokens of prompts and answers.", ("kind",))

    def collect(self, **labels: str) -> Iterator[Metric]:
        labels["model"] = self.model
        for metric in self.registry.collect():
            metric.samples = [s._replace(labels={**labels, **s.labels}) for s in metric.samples]
            yield metric
