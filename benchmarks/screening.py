"""What `screen=K` is worth: restarts and `revise`, with and without it, at equal budgets.

    python -m benchmarks.screening tune runs/screening
    python -m benchmarks.screening test runs/screening
    python -m benchmarks.screening test runs/screening --task long_chains --budgets 16,32,64
    python -m benchmarks.screening show runs/screening

Every row is `revise` with the same verifier, look-aheads, greedy first text, stopping rule and memo. Rows
differ in how a later round begins and in whether the children of a pass are screened on their partial
texts; λ is for screening and for Metropolis' rule alone. `tune` chooses temperature and particles of each
row from one grid, on the mean of the tasks of the validation split; `test` runs what was chosen.
`long_chains` are those of 8 to 10 steps. Every record is written when it is known, and a second call
does what is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

import s3dlm
from benchmarks import study
from s3dlm import tasks
from s3dlm.answers.grading import grade
from s3dlm.cli.options import print_table
from s3dlm.engine import Job, run
from s3dlm.evaluation.formats import percent, points
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.models.cache import RowCache
from s3dlm.search.methods import METHODS, UNTILTED
from s3dlm.settings import Settings
from s3dlm.tasks import Sample
from s3dlm.tasks.data import load as load_samples

BEST = replace(METHODS["revise"], weight="none", beside=UNTILTED)
MEND = {"remask": "from_doubt", "accept": "metropolis", "patience": 6, "restart_fraction": 0.0}
SCREEN = {"screen": 16}
ROWS: dict[str, dict[str, Any]] = {
    "restarts": {"remask": "all"},
    "restarts, screening": {"remask": "all", "lam": 30.0, **SCREEN},
    "mending": {"lam": 30.0, **MEND},
    "mending, screening": {"lam": 30.0, **MEND, **SCREEN},
    "revise": {},
}
GRID = {"temperature": (1.0, 2.0), "particles": (1, 4)}
LONG, CHAIN, LONGEST = "long_chains", "chain", ("n=8", "n=9", "n=10")
TASKS = "arithmetic,countdown,sudoku,choice,chain"
CONTROL = "restarts"
FILE, CHOSEN = "records.jsonl", "tuned.json"
KEY = ["split", "row", "temperature", "particles", "budget", "task"]


def problems(task: str, split: str, limit: int) -> list[Sample]:
    if task != LONG:
        return list(
            load_samples(tasks.get(task), prompt_style="tiny", split=split, limit=limit).samples
        )
    every = load_samples(tasks.get(CHAIN), prompt_style="tiny", split=split).samples
    return [one for one in every if one.group in LONGEST][:limit]


def measure(
    model: s3dlm.Model, folder: Path, cell: Mapping[str, Any], samples: Sequence[Sample]
) -> None:
    """Run what is missing of a row with some budget on a task, and append the records."""
    known = read(folder)
    done = set(known["sample"][(known[KEY] == pd.Series(cell)).all(axis=1)]) if len(known) else ()
    left = [one for one in samples if one.id not in done]
    task = CHAIN if cell["task"] == LONG else str(cell["task"])
    own = {name: cell[name] for name in (*GRID, "budget")}
    settings = Settings.for_model(model, BEST, task, **ROWS[cell["row"]], **own)
    jobs = [Job(one.question, task, settings, one.id) for one in left]
    lines = []
    for at, event in run(model, jobs):
        if isinstance(event, s3dlm.Result):
            one = left[at]
            right = grade(tasks.get(task).answer, event.text, one.gold, "fixed", one.question)
            record = {"sample": one.id, "right": right, "nfe": event.nfe}
            lines.append(json.dumps({**cell, **record}) + "\n")
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.writelines(lines)
    print(f"{len(left)} problems: {dict(cell)}", flush=True)


def read(folder: Path) -> pd.DataFrame:
    path = folder / FILE
    return pd.read_json(path, lines=True) if path.is_file() else pd.DataFrame()


def choose(folder: Path) -> dict[str, dict[str, float]]:
    """The most accurate pair of each row on validation; of equal ones that with fewer passes."""
    frame = read(folder)
    each = frame[frame.split == "validation"].groupby(["row", *GRID, "task"])[["right", "nfe"]]
    mean = each.mean().groupby(["row", *GRID]).mean().reset_index()
    best = mean.sort_values(["right", "nfe"], ascending=[False, True]).groupby("row").first()
    return {
        str(row): {name: type(GRID[name][0])(at[name]) for name in GRID}
        for row, at in best.iterrows()
    }


def show(folder: Path) -> None:
    """What was chosen, then the test split: the mean of the tasks at each budget, and long chains."""
    frame = read(folder)
    if (frame.split == "validation").any():
        rows = [(row, *map(str, at.values())) for row, at in choose(folder).items()]
        print_table(("row", *GRID), rows, "Chosen on validation")
    frame = frame[frame.split == "test"]
    names = [name for name in frame.task.unique() if name != LONG]
    lines = []
    for budget, row in itertools.product(sorted(frame.budget[frame.task != LONG].unique()), ROWS):
        some = frame[(frame.budget == budget) & (frame.task != LONG)]
        grades = [_by_row(some[some.task == name], "right") for name in names]
        if not all({row, CONTROL} <= set(each.columns) for each in grades):
            continue
        grades = [each[list({CONTROL: 0, row: 0})].dropna() for each in grades]
        nfe = [_by_row(some[some.task == name], "nfe")[row].mean() for name in names]
        gap = points(*bootstrap([list(each[row] - each[CONTROL]) for each in grades]))
        mean, _ = bootstrap([list(each[row]) for each in grades])
        cells = [
            f"{100 * each[row].mean():.1f} @ {n:.1f}" for each, n in zip(grades, nfe, strict=True)
        ]
        total = f"{percent(mean)} @ {sum(nfe) / len(nfe):.1f}"
        lines.append((str(budget), row, total, gap if row != CONTROL else "–", *cells))
    print_table(("budget", "row", "mean", f"Δ vs {CONTROL}", *names), lines, "Accuracy @ NFE")
    _show_long(frame[frame.task == LONG])


def _by_row(frame: pd.DataFrame, values: str) -> pd.DataFrame:
    """A line per problem and a column per row."""
    wide: pd.DataFrame = frame.astype({values: float}).pivot(
        index="sample", columns="row", values=values
    )
    return wide


def _show_long(frame: pd.DataFrame) -> None:
    """Long chains: the share that is right within so many passes, of one run with the largest budget."""
    if frame.empty:
        return
    most = int(frame.budget.max())
    frame = frame[frame.budget == most]
    right, nfe = _by_row(frame, "right").dropna(), _by_row(frame, "nfe").dropna()
    within = sorted({most // 4, most // 2, 3 * most // 4, most})
    lines = []
    for row in (row for row in ROWS if row in right):
        cells = []
        for passes in within:
            solved = right * (nfe <= passes)
            gap = points(*bootstrap([list(solved[row] - solved[CONTROL])]))
            share = f"{100 * solved[row].mean():.0f} @ {nfe[row].clip(upper=passes).mean():.1f}"
            cells.append(share if row == CONTROL else f"{share}, {gap}")
        lines.append((row, *cells))
    columns = ("row", *(f"≤ {passes}" for passes in within))
    print_table(columns, lines, f"{len(right)} chains of 8 to 10 steps: right @ NFE")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["tune", "test", "show"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--task", default=TASKS, help="separated by commas")
    parser.add_argument("--rows", default=";".join(ROWS), help="separated by semicolons")
    parser.add_argument("--budgets", default="16,32")
    parser.add_argument(
        "--temperature",
        type=float,
        help="of all rows, one particle each, instead of what was chosen",
    )
    parser.add_argument("--limit", type=int, default=60, help="problems per task")
    given = parser.parse_args()
    if given.action == "show":
        show(given.folder)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    plain = s3dlm.load(given.model)
    model = replace(plain, denoiser=RowCache(plain.denoiser, 1 << 29))
    tuning = given.action == "tune"
    split = "validation" if tuning else "test"
    every = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    chosen = {row: {"temperature": given.temperature, "particles": 1} for row in ROWS}
    if not tuning and given.temperature is None:
        chosen = choose(given.folder)
    budgets = (
        [max(map(int, given.budgets.split(",")))] if tuning else map(int, given.budgets.split(","))
    )
    for task, budget, row in itertools.product(
        given.task.split(","), list(budgets), given.rows.split(";")
    ):
        samples = problems(task, split, given.limit)
        for values in every if tuning else [chosen[row]]:
            cell = {"split": split, "row": row, **values, "budget": budget, "task": task}
            measure(model, given.folder, cell, samples)


if __name__ == "__main__":
    study.main(main)
