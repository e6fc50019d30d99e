"""`tiny` for tests of pages and examples: the shipped model, or a fake where its weights are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from s3dlm.models import registry
from s3dlm.models.base import Model
from tests.fakes import COUNTDOWN, fake_model

TEXTS = (*COUNTDOWN, "3 + 4 = 7. Therefore the answer is 7. <answer>7</answer>")


def has_tiny() -> bool:
    return (registry.BUNDLED["tiny"] / "model.safetensors").is_file()


def provide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `load("tiny")` work in this process."""
    if has_tiny():
        return
    real = registry.load

    def load(name: str, **options: Any) -> Model:
        return replace(fake_model(TEXTS), name="tiny") if name == "tiny" else real(name, **options)

    monkeypatch.setattr(registry, "load", load)
