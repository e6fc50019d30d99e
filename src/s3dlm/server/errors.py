"""Every error of the API, in OpenAI's shape.

    {"error": {"message": …, "type": …, "param": …, "code": …}}

Types and status codes are those that the official clients map to their exceptions. Nothing of an
unexpected error leaves the server: its traceback goes to the log, and the client gets the request id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from s3dlm.errors import PromptError, S3dlmError, SettingsError, VerifierError

INVALID = "invalid_request_error"
LONGEST_MESSAGE = 600  # characters; a request must not be echoed whole
LONGEST_PARAM = 120


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
        message = shortened(message, LONGEST_MESSAGE)
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        param = None if param is None else shortened(param, LONGEST_PARAM)
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }


def shortened(text: str, most: int) -> str:
    """At most so many characters, all of which can be sent."""
    text = text if len(text) <= most else f"{text[:most]}…"
    return text.encode(errors="replace").decode()


def _server_error(status: int, code: str, message: str, retry_after: int | None = None) -> ApiError:
    # The official clients retry by themselves unless they are told not to.
    again = (
        {"x-should-retry": "false"} if retry_after is None else {"Retry-After": f"{retry_after}"}
    )
    return ApiError(status, message, kind="server_error", code=code, headers=again)


def queue_full(waiting: int, retry_after: int) -> ApiError:
    return ApiError(
        429,
        f"the queue is full: {waiting} searches are waiting; try again in {retry_after} s",
        kind="rate_limit_error",
        code="queue_full",
        headers={"Retry-After": str(retry_after)},
    )


def shutting_down() -> ApiError:
    message = "the server is shutting down and accepts no new requests"
    return _server_error(503, "shutting_down", message, retry_after=10)


def engine_failed() -> ApiError:
    message = "the server's engine has failed and the server will end; try again later"
    return _server_error(503, "engine_failed", message, retry_after=30)


def no_such_form(survivors: int) -> ApiError:
    return ApiError(
        422,
        f"none of the {survivors} survivors has the wanted response_format; try more particles, "
        "another seed, or a prompt that asks for JSON",
        code="format_not_reached",
    )


def too_late(seconds: float) -> ApiError:
    return _server_error(
        504,
        "time_limit",
        f"the search took longer than this server's limit of {seconds:g} s; use fewer steps, "
        "particles or tokens",
    )


def verifier_hangs(seconds: float) -> ApiError:
    message = f"the verifier did not answer within {seconds:g} s; use another verifier"
    return _server_error(504, "verifier_timeout", message)


def verifiers_stuck(count: int) -> ApiError:
    message = f"{count} calls of registered verifiers hang; requests without `verifier` still work"
    return _server_error(503, "verifier_stuck", message)


def internal(request_id: str | None = None) -> ApiError:
    where = f"; its id in the log is {request_id}" if request_id else ""
    return _server_error(500, "internal_error", f"the server failed on this request{where}")


def malformed(errors: Sequence[Mapping[str, Any]], body: object) -> ApiError:
    """A body that is not JSON or does not match the schema; names the first mistake."""
    first = errors[0]
    if first["type"] == "json_invalid":
        message = f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        return ApiError(400, message, code="invalid_json")
    place = _place(first, body)
    wrong = [one["msg"] for one in errors if _place(one, body) == place]  # one for each alternative
    name = shortened(place, LONGEST_PARAM) or "the body"
    return ApiError(400, f"{name}: {'; or: '.join(dict.fromkeys(wrong))}", param=place or None)


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
    if isinstance(error, VerifierError):  # its text is foreign: it belongs in the log
        message = "the verifier failed on this request; the server's log says why"
        return _server_error(500, "verifier_failed", message)
    if isinstance(error, S3dlmError):
        return _server_error(500, "model_failed", str(error))
    return internal(request_id)
