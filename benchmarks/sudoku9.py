"""Where re-masking and screening pay: 9×9 Sudoku, at equal forward passes.

    python -m benchmarks.sudoku9 tune runs/sudoku9
    python -m benchmarks.sudoku9 test runs/sudoku9 --seeds 3
    python -m benchmarks.sudoku9 test runs/sudoku9 --rows methods --kinds "open 60,open 70" --limit 50
    python -m benchmarks.sudoku9 show runs/sudoku9

All rows have the same memo, look-aheads, greedy first text and stopping rule. Restarts have their own reveal
threshold and temperature, chosen on validation puzzles for each kind of puzzle and each column; `mend` is
what the model recommends, one setting for every kind of puzzle, and its other rows are the same with one
piece changed. Only rows that say so take a step of a solver. A search stops at a valid grid, so one run
tells the share solved within any number of passes up to its budget. Every record is written when it is
known, and a second call does what is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

import s3dlm
from benchmarks import study
from s3dlm import tasks
from s3dlm.answers import grids
from s3dlm.cli.options import print_table
from s3dlm.engine import Job, run
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.settings import Settings
from tools.sudoku9.problems import open_puzzles

BUDGET = 128
COLUMNS = (16, 32, 64, BUDGET)
KINDS = ("open 50", "open 60", "open 70", "unique")
CONTROL = "restarts"
TUNED = (CONTROL,)
UNTUNED = {"restarts, untuned": (0.98, 1.0)}  # the model's own threshold and temperature
OWN: dict[str, dict[str, Any]] = {  # what is changed in `mend` as it is shipped
    "mend": {"verifier": "checker"},
    "mend, no screening": {"screen": 0, "verifier": "checker"},
    "mend, a solver's step": {},
}
PIECES: dict[str, dict[str, Any]] = {
    "mend without re-masking": {"remask_below": 0.0, "threshold_scale": 0.0},
    "mend without screening": {"screen": 0},
    "mend without the rule": {
        "remask_below": 1.0, "threshold_scale": 0.0, "reveal_threshold": 0.3,
    },
    "mend without the memo": {"memo": 0},
}  # fmt: skip
OTHERS: dict[str, dict[str, Any]] = {  # methods, and what they are given
    "s3": {"lam": 100.0},
    **{name: {} for name in ("verified_best_of_k", "fk_max", "self_rewarding", "prism")},
    **{name: {} for name in ("vgb", "unmaskfork", "lookum", "order_token")},
}
GROUPS = {
    "tuned": [*TUNED],
    "untuned": [*UNTUNED],
    "mend": [*OWN],
    "pieces": [*PIECES],
    "methods": [*OTHERS],
}
TEMPERATURES, THRESHOLDS = (0.5, 1.0), (0.6, 0.8, 0.9, 0.98)
TESTED = 200  # puzzles of each kind
TUNING, TUNED_TO = 20, 64  # validation puzzles of each kind, and the budget there


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of one row on one kind of puzzle."""

    split: str
    kind: str
    row: str
    threshold: float = 0.0  # 0: what the model recommends
    temperature: float = 0.0
    seed: int = 0

    @property
    def file(self) -> str:
        return (
            f"{self.split}-{self.kind}-{self.row}.jsonl".replace(" ", "_")
            .replace(",", "")
            .replace("'", "")
        )

    def settings(self, model: s3dlm.Model) -> Settings:
        budget = TUNED_TO if self.split == "validation" else BUDGET
        given: dict[str, Any] = {"budget": budget, "seed": self.seed}
        if self.row in TUNED or self.row in UNTUNED:
            given |= {"reveal_threshold": self.threshold, "temperature": self.temperature}
            return Settings.for_model(
                model, "restarts", "sudoku9_open", particles=1, verifier="checker", **given
            )
        own = {**OWN, **PIECES}
        method = "mend" if self.row in own else self.row
        changes = own.get(self.row, OTHERS.get(self.row, {}))
        return Settings.for_model(model, method, "sudoku9_open", **given, **changes)


@cache
def puzzles(split: str, kind: str, count: int) -> list[str]:
    """Open puzzles take any valid grid; unique ones have one, and are those that are bundled."""
    if kind == "unique":
        bundled = tasks.load(tasks.get("sudoku9"), prompt_style="tiny", split=split, limit=count)
        return [sample.question for sample in bundled.samples]
    made = open_puzzles(split, (int(kind[-2:]),))
    return [str(row["question"]) for row in islice(made, count)]


def measure(model: s3dlm.Model, folder: Path, trials: Sequence[Trial], count: int) -> None:
    """Run what is missing and append its records."""
    for number, trial in enumerate(trials, 1):
        path = folder / trial.file
        own = {"threshold": trial.threshold, "temperature": trial.temperature, "seed": trial.seed}
        known = read(path)
        if len(known):
            known = known[(known[list(own)] == pd.Series(own)).all(axis=1)]
        done = set(known.puzzle) if len(known) else set()
        questions = puzzles(trial.split, trial.kind, count)
        left = [index for index in range(count) if index not in done]
        settings, lines = trial.settings(model), []
        jobs = [Job(questions[i], "sudoku9_open", settings, f"{trial.kind} {i}") for i in left]
        for at, event in run(model, jobs):
            if isinstance(event, s3dlm.Result):
                right = grids.is_solution(event.answer or "", questions[left[at]])
                record = {**own, "puzzle": left[at], "nfe": event.nfe, "solved": right}
                lines.append(json.dumps(record))
        with path.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        print(f"{number} of {len(trials)}: {trial}", flush=True)


