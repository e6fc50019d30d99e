"""`s3dlm serve` around the fake model, for tests that need a process of their own."""

from __future__ import annotations

import sys
import time
from typing import Any

from s3dlm.server.app import create_app
from s3dlm.server.run import bind_socket, serve
from tests.fakes import fake_model

if __name__ == "__main__":
    model = fake_model()
    original = model.denoiser.encode

    def slow(*arguments: Any) -> Any:
        time.sleep(0.03)  # so that a long request is still running when the signal comes
        return original(*arguments)

    model.denoiser.encode = slow  # type: ignore[method-assign]
    # The address goes to standard output, so that nobody needs to guess a free port.
    serve(
        create_app(model),
        bind_socket("127.0.0.1", 0),
        grace=float(sys.argv[1]),
        announce=lambda address: print(address, flush=True),
    )
