"""Every error of the API, in OpenAI's shape.

    {"error": {"message": …, "type": …, "param": …, "code": …}}

Types and status codes are those that the official clients map to their exceptions. Nothing of an
unexpected error leaves the server: its traceback goes to the log, and the client gets the request id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from s3dlm.errors import ModelError, PromptError, S3dlmError, SettingsError, VerifierError

INVALID = "invalid_request_error"


class ApiError(Exception):
    """A request that is not answered: status, message and headers for the client."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }


NO_RETRY = {"x-should-retry": "false"}  # the official clients retry by themselves


def queue_full(waiting: int, retry_after: int) -> ApiError:
    return ApiError(
        429,
        f"the queue is full: {waiting} searches are waiting; try again in {retry_after} s",
        kind="rate_limit_error",
        code="queue_full",
        headers={"Retry-After": str(retry_after)},
    )


def shutting_down() -> ApiError:
    return ApiError(
        503,
        "the server is shutting down and accepts no new requests",
        kind="server_error",
        code="shutting_down",
        headers={"Retry-After": "10"},
    )


def too_late(seconds: float) -> ApiError:
    return ApiError(
        504,
        f"the search took longer than this server's limit of {seconds:g} s; use fewer steps, "
        "particles or tokens",
        kind="server_error",
        code="time_limit",
        headers=NO_RETRY,
    )


def verifier_hangs(seconds: float) -> ApiError:
    return ApiError(
        504,
        f"the verifier did not answer within {seconds:g} s and was cut off; use another verifier",
        kind="server_error",
        code="verifier_timeout",
        headers=NO_RETRY,
    )


def verifiers_stuck(count: int) -> ApiError:
    return ApiError(
        503,
        f"{count} calls of registered verifiers hang; requests without `verifier` still work",
        kind="server_error",
        code="verifier_stuck",
        headers=NO_RETRY,
    )


def slow_reader(backlog: int) -> ApiError:
    return ApiError(
        408,
        f"the client is {backlog} steps behind and was cut off; read faster",
        code="slow_reader",
        headers=NO_RETRY,
    )


def internal(request_id: str | None = None) -> ApiError:
    where = f"; its id in the log is {request_id}" if request_id else ""
    return ApiError(
        500,
        f"the server failed on this request{where}",
        kind="server_error",
        code="internal_error",
        headers=NO_RETRY,
    )


def malformed(errors: Sequence[Mapping[str, Any]], body: object) -> ApiError:
    """A body that is not JSON or does not match the schema; names the first mistake."""
    first = errors[0]
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        return ApiError(400, message, code="invalid_json")
    place = _place(first, body)
    wrong = [one["msg"] for one in errors if _place(one, body) == place]  # one for each alternative
    message = f"{place or 'the body'}: {'; or: '.join(dict.fromkeys(wrong))}"
    return ApiError(400, message, param=place or None)


def _place(error: Mapping[str, Any], body: object) -> str:
    """Where in the body, without the names of the types that were tried there."""
    path: list[str] = []
    for part in error["loc"][1:]:
        if isinstance(body, dict) and part in body:
            body = body[part]
        elif isinstance(body, list) and isinstance(part, int):
            body = body[part] if part < len(body) else None
        elif error["type"] != "missing":
            continue
        path.append(str(part))
    return ".".join(path)


def as_api_error(error: BaseException, request_id: str | None = None) -> ApiError:
    """What the client is told about any error; unexpected ones reveal nothing."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SettingsError):
        return ApiError(400, str(error), code="invalid_settings")
    if isinstance(error, PromptError):
        return ApiError(400, str(error), code="invalid_prompt")
    if isinstance(error, VerifierError):
        return ApiError(
            500, str(error), kind="server_error", code="verifier_failed", headers=NO_RETRY
        )
    if isinstance(error, ModelError | S3dlmError):
        return ApiError(500, str(error), kind="server_error", code="model_failed", headers=NO_RETRY)
    return internal(request_id)
