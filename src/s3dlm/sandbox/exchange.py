"""Questions to a confined process and what comes back: bounded in time and size, and never trusted."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass

from s3dlm.sandbox.values import Json

TOO_LONG, TOO_MUCH, ENDED = "took too long", "returned too much", "ended without an answer"
FINAL = (TOO_LONG, TOO_MUCH, ENDED)  # after one of these the process answers no more


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one expression: a value as plain JSON, or an error and its line."""

    value: Json = None
    error: str = ""  # empty: there is a value
    line: int = 0  # of the program; 0: not known

    @property
    def ok(self) -> bool:
        """Whether the expression has a value."""
        return not self.error


class Line:
    """Requests to a confined process: one deadline and one amount of output for all of them."""

    def __init__(self, end: socket.socket, most: int, seconds: float) -> None:
        self.end, self.most = end, most
        self.deadline = time.monotonic() + seconds

    def ask(self, request: Json) -> Outcome:
        reply = self.exchange(request)
        return Outcome(error=reply) if isinstance(reply, str) else outcome_of(reply)

    def exchange(self, request: Json) -> dict[str, Json] | str:
        """The reply, or in words why there is none."""
        try:
            self._wait()
            self.end.sendall(json.dumps(request).encode() + b"\n")
            reply = json.loads(self._line())
        except TimeoutError:
            return TOO_LONG
        except OverflowError:
            return TOO_MUCH
        except (OSError, ValueError, RecursionError):
            return ENDED
        return reply if isinstance(reply, dict) else ENDED

    def _line(self) -> bytes:
        data = bytearray()
        while not data.endswith(b"\n"):
            self._wait()
            more = self.end.recv(65_536)
            if not more:
                raise EOFError
            data += more
            if len(data) > self.most:
                raise OverflowError
        self.most -= len(data)
        return bytes(data)

    def _wait(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.end.settimeout(left)


def outcome_of(reply: dict[str, Json]) -> Outcome:
    """A reply as an outcome; it comes from untrusted code, so its shape is checked."""
    if "value" in reply:
        return Outcome(reply["value"])
    match reply.get("error"):
        case [str(kind), str(message), int(line)]:
            return Outcome(error=f"{kind}: {message}".rstrip(": "), line=line)
    return Outcome(error=ENDED)
