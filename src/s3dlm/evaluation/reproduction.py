"""The paper's protocol as a plan, in three sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from s3dlm.answers.grading import check_grading
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.evaluation.plan import (
    ABLATION,
    Condition,
    Overrides,
    Plan,
    SettingsOf,
    as_sweep,
    grid,
    settings_for,
    unique,
)
from s3dlm.tasks import Loaded

MAIN = ("greedy", *ABLATION)
# Extra methods that `reproduce` runs with one seed; the last two separate the search from its ending.
ONE_SEED = ("twisted", "s3_paper", "verified_best_of_k", "s3_verified")
SWEPT = ("best_of_k", "s3")
PARTICLES, BRANCHING = (1, 2, 4, 8, 16), (1, 2, 4)
BLOCK_SWEPT = ("baseline", "best_of_k", "s3")
BLOCK_LENGTHS = (2, 4, 8, 16, 32, 64)
TIMED_IN_SWEEPS = 10  # problems


@dataclass(frozen=True, slots=True)
class Size:
    """How much of the paper's protocol a reproduction runs."""

    methods: tuple[str, ...]  # with all seeds
    once: tuple[str, ...] = ()  # with one
    problems: int | None = None  # per task; None: all
    seeds: int = 1
    sweep_problems: int = 0  # per task, for the sweeps over N, b and block length
    left_out: tuple[str, ...] = ("aime",)  # the paper has it in Table 4 alone


SIZES = {
    "hour": Size(("greedy", "best_of_k", "s3"), problems=40),
    "day": Size(("greedy", "baseline", "best_of_k", "s3")),
    "full": Size(MAIN, ONE_SEED, None, 3, 200, ()),
}


def size_of(name: str, grading: str | None) -> Size:
    """A size by name; with it, the grading of the tables is checked before anything runs."""
    check_grading(grading or "fixed")
    if name not in SIZES:
        raise SettingsError(unknown_name("size", name, SIZES))
    return SIZES[name]


def tuned_in(file: Path, defaults: SettingsOf) -> SettingsOf:
    """The defaults with the settings that a file of `benchmarks.tune` has for some methods."""
    try:
        tuned = {str(k): dict(v) for k, v in json.loads(file.read_text(encoding="utf-8")).items()}
        for method, chosen in tuned.items():
            defaults(method, None).replace(**chosen)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"{file} cannot be used: {error}; write one JSON object, settings by method: "
            '{"s3": {"temperature": 1, "lam": 30}}'
        ) from error
    return lambda method, task: defaults(method, task).replace(**tuned.get(method, {}))


def reproduction(
    loaded: Mapping[str, Loaded],
    defaults: SettingsOf,
    seeds: Sequence[int],
    size: Size = SIZES["full"],
    overrides: Overrides | None = None,
    *,
    sweep_problems: int | None = None,
    traces: int = 0,
    row_cache: float = 0.0,
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
        points = grid(names, SWEPT, defaults, over, axes)
        sweeps += [replace(c, timed=TIMED_IN_SWEEPS) for c in points]
        over = {name: value for name, value in given.items() if name != "block_length"}
        sweeps += grid(names, BLOCK_SWEPT, defaults, over, {"block_length": lengths})
    conditions = unique([*main, *as_sweep(sweeps, fewer)])
    return Plan(conditions, loaded, seeds, traces=traces, row_cache=row_cache)
