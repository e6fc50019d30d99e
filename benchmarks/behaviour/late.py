"""Searches that listen to look-aheads only once they mean something.

`growing` is s3 with λ·done⁴ in place of λ, so that early scores hardly count. `late` lets N·b independent
trajectories run and resamples them in the last quarter of the steps alone. Each has a row that ends as s3
does, with a vote, and one that ends with the best score. Temperature and λ of each are chosen on the
validation split; three times as many problems of the test split are read once, beside the controls with theirs (benchmarks/tuned.json).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

import s3dlm
from benchmarks.study import Evaluate, StudyConfig, tuned_in
from benchmarks.tune import tune
from benchmarks.tuned import CHOSEN
from s3dlm.evaluation import frames
from s3dlm.evaluation.plan import grid
from s3dlm.evaluation.tables import by_method
from s3dlm.extras.published.steering import Steering
from s3dlm.search.particles import Children, Floats, Looked
from s3dlm.search.smc import S3

POWER, START = 4, 0.75
TEMPERATURES, LAMBDAS = (0.7, 1.0, 1.5), (10.0, 30.0)
CONTROLS = ("best_of_k", "s3", "verified_best_of_k", "s3_verified")
ROWS = ("growing", "late", "growing_verified", "late_verified")
PAIRS = {  # each beside the search and the sampling that end as it does
    **dict.fromkeys(ROWS[:2], ("s3", "best_of_k")),
    **dict.fromkeys(ROWS[2:], ("s3_verified", "verified_best_of_k")),
}


class Growing(S3):
    name = "growing"
    like = "s3"

    def potential(self, children: Children, looked: Looked) -> Floats:
        return self.lam * children.done**POWER * looked.score


class Late(Steering):
    name = "late"
    like = "s3"

    resampling: str = "ssp"
    ess_threshold: float | None = None
    selection: str = "majority"

    def potential(self, children: Children, looked: Looked) -> Floats:
        return self.lam * (children.done > START) * looked.score


class GrowingVerified(Growing):
    name = "growing_verified"
    selection: str = "verified"


class LateVerified(Late):
    name = "late_verified"
    selection: str = "verified"


for _method in (Growing, Late, GrowingVerified, LateVerified):
    s3dlm.register_method(_method)


def choose(config: StudyConfig, run: Evaluate, folder: Path) -> None:
    """Temperature and λ of the new rows on the validation split, into `folder`/tuned.json."""
    tune(config, run, ROWS, folder, TEMPERATURES, LAMBDAS)


def measure(config: StudyConfig, run: Evaluate, chosen: Path, folder: Path) -> pd.DataFrame:
    """Accuracy and NFE of controls and rows on the test split, the means over the tasks, and what each
    row gains over the two controls that end as it does, with intervals over problems."""
    settings = tuned_in(chosen, tuned_in(CHOSEN, config.defaults))
    conditions = grid(list(config.problems), [*CONTROLS, *ROWS], settings)
    run([(config.plan(conditions), folder)])
    found = frames.read(folder)
    of_label = {row.label: row.cell for row in by_method(found)}
    rows = []
    for label in (*CONTROLS, *ROWS):
        used = settings(label, None).to_json()
        level, nfe = of_label[label].accuracy, of_label[label].nfe
        cell = [label, used["temperature"], used.get("lam")]
        cell += [level.value, level.low, level.high, nfe]
        for control in PAIRS.get(label, ()):
            gap = found.compare(label, control)
            cell += [gap.difference.value, gap.difference.low, gap.difference.high, gap.p]
        rows.append(cell)
    over = [
        f"{what}_{side}" for side in ("search", "samples") for what in ("gain", "low", "high", "p")
    ]
    names = ["method", "temperature", "lam", "accuracy", "low", "high", "nfe", *over]
    return pd.DataFrame([cell + [None] * (len(names) - len(cell)) for cell in rows], columns=names)
