"""One JSON object a line on standard error; prompts and answers only if the operator asks."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any

from s3dlm.errors import S3dlmError

LOGGER = logging.getLogger("s3dlm.server")


class JsonLines(logging.Formatter):
    """Time, level, event, and whatever fields came with it."""

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
        """Where it happened; our own messages quote the prompt, so of them only the kind."""
        kind, error, place = ei
        what = kind.__name__ if isinstance(error, S3dlmError) else f"{kind.__name__}: {error}"
        return "".join(traceback.format_tb(place)) + what


def log(
    event: str, *, level: int = logging.INFO, with_traceback: bool = False, **fields: object
) -> None:
    """One line; a traceback is that of the exception being handled."""
    LOGGER.log(level, event, extra={"fields": fields}, exc_info=with_traceback)


def configure() -> None:
    """Send the server's lines, and the web server's own warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("s3dlm.server", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    LOGGER.setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
