"""Accuracy of s3 over its settings: λ and temperature together, particles and branching, resamplers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.study import Evaluate, StudyConfig, tuned_in
from benchmarks.tuned import CHOSEN
from s3dlm.evaluation import frames
from s3dlm.evaluation.plan import Condition, settings_for, unique
from s3dlm.search.resample import RESAMPLERS

TEMPERATURES = (0.7, 1.0, 1.5, 2.0)
LAMBDAS = (1.0, 3.0, 10.0, 30.0, 100.0)
PARTICLES, BRANCHING = (1, 2, 4, 8, 16), (1, 2, 4)

GRIDS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "lam_temperature": {"lam": LAMBDAS, "temperature": TEMPERATURES},
    "sizes": {"particles": PARTICLES, "branching": BRANCHING},
    "resamplers": {"resampling": tuple(RESAMPLERS), "lam": (3.0, 30.0)},
}


def conditions(config: StudyConfig, axes: Mapping[str, tuple[Any, ...]]) -> Iterator[Condition]:
    """s3 at every point of a grid, on every task, otherwise at its tuned temperature and λ."""
    tuned = tuned_in(CHOSEN, config.defaults)
    for task, point in itertools.product(config.problems, itertools.product(*axes.values())):
        overrides = dict(zip(axes, point, strict=True))
        yield Condition(task, "s3", settings_for("s3", tuned, overrides, task))


def measure(config: StudyConfig, run: Evaluate, name: str, folder: Path) -> pd.DataFrame:
    """Accuracy and NFE at every point of a grid, the mean over the tasks; the run is resumable."""
    axes = GRIDS[name]
    run([(config.plan(unique(conditions(config, axes))), folder)])
    cells = [
        (*(condition.value(axis) for axis in axes), condition.task, cell.accuracy.value, cell.nfe)
        for condition, cell in frames.read(folder).cells.items()
    ]
    frame = pd.DataFrame(cells, columns=[*axes, "task", "accuracy", "nfe"])
    return frame.groupby(list(axes), as_index=False)[["accuracy", "nfe"]].mean()


def offspring_variance(candidates: int = 16, survivors: int = 8, draws: int = 400) -> pd.DataFrame:
    """The variance of a candidate's offspring, summed over the candidates, for scores as the search
    sees them (uniform in [0, 1]) tilted by λ; the mean over sets of scores."""
    rows = []
    rng = np.random.default_rng(0)
    for lam in LAMBDAS:
        weights = lam * rng.random((50, candidates))
        for name, resample in RESAMPLERS.items():
            spread = [
                np.var([resample(row, survivors, rng) for _ in range(draws)], axis=0).sum()
                for row in weights
            ]
            rows.append((lam, name, float(np.mean(spread))))
    return pd.DataFrame(rows, columns=["lam", "resampling", "variance"])