def read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    return pd.DataFrame(
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    )


def grid(kinds: Sequence[str], rows: Sequence[str]) -> Iterator[Trial]:
    for row, kind in itertools.product((row for row in rows if row in TUNED), kinds):
        for threshold, temperature in itertools.product(THRESHOLDS, TEMPERATURES):
            yield Trial("validation", kind, row, threshold, temperature)


def solved(frame: pd.DataFrame, within: int) -> pd.Series:
    return frame.solved & (frame.nfe <= within)


def choose(folder: Path, kind: str, row: str) -> dict[int, tuple[float, float]]:
    """For each column the threshold and temperature that solve most on validation; of equal ones
    those that take fewer passes."""
    if row not in TUNED:
        return dict.fromkeys(COLUMNS, UNTUNED.get(row, (0.0, 0.0)))
    frame = read(folder / Trial("validation", kind, row).file)
    best = {}
    for column in COLUMNS if len(frame) else ():
        ranked = [
            (solved(part, column).mean(), -part.nfe.mean(), key)
            for key, part in frame.groupby(["threshold", "temperature"])
        ]
        best[column] = max(ranked)[2]
    return best


def test_trials(
    folder: Path, kinds: Sequence[str], rows: Sequence[str], seeds: int
) -> Iterator[Trial]:
    for seed, row, kind in itertools.product(range(seeds), rows, kinds):
        for threshold, temperature in sorted(set(choose(folder, kind, row).values())):
            yield Trial("test", kind, row, threshold, temperature, seed)


def chosen(
    folder: Path, kind: str, row: str, column: int, beside: pd.DataFrame | None = None
) -> pd.DataFrame:
    """A row's test records with what was chosen for a column, by puzzle, the mean over its seeds, or
    over as many as the row beside it has."""
    frame, pairs = read(folder / Trial("test", kind, row).file), choose(folder, kind, row)
    if frame.empty or column not in pairs:
        return pd.DataFrame()
    threshold, temperature = pairs[column]
    frame = frame[(frame.threshold == threshold) & (frame.temperature == temperature)]
    if beside is not None and not beside.empty:
        frame = frame[frame.seed < beside.seeds.max()]
    frame = frame.assign(within=solved(frame, column).astype(float))
    means = frame.groupby("puzzle")[["within", "nfe", "solved"]].mean()
    return means.assign(seeds=frame.groupby("puzzle").seed.nunique())


def show(folder: Path, names: Sequence[str], control: str) -> list[list[str]]:
    """Solved within each column, passes until it ends, and the differences from a control on the same
    puzzles and seeds."""
    rows = []
    for kind, row in itertools.product(KINDS, names):
        cells, sizes = [], ""
        for column in COLUMNS:
            own = chosen(folder, kind, row, column)
            other = chosen(folder, kind, control, column, own)
            if own.empty or other.empty:
                break
            cells.append(_beside(100 * own.within, 100 * other.within, row == control))
            sizes = f"{len(own)} × {own.seeds.min()}"
        else:
            rows.append([kind, row, *cells, _beside(own.nfe, other.nfe, row == control), sizes])
    return rows


def _beside(own: pd.Series, other: pd.Series, same: bool) -> str:
    gap, _ = bootstrap([(own - other).dropna().tolist()])
    lead = "" if same else f" {gap.value:+.0f} [{gap.low:.0f}, {gap.high:.0f}]"
    return f"{own.mean():.1f}{lead}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.sudoku9",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["tune", "test", "show"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of puzzles, separated by commas")
    parser.add_argument("--rows", help=f"rows, or {', '.join(GROUPS)}; by ;")
    parser.add_argument("--control", default=CONTROL, help="the row to compare with")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limit", type=int, help="puzzles of each kind")
    options = parser.parse_args(arguments)
    names = options.rows or (";".join(GROUPS) if options.action == "show" else "tuned;untuned;mend")
    rows = [row for name in names.split(";") for row in GROUPS.get(name, [name])]
    if options.action == "show":
        header = ("puzzles", "row", *(f"≤ {column}" for column in COLUMNS), "mean NFE", "× seeds")
        title = f"Solved (%), and differences from {options.control}"
        print_table(header, show(options.folder, rows, options.control), title)
        return
    kinds = study.names(options.kinds)
    options.folder.mkdir(parents=True, exist_ok=True)
    model = s3dlm.load("sudoku9")
    if options.action == "tune":
        measure(model, options.folder, list(grid(kinds, rows)), options.limit or TUNING)
    else:
        trials = list(test_trials(options.folder, kinds, rows, options.seeds))
        measure(model, options.folder, trials, options.limit or TESTED)


if __name__ == "__main__":
    study.main(lambda: main(sys.argv[1:]))
