"""A fake model whose forward passes wait for the test."""

from __future__ import annotations

import threading
from typing import Any

from s3dlm.models.base import Model
from tests.fakes import fake_model


def held_model() -> tuple[Model, threading.Event]:
    """The model, and the event that lets its forward passes go on."""
    model, gate = fake_model(), threading.Event()
    original = model.denoiser.encode
    model.denoiser.entered = threading.Event()  # type: ignore[attr-defined]

    def encode(*arguments: Any) -> Any:
        model.denoiser.entered.set()  # type: ignore[attr-defined]
        gate.wait(60)
        return original(*arguments)

    model.denoiser.encode = encode  # type: ignore[method-assign]
    return model, gate
