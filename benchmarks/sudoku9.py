"""Where re-masking and screening pay: 9×9 Sudoku, at equal forward passes.

    python -m benchmarks.sudoku9 tune runs/sudoku9
    python -m benchmarks.sudoku9 test runs/sudoku9 --seeds 3
    python -m benchmarks.sudoku9 show runs/sudoku9
    python -m benchmarks.sudoku9 shipped runs/sudoku9

Every row is `best` with the same verifier, memo, look-aheads, greedy first text and stopping rule; rows
differ in how a later round begins and in whether children are screened. Each row gets its own reveal
threshold and temperature from one grid, for each kind of puzzle and each column, chosen on validation
puzzles; `test` runs what was chosen on other puzzles, `shipped` the pair that the model recommends for
`best` on open grids, beside its careful restarts, on every kind of puzzle. A search stops at a valid grid, so one run tells the
share solved within any number of passes up to its budget. Every record is written when it is known, and a
second call does what is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

import s3dlm
from benchmarks import study
from s3dlm.cli.options import print_table
from s3dlm.engine import Job, run
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.models.cache import RowCache
from s3dlm.search.methods import METHODS, UNTILTED
from s3dlm.settings import Settings
from tools.sudoku9.problems import open_puzzles, unique_puzzles

BUDGET = 128
COLUMNS = (16, 32, 64, BUDGET)
KINDS = ("open 60", "open 70", "open 50", "unique")
CONTROL = "restarts"
MOVES = {
    "remask": "weighted",
    "accept": "metropolis",
    "lam": 30.0,
    "patience": 6,
    "restart_fraction": 0.0,
}
SCREEN = {"screen": 64, "lam": 30.0}
ROWS: dict[str, dict[str, Any]] = {
    CONTROL: {"remask": "all"},
    "re-masking": MOVES,
    "screening, duplicates": {"remask": "all", **SCREEN},
    "screening": {"remask": "all", **SCREEN, "verifier": "plus_solver"},
    "both": {**MOVES, **SCREEN, "verifier": "plus_solver"},
}
# λ is that of screening and of Metropolis' rule; look-aheads are not tilted.
BEST = replace(METHODS["best"], weight="none", beside=UNTILTED)
SHARED: dict[str, Any] = {"particles": 1, "rounds": 0}
TEMPERATURES = (0.5, 1.0)
# As many for each; a fresh start has no use for a careless pass, which re-masking mends.
THRESHOLDS = {"all": (0.6, 0.8, 0.9, 0.98), "weighted": (0.3, 0.5, 0.7, 0.9)}
SHIPPED = {CONTROL: (0.98, 1.0), "both": (0.3, 1.0)}
TUNING, TUNED_TO = 20, 64  # validation puzzles of each kind, and the budget there


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting of one row on one kind of puzzle."""

    split: str
    kind: str
    row: str
    threshold: float
    temperature: float
    seed: int = 0

    @property
    def file(self) -> str:
        return f"{self.split}-{self.kind}-{self.row}.jsonl".replace(" ", "_").replace(",", "")

    def settings(self, model: s3dlm.Model) -> Settings:
        own = {"reveal_threshold": self.threshold, "temperature": self.temperature}
        budget = TUNED_TO if self.split == "validation" else BUDGET
        given = {**SHARED, **ROWS[self.row], **own, "budget": budget, "seed": self.seed}
        return Settings.for_model(model, BEST, "sudoku9_open", **given)


