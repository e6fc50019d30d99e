"""The paper's weight table: which view of a text counts how much for which task. Data only."""

from __future__ import annotations

from typing import NamedTuple

from s3dlm.verifier.base import PARTS


class Profile(NamedTuple):
    """A row: weights in the order of `PARTS`, the form of S1, and the task's constraint."""

    weights: tuple[float, ...]
    form: str = "math"
    constraint: str = "none"

    @property
    def by_part(self) -> dict[str, float]:
        """The weights by the names of their parts."""
        return dict(zip(PARTS, self.weights, strict=True))


_GSM8K = Profile((0.20, 0.25, 0.25, 0.10, 0.20, 0.00))
_MATH500 = Profile((0.25, 0.20, 0.25, 0.10, 0.20, 0.00))
_CHOICE = Profile((0.20, 0.00, 0.00, 0.15, 0.20, 0.45), form="choice", constraint="choice")

PAPER: dict[str, Profile] = {
    "gsm8k": _GSM8K,
    "math500": _MATH500,
    "aime": _MATH500,
    "arc": _CHOICE,
    "truthfulqa": _CHOICE,
    "truthfulqa_mc": _CHOICE,
    "countdown": Profile((0.15, 0.10, 0.10, 0.10, 0.15, 0.40), constraint="countdown"),
    "sudoku": Profile((0.05, 0.00, 0.00, 0.05, 0.10, 0.80), constraint="sudoku"),
    "sudoku9": Profile((0.05, 0.00, 0.00, 0.05, 0.10, 0.80), constraint="sudoku"),
    # Ours: the tiny model's own tasks, and prompts that belong to no task.
    "arithmetic": _GSM8K,
    "choice": _CHOICE,
    "general": Profile((0.00, 0.00, 0.00, 0.50, 0.50, 0.00)),
}
