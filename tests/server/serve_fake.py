"""`s3dlm serve` around the fake model, for tests that need a process of their own."""

from __future__ import annotations

import argparse
import resource
import socket
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--grace", type=float, default=3600)
    parser.add_argument("--gate", type=Path, help="a file for which forward passes wait")
    parser.add_argument("--descriptors", type=int, help="limit of open files")
    parser.add_argument("--panic", help="a byte in a prompt that ends the engine")
    parser.add_argument("--usual", action="store_true", help="with the limits that users have")
    parser.add_argument("--send-seconds", type=float, default=3600)
    parser.add_argument("--text", help="what the model likes to write")
    parser.add_argument("--model", help="a bundled model in the place of the fake one")
    parser.add_argument("--send-buffer", type=int, help="bytes that the kernel takes unread")
    asked = parser.parse_args()
    if asked.descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (asked.descriptors, asked.descriptors))
    limits = Limits() if asked.usual else patient(send_seconds=asked.send_seconds)
    model = fake_model((asked.text,)) if asked.text else fake_model()
    model = s3dlm.load(asked.model) if asked.model else model
    original = model.denoiser.encode

    def encode(tokens: Any, *others: Any) -> Any:
        while asked.gate and not asked.gate.exists():
            time.sleep(0.01)
        if asked.panic and (tokens == ord(asked.panic)).any():
            raise Panic
        return original(tokens, *others)

    model.denoiser.encode = encode  # type: ignore[method-assign]
    bound = bind_socket("127.0.0.1", 0)
    if asked.send_buffer:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, asked.send_buffer)
    # The address goes to standard output, so that nobody needs to guess a free port.
    serve_until_signal(
        create_app(model, limits=limits, defaults={"method": "s3"}),
        bound,
        grace=asked.grace,
        announce=lambda address: print(address, flush=True),
    )


if __name__ == "__main__":
    main()
