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

# Table 4: the same by block length, for the baseline and s3.
BLOCK_COST: dict[str, dict[int, dict[str, tuple[float, float, float]]]] = {
    "arc": {
        2: {"baseline": (16.92, 7.42, 6.1), "s3": (17.1, 71262.09, 35680.83)},
        4: {"baseline": (8.92, 7.43, 6.12), "s3": (8.46, 71038.65, 35550.89)},
        8: {"baseline": (8.04, 7.51, 6.18), "s3": (7.45, 37840.2, 18952.4)},
        16: {"baseline": (7.13, 7.49, 6.15), "s3": (8.44, 37927.16, 20814.4)},
        32: {"baseline": (6.14, 7.43, 6.11), "s3": (5.89, 26140.5, 13092.3)},
        64: {"baseline": (5.96, 1111.75, 566.58), "s3": (5.79, 25058.8, 12573.95)},
    },
    "gsm8k": {
        2: {"baseline": (15.84, 7.62, 6.24), "s3": (16.1, 68420.3, 34218.5)},
        4: {"baseline": (8.12, 7.58, 6.21), "s3": (7.95, 68215.4, 34115.8)},
        8: {"baseline": (6.34, 7.64, 6.26), "s3": (5.82, 36940.2, 18478.6)},
        16: {"baseline": (5.18, 7.71, 6.31), "s3": (4.96, 36820.5, 18418.4)},
        32: {"baseline": (4.42, 7.53, 6.16), "s3": (4.18, 25640.8, 12828.2)},
        64: {"baseline": (3.06, 3068.37, 1530.94), "s3": (3.06, 24870.64, 12393.65)},
    },
    "math500": {
        2: {"baseline": (16.34, 5.8, 4.75), "s3": (12.66, 22140.3, 11082.5)},
        4: {"baseline": (8.33, 5.47, 4.48), "s3": (5.68, 5.93, 4.85)},
        8: {"baseline": (8.79, 5.34, 4.37), "s3": (4.93, 5.85, 4.79)},
        16: {"baseline": (7.77, 5.51, 4.51), "s3": (7.2, 11820.4, 5923.8)},
        32: {"baseline": (6.89, 5.43, 4.44), "s3": (4.4, 11750.2, 5888.6)},
        64: {"baseline": (3.33, 1024.58, 526.81), "s3": (3.55, 4.11, 3.36)},
    },
    "truthfulqa": {
        2: {"baseline": (15.3, 4.85, 3.97), "s3": (18.09, 5.29, 4.33)},
        4: {"baseline": (8.71, 5.24, 4.29), "s3": (7.65, 5.27, 4.31)},
        8: {"baseline": (7.61, 5.1, 4.17), "s3": (5.4, 19764.35, 9929.58)},
        16: {"baseline": (6.52, 5.16, 4.22), "s3": (8.13, 5.38, 4.4)},
        32: {"baseline": (5.04, 5.13, 4.2), "s3": (6.61, 17200.4, 8623.5)},
        64: {"baseline": (5.24, 1862.12, 935.11), "s3": (5.57, 4048.35, 2065.72)},
    },
    "aime": {
        2: {"baseline": (14.2, 22.4, 16.8), "s3": (13.85, 680.2, 358.4)},
        4: {"baseline": (6.8, 21.6, 16.2), "s3": (1.06, 760.4, 402.3)},
        8: {"baseline": (4.2, 21.8, 16.4), "s3": (1.0, 762.8, 403.5)},
        16: {"baseline": (3.9, 22.1, 16.6), "s3": (3.65, 775.2, 409.1)},
        32: {"baseline": (3.75, 23.8, 17.4), "s3": (3.58, 774.5, 408.6)},
        64: {"baseline": (3.7, 25.07, 18.97), "s3": (3.5, 774.89, 408.75)},
    },
}  # fmt: skip

ACCURACY = {task: dict(zip(METHODS, row, strict=True)) for task, row in _ACCURACY.items()}
COST = {task: dict(zip(METHODS, row, strict=True)) for task, row in _COST.items()}


def same_setting(model: str, settings: Settings) -> bool:
    """Whether a run used the paper's model and settings."""
    values = settings.to_json()
    return model.endswith(MODEL) and all(
        values.get(name) == value for name, value in SETTINGS.items()
    )
