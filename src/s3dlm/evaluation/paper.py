"""The numbers that the paper prints, to be shown beside ours if model and settings are the same.

LLaDA-8B-Instruct, gen_length 128, 64 steps, block length 64, N = 4, b = 2, λ = 1 (arXiv 2604.06260).
"""

from __future__ import annotations

from s3dlm.settings import Settings

MODEL = "LLaDA-8B-Instruct"
SETTINGS = {
    "gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2, "lam": 1.0,
}  # fmt: skip
METHODS = ("baseline", "best_of_k", "tilting", "look_ahead", "s3")

# Tables 1 and 2: accuracy in per cent, in the order of METHODS.
_ACCURACY = {
    "gsm8k": (68.16, 69.56, 69.54, 69.69, 70.21),
    "math500": (25.60, 28.20, 26.40, 26.20, 30.20),
    "arc": (76.11, 79.30, 76.30, 76.71, 77.86),
    "truthfulqa": (46.49, 49.36, 48.10, 46.49, 49.57),
}

# Table 3: mean effective tokens, total latency in s, wall time in s, in the order of METHODS.
_COST = {
    "arc": (
        (5.67, 3648.21, 1829.87), (5.43, 28803.25, 14431.86), (5.43, 28804.53, 14431.20),
        (6.08, 29450.49, 14756.30), (4.34, 29100.42, 14580.21),
    ),
    "gsm8k": (
        (3.03, 3919.06, 1964.63), (3.06, 30938.32, 15497.02), (3.06, 30942.79, 15500.48),
        (3.08, 31655.13, 15855.10), (3.07, 31660.45, 15858.32),
    ),
    "math500": (
        (3.85, 1530.82, 770.71), (3.40, 12131.98, 6091.68), (3.40, 12128.29, 6088.90),
        (4.40, 12413.41, 6231.07), (3.43, 12412.98, 6230.43),
    ),
    "truthfulqa": (
        (5.87, 2120.41, 1064.81), (3.06, 16743.28, 8394.48), (3.06, 16743.15, 8394.40),
        (5.62, 17119.66, 8583.10), (4.05, 17110.60, 8578.05),
    ),
}  # fmt: skip

ACCURACY = {task: dict(zip(METHODS, row, strict=True)) for task, row in _ACCURACY.items()}
COST = {task: dict(zip(METHODS, row, strict=True)) for task, row in _COST.items()}


def same_setting(model: str, settings: Settings) -> bool:
    """Whether a run used the paper's model and settings."""
    values = settings.to_json()
    return model.endswith(MODEL) and all(
        values.get(name) == value for name, value in SETTINGS.items()
    )
