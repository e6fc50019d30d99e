"""What perfect knowledge would be worth: 9×9 Sudoku with one solution, and an oracle that knows it.

Every row drafts a greedy grid first, reads sixteen texts per forward pass and stops at the valid grid. Plain
restarts know nothing else. The others ask the oracle which revealed cells are wrong: as the weight of a
search (S³ 4 × 2), to give a draft up, or to re-mask exactly what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import s3dlm
from s3dlm import tasks
from s3dlm.engine import Job, run
from s3dlm.evaluation.statistics import bootstrap
from s3dlm.extras.grids.mend import Mend
from s3dlm.search.particles import Bools, Canvas, Children, Floats, Ints, Looked, Particles
from s3dlm.search.revise import Restarts
from s3dlm.search.run import Run
from s3dlm.search.smc import S3
from s3dlm.settings import Settings
from s3dlm.verifier import Score, Verifier

TASK, WITHIN = "sudoku9", (16, 32, 64)
PLAIN = "restarts"
SHARED: dict[str, Any] = {
    "budget": max(WITHIN), "temperature": 1.0, "reveal_threshold": 0.98, "verifier": "checker",
    "look_aheads": 16,
}  # fmt: skip


class _Knows:
    """The cells of the solution, as the model's tokens 0 to 8; the mask is no cell's."""

    solution: str

    def alive(self, tokens: Ints) -> Bools:
        """Of each canvas, whether no revealed cell is wrong."""
        right = np.array([int(digit) - 1 for digit in self.solution])
        return np.asarray(((tokens == right) | (tokens >= right.size // 9)).all(axis=1))


class OracleS3(S3, _Knows):
    name = "oracle_s3"
    solution: str = ""
    lam: float = 50.0
    selection: str = "best_seen"

    def potential(self, children: Children, looked: Looked) -> Floats:
        alive: Floats = self.alive(children.canvas.tokens).astype(np.float64)
        return self.lam * alive


class GivesUp(Restarts, _Knows):
    name = "gives_up"
    solution: str = ""

    async def search(self, run: Run, start: Canvas | None = None) -> Particles:
        particles = await run.begin(self.size, verified=True, start=start)
        while particles.open and self.alive(particles.canvas.tokens).any():
            children = run.expand(particles, 1, self.child_sampling)
            ahead = await run.predict(children)
            particles = run.keep(children, await run.verify(ahead))
        return particles


@dataclass(frozen=True)
class Blames(Verifier):
    """A verifier that says exactly which cells are wrong."""

    solution: str
    satisfied_at: float = 1.0

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        grid = text.replace("\n", "").replace(" ", "")
        if len(grid) != len(self.solution):
            return Score(0.0, {})
        wrong = [at for at, digit in enumerate(grid) if digit != self.solution[at]]
        return Score(1 - len(wrong) / len(grid), {}, tuple((at, at + 1) for at in wrong))


ROWS: dict[str, tuple[type, dict[str, Any]]] = {
    PLAIN: (Restarts, {"particles": 1}),
    "S³ 4 × 2, weighed by the oracle": (OracleS3, {}),
    "restarts that give up what is wrong": (GivesUp, {"particles": 1}),
    "re-masking exactly what is wrong": (
        Mend, {"remask_below": 1.0, "threshold_scale": 0.0, "screen": 0, "accept": "replace", "patience": 0},
    ),
}  # fmt: skip


def measure(folder: Path, limit: int) -> pd.DataFrame:
    """Passes and success of every row on every puzzle; what the folder has is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    model = s3dlm.load("sudoku9")
    problems = tasks.load(tasks.get(TASK), prompt_style="tiny", split="test", limit=limit).samples
    rows = []
    for number, (name, (method, own)) in enumerate(ROWS.items()):
        path = folder / f"{number}.json"
        known: list[list[Any]] = json.loads(path.read_text()) if path.is_file() else []
        jobs = []
        for sample in problems[len(known) :]:
            gold = str(sample.gold)
            more = {"solution": gold} if issubclass(method, _Knows) else {}
            settings = Settings.for_model(model, method, TASK, **{**SHARED, **own, **more})
            judge = Blames(gold) if method is Mend else None
            jobs.append(Job(sample.question, TASK, settings, sample.id, judge))
        found: dict[int, list[Any]] = {}
        for at, event in run(model, jobs):
            if isinstance(event, s3dlm.Result):
                right = event.answer == str(problems[len(known) + at].gold)
                found[at] = [event.nfe, event.nfe_logical, right]
        known += [found[at] for at in sorted(found)]
        path.write_text(json.dumps(known))
        print(f"{name}: {len(known)} puzzles", flush=True)
        rows += [(name, at, *each) for at, each in enumerate(known[:limit])]
    return pd.DataFrame(rows, columns=["row", "puzzle", "nfe", "nfe_logical", "solved"])


def by_passes(frame: pd.DataFrame) -> pd.DataFrame:
    """Share solved within so many passes, and the difference from plain restarts on the same puzzles."""
    rows = []
    plain = frame[frame.row == PLAIN].set_index("puzzle")
    for name, part in frame.groupby("row", sort=False):
        own = part.set_index("puzzle")
        for within in range(4, max(WITHIN) + 1, 4):
            solved = [(each.solved & (each.nfe <= within)).astype(float) for each in (own, plain)]
            gap, _ = bootstrap([list(solved[0] - solved[1])])
            rows.append((name, within, solved[0].mean(), gap.value, gap.low, gap.high))
    columns = ["row", "within", "solved", "gain", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def table(frame: pd.DataFrame) -> Sequence[str]:
    """The same in words at 16, 32 and 64 passes, with the mean passes by both counts."""
    curves, lines = by_passes(frame).set_index(["row", "within"]), []
    for name, part in frame.groupby("row", sort=False):
        cells = []
        for within in WITHIN:
            at = curves.loc[(name, within)]
            gain = f" ({100 * at.gain:+.0f} [{100 * at.low:.0f}, {100 * at.high:.0f}])"
            cells.append(f"{100 * at.solved:.0f}{'' if name == PLAIN else gain}")
        cost = f"{part.nfe.mean():.1f} ({part.nfe_logical.mean():.1f})"
        lines.append(f"| {' | '.join([str(name), *cells, cost])} |")
    return lines
