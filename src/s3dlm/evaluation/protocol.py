"""The paper's protocol as a plan: what `s3dlm reproduce` runs on one model.

The main comparison asks every problem with every seed. The sweeps behind the curves (particles,
branching, block length) would cost far more than it, so they ask fewer problems, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from s3dlm import tasks as benchmarks
from s3dlm.evaluation import plan as plans
from s3dlm.evaluation.plan import Condition, Tuned
from s3dlm.evaluation.run import Plan
from s3dlm.settings import Settings
from s3dlm.tasks import Loaded, recommended

METHODS = ("greedy", "baseline", "best_of_k", "tilting", "look_ahead", "s3")
BESIDE = ("twisted", "s3_paper")  # rows that need only one seed
SWEPT = ("best_of_k", "s3")
PARTICLES = (1, 2, 4, 8, 16)
BRANCHING = (1, 2, 4)
BLOCKED = ("baseline", "best_of_k", "s3")
BLOCK_LENGTHS = (2, 4, 8, 16, 32, 64)


def problems(
    tasks: Sequence[str],
    preset: str,
    *,
    data: Path | None = None,
    split: str = "test",
    limit: int | None = None,
) -> dict[str, Loaded]:
    """The problems of several tasks."""
    return {
        name: benchmarks.load(
            benchmarks.get(name), preset=preset, data=data, split=split, limit=limit
        )
        for name in tasks
    }


def base_settings(model: str, changes: Mapping[str, object] | None = None) -> Settings:
    """The model's recommended settings with the user's changes."""
    return Settings.from_json({**recommended.settings(model), **(changes or {})})


def reproduction(
    loaded: Mapping[str, Loaded],
    base: Settings,
    tuned: Tuned,
    seeds: Sequence[int],
    *,
    sweep_problems: int,
    traces: int = 0,
    remember: float = 0.0,
) -> Plan:
    """Table 1 and the ablation on everything, the curves on the first `sweep_problems`."""
    names = list(loaded)
    main = plans.grid(names, METHODS, base, tuned=tuned)
    beside = plans.limited(plans.grid(names, BESIDE, base, tuned=tuned), None, 1)
    main = sorted([*main, *beside], key=lambda one: names.index(one.task))
    sweeps: list[Condition] = []
    if sweep_problems:
        grid = {"particles": PARTICLES, "branching": BRANCHING}
        lengths = [n for n in BLOCK_LENGTHS if _fits(base, n)]
        sweeps += plans.grid(names, SWEPT, base, grid, tuned)
        sweeps += plans.grid(names, BLOCKED, base, {"block_length": lengths}, tuned)
    conditions = plans.unique([*main, *plans.limited(sweeps, sweep_problems, 1)])
    return Plan(conditions, base, loaded, seeds, tuned=tuned, traces=traces, remember=remember)


def _fits(base: Settings, block_length: int) -> bool:
    """Whether every block of this length gets a step."""
    return -(-base.gen_length // block_length) <= base.steps and block_length <= base.gen_length
