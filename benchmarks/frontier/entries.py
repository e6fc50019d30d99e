"""What the frontier compares: a row per curve, each with the settings of its points.

Everybody reveals adaptively. Whoever scores has one verifier and as many look-aheads per forward pass
(`EQUAL`), but for the methods that
their authors run otherwise. Temperature and λ of a row are tuned
unless the row fixes them or leaves one piece of `revise` out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from s3dlm.errors import SettingsError, unknown_name

Kind = Literal["ours", "control", "other", "leave-one-out"]
Given = Mapping[str, Any]

OURS = "revise"
FIVE = ("greedy", "best_of_k", "s3", "restarts", OURS)  # the picture of README
CONTROLS = ("restarts", "s3_rounds", "moves")  # compared with at equal NFE
REVEAL: Given = {"reveal": "threshold"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One curve: a method, what it overrides, and the settings of each point, cheapest first."""

    name: str
    kind: Kind
    method: str
    points: tuple[Given, ...]
    overrides: Given = field(default_factory=dict)
    what: str = ""  # in words, for the table
    problems: int | None = None  # per task; None: all
    seeds: int | None = None
    like: str = ""  # the entry whose temperature and λ it uses, if it is not tuned itself

    @property
    def tuned_at(self) -> int:
        """The point whose accuracy decides temperature and λ; all points then use them. A search that
        begins with a greedy answer has little left of a small budget, so there it is the last but one."""
        return len(self.points) - 2 if "budget" in self.points[0] else len(self.points) // 2

    @property
    def tuned_as(self) -> str:
        """The entry whose temperature and λ it uses."""
        return self.like or (OURS if self.kind == "leave-one-out" else self.name)


def _over(setting: str, values: Sequence[Any], **more: Any) -> tuple[Given, ...]:
    return tuple({setting: value, **more} for value in values)


BUDGETED = _over("budget", (4, 8, 16, 32, 64))
TRAJECTORIES = _over("particles", (2, 4, 8, 16, 32), branching=1)  # K
POPULATIONS = _over("particles", (1, 2, 4, 8, 16), branching=2)  # N, b
NARROWING = _over("particles", (2, 4, 8, 16, 32))  # N, of which a quarter is left
THRESHOLDS = _over("reveal_threshold", (0.5, 0.7, 0.9, 0.98, 0.999))
EQUAL: Given = {"verifier": "checker", "look_aheads": 16}


def _budgeted(
    name: str, kind: Kind, method: str, what: str, like: str = "", **overrides: Any
) -> Entry:
    """Until the verifier is satisfied or all is spent."""
    return Entry(name, kind, method, BUDGETED, {**REVEAL, **EQUAL, **overrides}, what, like=like)


def _other(
    name: str, points: tuple[Given, ...], what: str, method: str = "", problems: int | None = None,
    **overrides: Any,
) -> Entry:  # fmt: skip
    overrides = {key: value for key, value in {**REVEAL, **overrides}.items() if value is not None}
    return Entry(name, "other", method or name, points, overrides, what, problems, seeds=1)


def _without(piece: str, **overrides: Any) -> Entry:
    name = f"no_{piece.replace(' ', '_').replace('-', '_')}"
    return _budgeted(name, "leave-one-out", OURS, f"`{OURS}` without {piece}", **overrides)


_ENTRIES = (
    _budgeted(OURS, "ours", OURS, "the method that we recommend", rounds=0),
    _budgeted("restarts", "control", "restarts", "every round from empty canvases, else as `revise`"),
    _budgeted(
        "s3_rounds", "control", "s3", "`s3` with the ending and the stopping rule of `revise`",
        "s3", selection="best_seen",
    ),
    _budgeted("moves", "control", OURS, "`revise` without fresh starts", OURS, rounds=0, restart_fraction=0.0),
    _without("adaptive reveal", rounds=0, reveal="schedule"),
    _without("checker", rounds=0, verifier="paper"),
    _without("several look-aheads", rounds=0, look_aheads=1),
    _without("differing children", rounds=0, child_sampling="independent"),
    _without("best-seen ending", rounds=0, selection="verified"),
    _without("stopping", rounds=0, stop_when="never"),
    _other(
        "plain", _over("steps", (4, 8, 16, 32, 64)), "LLaDA's own greedy loop over its number of steps",
        "greedy", reveal="schedule",
    ),
    _other("greedy", THRESHOLDS, "one greedy decoding with adaptive reveal, over its threshold"),
    _other("temporal_vote", THRESHOLDS, "vote over the steps of one decoding"),
    _other("best_of_k", TRAJECTORIES, "K samples, majority vote"),
    _other("tilting", TRAJECTORIES, "K samples, vote weighted by exp(λ·score)", verifier="checker"),
    _other(
        "verified_best_of_k", TRAJECTORIES, "K samples, the best by their last score",
        verifier="checker",
    ),
    _other("top_n", POPULATIONS, "the paper's ablation without the tilt", **EQUAL),
    _other("s3", POPULATIONS, "the paper's method, which ends with a vote", **EQUAL),
    _other("s3_verified", POPULATIONS, "s3 that ends with the text of the best score", **EQUAL),
    _other("twisted", POPULATIONS, "s3 with telescoping weights", **EQUAL),
    _other("fk_difference", TRAJECTORIES, "FK steering, difference potential", **EQUAL),
    _other("fk_max", TRAJECTORIES, "FK steering, max potential", **EQUAL),
    _other("fk_sum", TRAJECTORIES, "FK steering, sum potential", **EQUAL),
    _other("particle_gibbs", POPULATIONS, "particle Gibbs, two sweeps", **EQUAL),
    _other("path_likelihood", POPULATIONS, "SMC with the path's log-likelihood as value"),
    _other("self_rewarding", TRAJECTORIES, "self-rewarding SMC, as its authors run it"),
    _other("hex", TRAJECTORIES, "vote over block lengths"),
    _other("prism", NARROWING, "Prism, as its authors run it: the model is its own judge"),
    _other("prism_checker", NARROWING, "Prism with the checker verifier as judge", "prism", verifier="checker"),
    _other("order_token", _over("particles", (1, 2, 3, 4, 6)), "Order-Token Search"),
    # These two reveal by the schedule, of which the points are the steps or the texts.
    _other(
        "lookum", _over("steps", (4, 8, 16, 32, 64)), "LookUM, over its number of steps", reveal=None,
    ),
    _other(
        "unmaskfork", _over("particles", (1, 2, 4, 8, 16), steps=8), "UnMaskFork, eight tokens per step",
        reveal=None, verifier="checker",
    ),
    _other(
        "vgb", _over("budget", (16, 32, 64, 128, 256)), "MDM-VGB, one walk after the other", problems=20,
        reveal=None, verifier="checker",
    ),
)  # fmt: skip
ENTRIES: Mapping[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def chosen(names: Sequence[str]) -> list[Entry]:
    """The entries of these names, or all, in the table's order."""
    for name in names:
        if name not in ENTRIES:
            raise SettingsError(unknown_name("entry", name, ENTRIES))
    return [entry for entry in ENTRIES.values() if not names or entry.name in names]
