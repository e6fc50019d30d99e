"""What the golden results are taken of: every method, with budgets, endings and ways to decode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]

TASKS = ("arithmetic", "countdown", "sudoku", "choice")
ADAPTIVE: Values = {"reveal": "threshold"}  # few steps, so that the cases are quick
SMALL: Values = {"particles": 3, "branching": 2}
METHODS: dict[str, Values] = {
    "baseline": {},
    "greedy": {},
    "best_of_k": SMALL,
    "tilting": SMALL,
    "verified_best_of_k": SMALL,
    "top_n": SMALL,
    "s3": SMALL,
    "s3_paper": SMALL,
    "s3_verified": SMALL,
    "twisted": SMALL,
    "fk_difference": SMALL,
    "fk_max": SMALL,
    "fk_sum": SMALL,
    "self_rewarding": {"particles": 4},
    "path_likelihood": SMALL,
    "temporal_vote": {},
    "particle_gibbs": SMALL,
    "hex": SMALL,
    "lookum": {},
    "prism": {"particles": 4},
    "order_token": {"particles": 2},
    "unmaskfork": {"particles": 3},
    "vgb": {"particles": 1},
    "revise": {},
    "restarts": {},
}
UNADAPTED = ("lookum", "unmaskfork", "vgb")  # they reveal by the schedule alone
SCHEDULE: Values = {"gen_length": 64, "steps": 16, "block_length": 32, "reveal": "schedule"}
WITHOUT_STEPS = ("vgb",)
WITHOUT_BLOCKS = ("vgb", "hex")


@dataclass(frozen=True)
class Case:
    """A method with settings on the first problems of a task."""

    method: str
    task: str
    values: Values = field(default_factory=dict)
    model: str = "tiny"
    infill: str | None = None
    problems: int = 2

    @property
    def name(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.values.items())
        return f"{self.method}/{self.task} {values}".strip() + " infill" * bool(self.infill)


def cases() -> Iterator[Case]:
    """All of them; each has a name of its own."""
    for place, (method, values) in enumerate(METHODS.items()):
        decoding = {} if method in UNADAPTED else ADAPTIVE
        turn = [TASKS[(place + n) % len(TASKS)] for n in range(len(TASKS))]
        yield Case(method, turn[0], {**values, **decoding})
        yield Case(method, turn[1], {**values, **decoding, "budget": 12})
        yield Case(method, turn[2], {**values, **decoding, "budget": 30})
        yield Case(method, turn[3], {**values, **decoding, "budget": 60})
        if method not in UNADAPTED:
            by_schedule = dict(SCHEDULE)
            if method in WITHOUT_BLOCKS:
                del by_schedule["block_length"]
            yield Case(method, turn[3], {**values, **by_schedule}, problems=1)
    for task in TASKS:
        yield Case("s3", task, {})
        yield Case("revise", task, {}, problems=4)
        yield Case("restarts", task, {}, problems=4)
    s3: Values = {**SMALL, **ADAPTIVE}
    for values in (
        *({"selection": name} for name in ("first", "agreement", "verified", "likeliest", "best_seen")),
        *({"resampling": name} for name in ("systematic", "stratified", "multinomial", "residual", "top")),
        {"ess_threshold": 0.5},
        {"ess_threshold": 0.9, "selection": "weighted"},
        {"cadence": "block", "block_length": 16},
        {"child_sampling": "distinct"},
        {"child_sampling": "filled"},
        {"look_aheads": 4},
        {"look_aheads": 4, "budget": 40},
        {"lam": 1.0},
        {"verifier": "checker"},
        {"verifier": "self", "budget": 60},
        {"temperature": 1.0, "seed": 7},
        {"memo": 0},
    ):  # fmt: skip
        yield Case("s3", "countdown", {**s3, **values})
    scheduled: Values = {**SMALL, **SCHEDULE}
    for values in (
        {"policy": "random"}, {"policy": "margin"}, {"policy": "entropy"}, {"policy": "left_to_right"},
        {"position_temperature": 0.5}, {"reveal": "dream"}, {"top_k": 5}, {"top_p": 0.9},
        {"probabilities": "sampled"}, {"guidance": 1.0}, {"end_tokens": "never"},
        {"end_tokens": "last"}, {"cadence": "block"},
    ):  # fmt: skip
        yield Case("s3", "arithmetic", {**scheduled, **values}, problems=1)
    for values in (
        {"ess_threshold": 0.5, "resampling": "ssp"}, {"cadence": "block", "block_length": 16},
    ):  # fmt: skip
        yield Case("twisted", "arithmetic", {**s3, **values})
        yield Case("fk_max", "choice", {**s3, **values})
    for values in (
        *({"remask": name} for name in ("from_doubt", "doubted", "unsure", "random")),
        {"restart_fraction": 0.0},
        {"restart_fraction": 1.0},
        {"look_aheads": 1},
        {"particles": 8},
        {"particles": 2, "seed": 3},
        {"verifier": "paper"},
        {"stop_when": "never"},
        {"child_sampling": "independent"},
        {"selection": "agreement"},
        {"budget": None, "rounds": 2},
        {"budget": 200, "particles": 6},
    ):  # fmt: skip
        yield Case("revise", "arithmetic", {**ADAPTIVE, **values})
        yield Case("revise", "choice", {**ADAPTIVE, **values})
    for task in TASKS:
        yield Case("adaptive_vote", task, {**SMALL, **ADAPTIVE})
        yield Case("adaptive_vote", task, {**SMALL, **ADAPTIVE, "budget": 40})
    yield Case("revise", "chain", {})
    yield Case("restarts", "chain", {})
    yield Case("s3", "chain", s3)
    hole = "Start with 4.\nStep 1: 4 + [[2]] = 9\nThe answer is [[2]]."
    for method in ("baseline", "best_of_k", "s3", "revise", "restarts", "hex", "twisted"):
        values = {**METHODS[method], **ADAPTIVE, "budget": 24}
        yield Case(method, "", values, infill=hole)
    yield Case("s3", "", {**SMALL}, infill=hole)
    for task in ("sudoku9_open", "sudoku9"):
        yield Case("mend", task, {}, model="sudoku9", problems=4)
        yield Case("s3", task, {**SMALL}, model="sudoku9")
        yield Case("restarts", task, {"budget": 40, "particles": 1}, model="sudoku9")
        yield Case("greedy", task, {}, model="sudoku9")
