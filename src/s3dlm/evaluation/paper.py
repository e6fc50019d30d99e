"""The paper (arXiv 2604.06260): its protocol as a plan in three sizes, and the numbers it prints.

assets/paper.csv has Tables 1, 2 and 4 (no block length) and Table 5: accuracy in per cent, mean effective
tokens, total latency in s, wall time in s. LLaDA-8B-Instruct, gen_length 128, 64 steps. docs/reproduce.md
lists where these numbers contradict each other.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from s3dlm import tasks as benchmarks
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation.plan import (
    FIVE,
    Condition,
    Overrides,
    Plan,
    SettingsOf,
    as_sweep,
    grid,
    settings_for,
    unique,
)
from s3dlm.evaluation.statistics import Cell
from s3dlm.tasks import Loaded

if TYPE_CHECKING:  # reading a run needs an extra, planning one does not
    from s3dlm.evaluation.frames import RecordedRun

MAIN = ("greedy", *FIVE)
# Extra methods that `reproduce` runs with one seed; the last two separate the search from its ending.
ONE_SEED = ("twisted", "s3_paper", "verified_best_of_k", "s3_verified")
SWEPT = ("best_of_k", "s3")
PARTICLES, BRANCHING = (1, 2, 4, 8, 16), (1, 2, 4)
BLOCK_SWEPT = ("baseline", "best_of_k", "s3")
BLOCK_LENGTHS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class ProtocolSize:
    """How much of the paper's protocol a reproduction runs."""

    methods: tuple[str, ...]  # with all seeds
    once: tuple[str, ...] = ()  # with one
    problems: int | None = None  # per task; None: all
    seeds: int = 1
    sweep_problems: int = 0  # per task, for the sweeps over N, b and block length
    left_out: tuple[str, ...] = ("aime",)  # the paper has it in Table 5 alone


SIZES = {
    "hour": ProtocolSize(("greedy", "best_of_k", "s3"), problems=40),
    "day": ProtocolSize(("greedy", "baseline", "best_of_k", "s3")),
    "full": ProtocolSize(MAIN, ONE_SEED, None, 3, 200, ()),
}


def size_of(name: str) -> ProtocolSize:
    """A size by name."""
    if name not in SIZES:
        raise SettingsError(unknown_name("size", name, SIZES))
    return SIZES[name]


def reproduction(
    loaded: Mapping[str, Loaded],
    defaults: SettingsOf,
    seeds: Sequence[int],
    size: ProtocolSize = SIZES["full"],
    overrides: Overrides | None = None,
    *,
    sweep_problems: int | None = None,
    traces: int = 0,
) -> Plan:
    """The paper's protocol: main comparison and ablation on all problems and seeds; the sweeps over
    particles, branching and block length, which would cost far more, on fewer problems. What cannot
    differ from seed to seed runs once, and `s3_paper` only if it is not `s3` itself."""
    names, given = list(loaded), overrides or {}
    s3, paper = (settings_for(label, defaults, given) for label in ("s3", "s3_paper"))
    same = s3.to_json() == {**paper.to_json(), "method": "s3", "lam": 1.0}
    once = [label for label in size.once if not (same and label == "s3_paper")]
    main = [
        c if c.sampled and c.label not in once else replace(c, seeds=1)
        for c in grid(names, [*size.methods, *once], defaults, given)
    ]
    sweeps: list[Condition] = []
    fewer = size.sweep_problems if sweep_problems is None else sweep_problems
    if fewer:
        least = -(-s3.decoding.gen_length // s3.decoding.steps)  # every block needs a step
        lengths = [length for length in BLOCK_LENGTHS if least <= length <= s3.decoding.gen_length]
        axes = {"particles": PARTICLES, "branching": BRANCHING}
        over = {name: value for name, value in given.items() if name not in axes}
        sweeps += grid(names, SWEPT, defaults, over, axes)
        over = {name: value for name, value in given.items() if name != "block_length"}
        sweeps += grid(names, BLOCK_SWEPT, defaults, over, {"block_length": lengths})
    conditions = unique([*main, *as_sweep(sweeps, fewer)])
    return Plan(conditions, loaded, seeds, traces=traces)


GRADING = "d1_whole"  # the paper follows the protocol of HEX
PARAMETERS = 8_015_581_184  # of LLaDA-8B-Instruct: a name says little about the weights in a folder
SETTINGS = {
    "gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2, "lam": 1.0,
}  # fmt: skip
_TABLE = (Path(__file__).with_name("assets") / "paper.csv").read_text("utf-8").splitlines()
PRINTED = {  # by task, method and block length, which is 0 in Tables 1, 2 and 4
    (row["task"], row["method"], int(row["block_length"] or 0)): {
        name: float(row[name] or math.nan) for name in ("accuracy", "tokens", "latency")
    }
    for row in csv.DictReader(_TABLE)
}


def in_papers_setting(run: RecordedRun) -> bool:
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
        source = benchmarks.get(condition.task).source
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
