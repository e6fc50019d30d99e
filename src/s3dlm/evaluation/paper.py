"""What the paper prints (arXiv 2604.06260), and whether a run has its model and settings.

assets/paper.csv has Tables 1, 2 and 4 (no block length) and Table 5: accuracy in per cent, mean effective
tokens, total latency in s, wall time in s. LLaDA-8B-Instruct, gen_length 128, 64 steps. docs/reproduce.md
lists where these numbers contradict each other.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from s3dlm import tasks
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import Condition
from s3dlm.evaluation.statistics import Cell

GRADING = "hex"  # the paper follows the protocol of HEX
PARAMETERS = 8_015_581_184  # of LLaDA-8B-Instruct: a name says little about the weights in a folder
SETTINGS = {
    "gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2, "lam": 1.0,
}  # fmt: skip
_TABLE = pd.read_csv(Path(__file__).with_name("assets") / "paper.csv").fillna({"block_length": 0})
PRINTED = _TABLE.set_index(["task", "method", "block_length"]).to_dict("index")


def in_papers_setting(run: Run) -> bool:
    """With a model of as many parameters as the paper's, and its settings."""
    s3 = [main["s3"].settings.to_json() for main in map(run.main, run.tasks) if "s3" in main]
    same = all(SETTINGS.items() <= settings.items() for settings in s3)
    return bool(s3) and same and run.manifest.machine.get("parameters") == PARAMETERS


def printed(condition: Condition, name: str) -> float:
    """A figure of the paper: accuracy, tokens, latency, or seconds per problem; NaN if it has none.

    The main comparison is Tables 1, 2 and 4, other block lengths are Table 5."""
    label = {"greedy": "baseline"}.get(condition.label, condition.label)
    length = 0 if condition.main else condition.settings.decoding.block_length
    row = PRINTED.get((condition.task, label, length), {})
    if name == "seconds":
        source = tasks.get(condition.task).source
        count = source and source.count
        return row.get("latency", math.nan) / count if count else math.nan
    return float(row.get(name, math.nan))


def agreement(cell: Cell) -> str:
    """Whether the paper's accuracy is inside our interval, if that is narrow enough to say so."""
    task = cell.condition.task
    theirs = printed(cell.condition, "accuracy") / 100
    gain = PRINTED[task, "s3", 0]["accuracy"] - PRINTED[task, "baseline", 0]["accuracy"]
    if not cell.accuracy.low <= theirs <= cell.accuracy.high:
        return "no"
    wide = 100 * (cell.accuracy.high - cell.accuracy.low) > gain
    return "too few problems" if wide else "yes"
