"""The numbers the paper prints, as data, to be put beside ours where the setting is the same.

LLaDA-8B-Instruct, gen_length 128, 64 steps, block length 64, N = 4, b = 2, λ = 1 (arXiv 2604.06260).
"""

from __future__ import annotations

from collections.abc import Mapping

from s3dlm.settings import Settings

MODEL = "LLaDA-8B-Instruct"
SETTING = {
    "gen_length": 128,
    "steps": 64,
    "block_length": 64,
    "particles": 4,
    "branching": 2,
    "lam": 1.0,
}

# Tables 1 and 2: accuracy in per cent.
ACCURACY: Mapping[str, Mapping[str, float]] = {
    "gsm8k": {
        "baseline": 68.16,
        "best_of_k": 69.56,
        "tilting": 69.54,
        "look_ahead": 69.69,
        "s3": 70.21,
    },
    "math500": {
        "baseline": 25.60,
        "best_of_k": 28.20,
        "tilting": 26.40,
        "look_ahead": 26.20,
        "s3": 30.20,
    },
    "arc": {
        "baseline": 76.11,
        "best_of_k": 79.30,
        "tilting": 76.30,
        "look_ahead": 76.71,
        "s3": 77.86,
    },
    "truthfulqa": {
        "baseline": 46.49,
        "best_of_k": 49.36,
        "tilting": 48.10,
        "look_ahead": 46.49,
        "s3": 49.57,
    },
}

# Table 3: (average effective tokens, total latency in s, wall time in s).
COST: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "arc": {
        "baseline": (5.67, 3648.21, 1829.87),
        "best_of_k": (5.43, 28803.25, 14431.86),
        "look_ahead": (6.08, 29450.49, 14756.30),
        "tilting": (5.43, 28804.53, 14431.20),
        "s3": (4.34, 29100.42, 14580.21),
    },
    "gsm8k": {
        "baseline": (3.03, 3919.06, 1964.63),
        "best_of_k": (3.06, 30938.32, 15497.02),
        "look_ahead": (3.08, 31655.13, 15855.10),
        "tilting": (3.06, 30942.79, 15500.48),
        "s3": (3.07, 31660.45, 15858.32),
    },
    "math500": {
        "baseline": (3.85, 1530.82, 770.71),
        "best_of_k": (3.40, 12131.98, 6091.68),
        "look_ahead": (4.40, 12413.41, 6231.07),
        "tilting": (3.40, 12128.29, 6088.90),
        "s3": (3.43, 12412.98, 6230.43),
    },
    "truthfulqa": {
        "baseline": (5.87, 2120.41, 1064.81),
        "best_of_k": (3.06, 16743.28, 8394.48),
        "look_ahead": (5.62, 17119.66, 8583.10),
        "tilting": (3.06, 16743.15, 8394.40),
        "s3": (4.05, 17110.60, 8578.05),
    },
}


def same_setting(model: str, settings: Settings) -> bool:
    """Whether a run asked the paper's model under the paper's setting."""
    plain = settings.to_json()
    return model.endswith(MODEL) and all(plain[name] == value for name, value in SETTING.items())
