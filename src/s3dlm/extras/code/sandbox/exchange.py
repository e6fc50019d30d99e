"""What a confined program may use and what comes back from it: bounded in time and size, never trusted."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass

from s3dlm.errors import SettingsError
from s3dlm.extras.code.sandbox.values import Json

TOO_LONG, TOO_MUCH, ENDED = "took too long", "returned too much", "ended without an answer"
FINAL = (TOO_LONG, TOO_MUCH, ENDED)  # after one of these the process answers no more


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Bounds on one tested program; time is wall-clock time, start-up not counted."""

    seconds: float = 3.0
    memory_mb: int = 512
    threads: int = 16  # processes cannot be started at all
    open_files: int = 32
    output_bytes: int = 65_536  # of all that the program returns; what it prints is thrown away

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= 600:
            raise SettingsError(f"seconds={self.seconds} is not allowed; give 0 < seconds <= 600")
        minimum = {"memory_mb": 64, "threads": 1, "open_files": 8, "output_bytes": 256}
        for name, least in minimum.items():
            if getattr(self, name) < least:
                raise SettingsError(
                    f"{name}={getattr(self, name)} is not allowed; give at least {least}"
                )


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What became of one expression: a value as plain JSON, or an error and its line."""

    value: Json = None
    error: str = ""  # empty: there is a value
    line: int = 0  # of the program; 0: not known

    @property
    def ok(self) -> bool:
        """Whether the expression has a value."""
        return not self.error


class Exchange:
    """Requests to a confined process: one deadline and one amount of output for all of them."""

    def __init__(self, end: socket.socket, limits: SandboxLimits, seconds: float) -> None:
        self.end, self.bytes_left = end, limits.output_bytes
        self.deadline = time.monotonic() + seconds

    def ask(self, request: Json) -> CodeResult:
        """The reply; it comes from untrusted code, so its shape is checked."""
        try:
            self._wait()
            self.end.sendall(json.dumps(request).encode() + b"\n")
            match json.loads(self._line()):
                case {"value": value}:
                    return CodeResult(value)
                case {"error": [str(kind), str(message), int(line)]}:
                    return CodeResult(error=f"{kind}: {message}".rstrip(": "), line=line)
        except TimeoutError:
            return CodeResult(error=TOO_LONG)
        except OverflowError:
            return CodeResult(error=TOO_MUCH)
        except (OSError, EOFError, ValueError, RecursionError):
            pass
        return CodeResult(error=ENDED)

    def _line(self) -> bytes:
        data = bytearray()
        while not data.endswith(b"\n"):
            self._wait()
            more = self.end.recv(65_536)
            if not more:
                raise EOFError
            data += more
            if len(data) > self.bytes_left:
                raise OverflowError
        self.bytes_left -= len(data)
        return bytes(data)

    def _wait(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.end.settimeout(left)
