"""`s3dlm serve` around the fake model, for tests that need a process of their own."""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

import s3dlm
from s3dlm.server.app import create_app
from s3dlm.server.limits import Limits, bind_socket
from s3dlm.server.run import serve_until_signal
from tests.fakes import fake_model

# Nothing is judged by the clock: times that no busy machine needs.
HOUR = dict.fromkeys(
    ("seconds", "body_seconds", "verifier_seconds", "stall_seconds", "header_seconds",
     "idle_seconds", "send_seconds"), 3600.0,
)  # fmt: skip


def patient(**own: Any) -> Limits:
    """The limits of a server that cuts nobody for being slow, but for those that a test is about."""
    return Limits(**{**HOUR, **own})


class Panic(BaseException):
    """What a library that is not written in Python may raise: no `Exception`."""


def main(
    grace: float = 3600, gate: str = "", descriptors: int = 0, panic: str = "", usual: bool = False,
    send_seconds: float = 3600, text: str = "", model: str = "", send_buffer: int = 0,
) -> None:  # fmt: skip
    """Serve until a signal.

    Args:
        grace: Seconds for running requests after SIGTERM.
        gate: A file for which forward passes wait.
        descriptors: Limit of open files.
        panic: A byte in a prompt that ends the engine.
        usual: With the limits that users have.
        send_seconds: That limit.
        text: What the model likes to write.
        model: A bundled model in the place of the fake one.
        send_buffer: Bytes that the kernel takes unread.
    """
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    loaded = s3dlm.load(model) if model else fake_model(*([(text,)] if text else []))
    original = loaded.denoiser.encode

    def encode(tokens: Any, *others: Any) -> Any:
        while gate and not Path(gate).exists():
            time.sleep(0.01)
        if panic and (tokens == ord(panic)).any():
            raise Panic
        return original(tokens, *others)

    loaded.denoiser.encode = encode  # type: ignore[method-assign]
    limits = Limits() if usual else patient(send_seconds=send_seconds)
    app = create_app(loaded, limits=limits, defaults={"method": "s3"})
    bound = bind_socket("127.0.0.1", 0)
    if send_buffer:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    # The address goes to standard output, so that nobody needs to guess a free port.
    serve_until_signal(app, bound, grace=grace, announce=lambda url: print(url, flush=True))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
