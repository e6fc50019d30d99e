"""Settings to evaluate a model with when the user names none, as plain data.

The shipped model was trained on short answers. Every other model gets the paper's setting
(`*`); what is not listed keeps the default of `Settings`.
"""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS: Mapping[str, Mapping[str, object]] = {
    # Sharp predictions repeat each other at lower temperatures; λ = 1 hardly tilts (docs/results.md).
    "tiny": {
        "gen_length": 64, "steps": 32, "block_length": 64, "particles": 4, "branching": 2,
        "temperature": 1.5, "lam": 10.0,
    },
    "*": {"gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2},
}  # fmt: skip

# What single methods have of their own, chosen on the validation split by `s3dlm tune`.
TUNED: Mapping[str, Mapping[str, Mapping[str, object]]] = {"tiny": {}}

TASKS: Mapping[str, tuple[str, ...]] = {
    "tiny": ("arithmetic", "countdown", "sudoku", "choice"),
    "*": ("gsm8k", "math500", "arc", "truthfulqa"),
}


def settings(model: str) -> dict[str, object]:
    """The settings a model is evaluated with unless the user says otherwise."""
    return dict(SETTINGS.get(model, SETTINGS["*"]))


def tuned(model: str) -> dict[str, dict[str, object]]:
    """Settings of single methods, by method."""
    return {label: dict(own) for label, own in TUNED.get(model, {}).items()}


def tasks(model: str) -> tuple[str, ...]:
    """The tasks a model is evaluated on unless the user says otherwise."""
    return TASKS.get(model, TASKS["*"])
