"""`s3dlm serve` around the fake model, for tests that need a process of their own."""

from __future__ import annotations

import sys

from s3dlm.server.app import create_app
from s3dlm.server.run import serve
from tests.fakes import fake_model

if __name__ == "__main__":
    serve(create_app(fake_model()), host="127.0.0.1", port=int(sys.argv[1]), grace=30)
