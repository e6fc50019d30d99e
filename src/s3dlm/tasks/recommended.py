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
        "temperature": 2.0, "lam": 10.0,
    },
    "*": {"gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2},
}  # fmt: skip

# What single methods have of their own, chosen on the validation split by `s3dlm tune`.
# `best` would be a point better at 2.0 and cost more than twice the rows.
TUNED: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "tiny": {
        "baseline": {"temperature": 0.7},
        "best_of_k": {"temperature": 1.0},
        "tilting": {"temperature": 2.0, "lam": 10.0},
        "look_ahead": {"temperature": 2.0},
        "s3": {"temperature": 2.0, "lam": 10.0},
        "twisted": {"temperature": 2.0, "lam": 10.0},
        "best": {"temperature": 1.5, "lam": 10.0},
    }
}

TASKS: Mapping[str, tuple[str, ...]] = {
    "tiny": ("arithmetic", "countdown", "sudoku", "choice"),
    "*": ("gsm8k", "math500", "arc", "truthfulqa"),
}


def settings(model: str, method: str | None = None) -> dict[str, object]:
    """The settings a model is asked with unless the user says otherwise; for a method, its own."""
    return {**SETTINGS.get(model, SETTINGS["*"]), **tuned(model).get(method or "", {})}


def tuned(model: str) -> dict[str, dict[str, object]]:
    """Settings of single methods, by method."""
    return {label: dict(own) for label, own in TUNED.get(model, {}).items()}


def tasks(model: str) -> tuple[str, ...]:
    """The tasks a model is evaluated on unless the user says otherwise."""
    return TASKS.get(model, TASKS["*"])
