"""Our numbers beside those that the paper prints (arXiv 2604.06260), if model and settings are its own.

assets/paper.csv has Tables 1 to 3 (no block length) and Table 4: accuracy in per cent, mean effective
tokens, total latency in s, wall time in s. LLaDA-8B-Instruct, gen_length 128, 64 steps. docs/reproduce.md
lists where these numbers contradict each other.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from s3dlm import tasks
from s3dlm.evaluation import series
from s3dlm.evaluation.frames import Run
from s3dlm.evaluation.plan import title_of
from s3dlm.evaluation.tables import Table, number, percent

GRADING = "hex"  # the paper follows the protocol of HEX
MODEL = "LLaDA-8B-Instruct"
PARAMETERS = 8_015_581_184  # by which a renamed folder is known
SETTINGS = {
    "gen_length": 128, "steps": 64, "block_length": 64, "particles": 4, "branching": 2, "lam": 1.0,
}  # fmt: skip
_PRINTED = pd.read_csv(Path(__file__).with_name("assets") / "paper.csv").fillna({"block_length": 0})
# By task, method and block length, which is 0 in Table 3: tokens, latency, wall time.
_KEYS = ["task", "method", "block_length"]
COST = _PRINTED.set_index(_KEYS)[["tokens", "latency", "wall"]].T.to_dict("list")
ACCURACY = _PRINTED.dropna(subset="accuracy").set_index(["task", "method"]).accuracy.to_dict()


def in_papers_setting(run: Run) -> bool:
    """With the paper's model, by name at any revision, or by its number of parameters in any folder."""
    s3 = [main["s3"].settings.to_json() for main in map(run.main, run.tasks) if "s3" in main]
    same = all(SETTINGS.items() <= settings.items() for settings in s3)
    by_name = run.manifest.model.partition("@")[0].rstrip("/").endswith(MODEL)
    return bool(s3) and same and (by_name or run.manifest.machine.get("parameters") == PARAMETERS)


def _problems(task: str) -> int:
    """How many problems the paper's times are of: all that are published."""
    source = tasks.get(task).source
    return (source and source.count) or 1


def accuracy(run: Run, regraded: Run) -> Table:
    """Tables 1 and 2 beside ours, graded as HEX does, and as we do."""
    rows, ours = [], run.main_cells()
    for task, row in regraded.main_cells().items():
        wanted = {label: label for known, label in ACCURACY if known == task}
        for label, printed in ({"greedy": "baseline", **wanted} if wanted else {}).items():
            if label in row:
                theirs, cell = ACCURACY[task, printed], row[label]
                inside = 100 * cell.accuracy.low <= theirs <= 100 * cell.accuracy.high
                rows.append((
                    title_of(task), label, f"{theirs:.2f}", percent(cell.accuracy),
                    "yes" if inside else "no", f"{cell.problems} of {_problems(task)}, × {cell.seeds}",
                    number(100 * ours[task][label].accuracy.value),
                ))  # fmt: skip
    columns = ("Task", "Method", "Paper", f"Ours, graded as {GRADING} [95 %]",
               "Paper inside our interval", "Problems, × seeds", "Ours, as graded above")  # fmt: skip
    note = (
        f"The paper follows HEX's evaluation, so the first of our columns is graded as HEX does "
        f"(`--grading {GRADING}`). The paper gives no temperature, and its baseline may be greedy: "
        "greedy stands beside the paper's baseline, too. Ours is one number per problem, the mean "
        "over seeds; the paper states no seeds."
    )
    return Table("paper", "The paper's accuracy beside ours", columns, rows, note)


def cost(run: Run) -> Table:
    """Table 3 beside ours, as times per problem."""
    rows = []
    for task, row in run.main_cells().items():
        for label, cell in row.items():
            if (task, label, 0) in COST:
                tokens, latency, wall = COST[task, label, 0]
                pairs = ((tokens, cell.answer_tokens), (latency / _problems(task), cell.seconds),
                         (wall / latency, cell.wall / cell.latency))  # fmt: skip
                values = [number(value, 2) for pair in pairs for value in pair]
                rows.append((title_of(task), label, *values, str(cell.timed)))
    names = [f"{name}, {whose}" for name in ("Tokens", "s per problem", "Wall time / latency")
             for whose in ("paper", "ours")]  # fmt: skip
    note = (
        "Both per problem: the paper's total latency, which includes loading, divided by all problems "
        "of the benchmark; ours by the samples that were timed."
    )
    columns = ("Task", "Method", *names, "Timed")
    return Table("paper_cost", "The paper's Table 3 beside ours", columns, rows, note, late=True)


def beside(run: Run, regraded: Run) -> list[Table]:
    """The paper's Tables 1 to 3 beside ours; empty unless model and settings are the paper's."""
    return [accuracy(run, regraded), cost(run)] if in_papers_setting(run) else []


def block_cost(run: Run) -> Table:
    """Table 4: tokens and latency by block length; the paper's beside ours in the paper's setting."""
    same, rows = in_papers_setting(run), []
    for cell in series.block_cells(run):
        task, label = cell.condition.task, cell.condition.label
        length = cell.condition.settings.block_length
        tokens, latency, _ = COST.get((task, label, length), [math.nan] * 3)
        printed = (number(tokens, 2), number(latency, 2), number(latency / _problems(task), 3))
        rows.append((
            title_of(task), str(length), label, percent(cell.accuracy), str(cell.problems),
            number(cell.answer_tokens), number(cell.seconds, 3), str(cell.timed),
            *(printed if same else ()),
        ))  # fmt: skip
    columns = (
        "Task", "Block length", "Method", "Accuracy [95 %]", "Problems", "Answer tokens",
        "s per sample", "Timed",
        *(("Tokens, paper", "Latency (s), paper", "s per problem, paper") if same else ()),
    )  # fmt: skip
    note = "As Table 3, for every block length of the run, on the problems that all of them share."
    doubt = "In a latency of a few seconds no model of 8 B parameters can have answered them all."
    note = f"{note} {doubt}" if same else note
    title = "Tokens and latency by block length (Table 4)"
    return Table("block_cost", title, columns, rows, note, late=True)
