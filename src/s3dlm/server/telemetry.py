"""What an operator sees: one JSON object per line on standard error, and Prometheus metrics.

Neither contains prompts or answers unless the operator asks for them.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from s3dlm.errors import S3dlmError

LOGGER = logging.getLogger("s3dlm.server")
LONGEST_REASON = 500
SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class JsonLines(logging.Formatter):
    """Time, level, event, and the fields that came with it."""

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
        return json.dumps(line, ensure_ascii=False, default=str)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Where it happened; messages of this package quote the prompt, so only their type."""
        kind, error, place = ei
        what = kind.__name__ if isinstance(error, S3dlmError) else f"{kind.__name__}: {error}"
        return "".join(traceback.format_tb(place)) + what


def log(
    event: str, *, level: int = logging.INFO, with_traceback: bool = False, **fields: object
) -> None:
    """One line; a traceback is that of the exception being handled."""
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=with_traceback)


def reason(error: Exception, hidden: Sequence[str] = ()) -> str:
    """Why a verifier failed, without the texts that the operator does not want in the log."""
    cause = error.__cause__
    # A message of this package ends with the place and the prompt.
    text = str(error).partition(" at ")[0] if cause is None else str(cause)
    for secret in filter(None, hidden):
        text = text.replace(secret, "[prompt]")
    return f"{type(cause or error).__name__}: {text}"[:LONGEST_REASON]


def configure() -> None:
    """Send the server's lines, and the web server's own warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("s3dlm.server", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    LOGGER.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


class Metrics:
    """One registry per server; names start with s3dlm_."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"registry": self.registry}
        self.requests = Counter(
            "s3dlm_requests", "Answered requests.", ["endpoint", "status"], **own
        )
        self.latency = Histogram(
            "s3dlm_request_seconds", "Arrival to last byte.", ["endpoint"], buckets=SECONDS, **own
        )
        self.waiting = Gauge("s3dlm_queue_waiting", "Searches in the queue.", **own)
        self.running = Gauge("s3dlm_searches_running", "Searches that are running.", **own)
        self.queued = Histogram(
            "s3dlm_queue_seconds", "Seconds a search waited.", buckets=SECONDS, **own
        )
        self.ended = Counter(
            "s3dlm_searches", "Searches by how they ended.", ["method", "outcome"], **own
        )
        self.nfe = Counter("s3dlm_nfe", "Canvases forwarded.", **own)
        self.forwards = Counter("s3dlm_forwards", "Batched forward passes.", **own)
        self.batch = Histogram("s3dlm_batch_size", "Canvases per pass.", buckets=BATCH_SIZES, **own)
        self.forward_seconds = Counter("s3dlm_forward_seconds", "Seconds in the model.", **own)
        self.verifier_seconds = Counter("s3dlm_verifier_seconds", "Seconds in verifiers.", **own)
        self.stuck = Gauge("s3dlm_verifiers_stuck", "Abandoned verifier calls still alive.", **own)
        self.tokens = Counter("s3dlm_tokens", "Tokens of prompts and answers.", ["kind"], **own)

    def text(self) -> bytes:
        """The exposition format."""
        data: bytes = generate_latest(self.registry)
        return data