@cache
def puzzles(split: str, kind: str, count: int) -> list[str]:
    """Open puzzles take any valid grid; unique ones have one."""
    made = unique_puzzles(split) if kind == "unique" else open_puzzles(split, (int(kind[-2:]),))
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
                record = {**own, "puzzle": left[at], "nfe": event.nfe}
                lines.append(json.dumps({**record, "solved": event.stopped == "satisfied"}))
        with path.open("a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        print(f"{number} of {len(trials)}: {trial}", flush=True)


def read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    return pd.DataFrame(
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    )


def grid(kinds: Sequence[str]) -> Iterator[Trial]:
    for kind, row in itertools.product(kinds, ROWS):
        thresholds = THRESHOLDS[ROWS[row]["remask"]]
        for threshold, temperature in itertools.product(thresholds, TEMPERATURES):
            yield Trial("validation", kind, row, threshold, temperature)


def solved(frame: pd.DataFrame, within: int) -> pd.Series:
    return frame.solved & (frame.nfe <= within)


def choose(folder: Path, kind: str, row: str) -> dict[int, tuple[float, float]]:
    """For each column the threshold and temperature that solve most on validation; of equal ones
    those that take fewer passes."""
    frame = read(folder / Trial("validation", kind, row, 0, 0).file)
    best = {}
    for column in COLUMNS:
        ranked = [
            (solved(part, column).mean(), -part.nfe.mean(), key)
            for key, part in frame.groupby(["threshold", "temperature"])
        ]
        best[column] = max(ranked)[2]
    return best


def test_trials(folder: Path, kinds: Sequence[str], seeds: int) -> list[Trial]:
    trials = []
    for seed, kind, row in itertools.product(range(seeds), kinds, ROWS):
        for threshold, temperature in sorted(set(choose(folder, kind, row).values())):
            trials.append(Trial("test", kind, row, threshold, temperature, seed))
    return trials


def chosen(folder: Path, kind: str, row: str, column: int) -> pd.DataFrame:
    """A row's test records with what was chosen for a column, by puzzle, the mean over its seeds."""
    threshold, temperature = choose(folder, kind, row)[column]
    frame = read(folder / Trial("test", kind, row, 0, 0).file)
    frame = frame[(frame.threshold == threshold) & (frame.temperature == temperature)]
    frame = frame.assign(within=solved(frame, column).astype(float))
    return frame.groupby("puzzle")[["within", "nfe", "solved"]].mean()


def shipped(folder: Path, kinds: Sequence[str]) -> list[list[str]]:
    """Solved within each column and mean NFE with the shipped settings."""
    rows = []
    for kind, (row, (threshold, temperature)) in itertools.product(kinds, SHIPPED.items()):
        frame = read(folder / Trial("test", kind, row, 0, 0).file)
        frame = frame[(frame.threshold == threshold) & (frame.temperature == temperature)]
        shares = [f"{100 * solved(frame, column).mean():.1f}" for column in COLUMNS]
        rows.append([kind, row, *shares, f"{frame.nfe.mean():.1f}"])
    return rows


def show(folder: Path) -> list[list[str]]:
    """Solved within each column, the difference from restarts, and passes until it ends."""
    rows = []
    for kind, row in itertools.product(KINDS, ROWS):
        cells = []
        for column in COLUMNS:
            own, control = (chosen(folder, kind, r, column).within for r in (row, CONTROL))
            gap, _ = bootstrap([(100 * (own - control)).dropna().tolist()])
            lead = "" if row == CONTROL else f" {gap.value:+.0f} [{gap.low:.0f}, {gap.high:.0f}]"
            cells.append(f"{100 * own.mean():.0f}{lead}")
        last = chosen(folder, kind, row, BUDGET)
        rows.append([kind, row, *cells, f"{last.nfe.mean():.1f}"])
    return rows


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.sudoku9",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["tune", "test", "show", "shipped"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of puzzles, separated by commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--limit", type=int, default=200, help="test puzzles of each kind")
    options = parser.parse_args(arguments)
    header = ("puzzles", "row", *(f"≤ {column}" for column in COLUMNS), "mean NFE")
    if options.action == "show":
        print_table(header, show(options.folder), "Solved (%)")
        return
    kinds = study.names(options.kinds)
    options.folder.mkdir(parents=True, exist_ok=True)
    plain = s3dlm.load("sudoku9")
    model = replace(plain, denoiser=RowCache(plain.denoiser, 1 << 29))
    if options.action == "shipped":
        trials = [Trial("test", k, row, *own) for k in kinds for row, own in SHIPPED.items()]
        measure(model, options.folder, trials, options.limit)
        print_table(header, shipped(options.folder, kinds), "Solved (%) as shipped")
    elif options.action == "tune":
        measure(model, options.folder, list(grid(kinds)), TUNING)
    else:
        measure(
            model, options.folder, test_trials(options.folder, kinds, options.seeds), options.limit
        )


if __name__ == "__main__":
    study.main(lambda: main(sys.argv[1:]))
