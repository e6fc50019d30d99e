"""`s3dlm serve` around the fake model, for tests that need a process of their own."""

from __future__ import annotations

import sys
import time
from typing import Any

from s3dlm.server.app import create_app
from s3dlm.server.run import open_door, serve
from tests.fakes import fake_model

if __name__ == "__main__":
    model = fake_model()
    free = model.denoiser.encode

    def unhurried(*arguments: Any) -> Any:
        time.sleep(0.03)  # so that a long request is still running when the signal comes
        return free(*arguments)

    model.denoiser.encode = unhurried  # type: ignore[method-assign]
    serve(create_app(model), open_door("127.0.0.1", int(sys.argv[1])), grace=30)
