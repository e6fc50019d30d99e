"""The numbers that the paper prints (arXiv 2604.06260), shown beside ours if model and settings are its own.

assets/paper.csv has Tables 1 to 3 (no block length) and Table 4: accuracy in per cent, mean effective
tokens, total latency in s, wall time in s. LLaDA-8B-Instruct, gen_length 128, 64 steps.
"""

from __future__ import annotations

import csv
from importlib.resources import files

from s3dlm.settings import Settings

MODEL = "LLaDA-8B-Instruct"
SETTINGS = {
    "gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2, "lam": 1.0,
}  # fmt: skip
Cost = tuple[float, float, float]  # tokens, latency, wall time

ACCURACY: dict[tuple[str, str], float] = {}  # by task and method
COST: dict[
    tuple[str, str, int | None], Cost
] = {}  # by task, method and block length, if it is swept
with (files("s3dlm.evaluation") / "assets" / "paper.csv").open(encoding="utf-8") as _file:
    for _row in csv.DictReader(_file):
        _key = (_row["task"], _row["method"])
        if _row["accuracy"]:
            ACCURACY[_key] = float(_row["accuracy"])
        _length = int(_row["block_length"]) if _row["block_length"] else None
        _cost = (float(_row["tokens"]), float(_row["latency"]), float(_row["wall"]))
        COST[(*_key, _length)] = _cost


def same_setting(model: str, settings: Settings) -> bool:
    """Whether a run used the paper's model and settings."""
    values = settings.to_json()
    same = all(values.get(name) == value for name, value in SETTINGS.items())
    return model.endswith(MODEL) and same
