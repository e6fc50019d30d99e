"""What the frontier compares: a row per curve, each with the settings of its points.

Everybody has the same adaptive reveal. The controls are `revise` with its rounds begun in another way: all
afresh (`restarts`, `verified_best_of_k`), none of them (`moves`), or with the search of s3 inside
(`with_search`); all else is the same. A leave-one-out row is `revise` without one piece.
Temperature and λ of a row are tuned unless the row fixes them or leaves one piece out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from s3dlm.errors import SettingsError, unknown_name

Kind = Literal["ours", "control", "other", "leave-one-out"]
Given = Mapping[str, Any]

OURS = "revise"
CONTROLS = ("restarts", "verified_best_of_k", "moves", "with_search")  # compared with at equal NFE
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

    @property
    def tuned_at(self) -> int:
        """The point whose accuracy decides temperature and λ; all points then use them. A search that
        begins with a greedy answer has little left of a small budget, so there it is the last but one."""
        return len(self.points) - 2 if "budget" in self.points[0] else len(self.points) // 2

    @property
    def tuned_as(self) -> str:
        """The entry whose temperature and λ it uses."""
        return OURS if self.kind == "leave-one-out" else self.name


def _over(setting: str, values: Sequence[Any], **more: Any) -> tuple[Given, ...]:
    return tuple({setting: value, **more} for value in values)


BUDGETED = _over("budget", (4, 8, 16, 32, 64))
TRAJECTORIES = _over("particles", (2, 4, 8, 16, 32), branching=1)  # K
POPULATIONS = _over("particles", (1, 2, 4, 8, 16), branching=2)  # N, b
NARROWING = _over("particles", (2, 4, 8, 16, 32))  # N, of which a quarter is left
THRESHOLDS = _over("reveal_threshold", (0.5, 0.7, 0.9, 0.98, 0.999))
# Until the verifier is satisfied or all is spent; λ = 0 belongs to `revise` and is not tuned.
ON: Given = {**REVEAL, "rounds": 0, "lam": 0.0}


def _control(name: str, what: str, problems: int | None = 150, **more: Any) -> Entry:
    overrides = {key: value for key, value in {**ON, **more}.items() if value is not None}
    return Entry(name, "control", OURS, BUDGETED, overrides, what, problems, problems and 1)


def _other(
    name: str,
    points: tuple[Given, ...],
    what: str,
    method: str = "",
    problems: int | None = 40,
    **overrides: Any,
) -> Entry:
    overrides = {key: value for key, value in {**REVEAL, **overrides}.items() if value is not None}
    return Entry(name, "other", method or name, points, overrides, what, problems, seeds=1)


def _without(piece: str, **overrides: Any) -> Entry:
    name = f"no_{piece.replace(' ', '_').replace('-', '_')}"
    what = f"`{OURS}` without {piece}"
    return Entry(name, "leave-one-out", OURS, BUDGETED, {**ON, **overrides}, what, 100, seeds=1)


_ENTRIES = (
    Entry(OURS, "ours", OURS, BUDGETED, ON, "the method of this package"),
    _control("restarts", "rounds of four fresh samples, the best by score", None, remask="all"),
    _control(
        "verified_best_of_k", "as many samples at once as the budget pays for, the best by score",
        particles=64, rounds=1, remask="all",
    ),
    _control("moves", "`revise` without fresh starts", restart_fraction=0.0),
    _control(
        "with_search", "`revise` that also branches, tilts and resamples in every round",
        branching=2, accept="resample", lam=None,
    ),
    _without("adaptive reveal", reveal="schedule"),
    _without("checker", verifier="paper"),
    _without("several look-aheads", look_aheads=1),
    _without("differing children", child_sampling="independent"),
    _without("best-seen ending", selection="verified"),
    _without("stopping", stop_when="never"),
    _other(
        "plain", _over("steps", (4, 8, 16, 32, 64)), "LLaDA's own greedy loop over its number of steps",
        "baseline", None, reveal="schedule", temperature=0.0,
    ),
    _other(
        "greedy", THRESHOLDS, "greedy with adaptive reveal, over its threshold",
        "baseline", None, temperature=0.0,
    ),
    _other("temporal_vote", THRESHOLDS, "vote over the steps of one decoding"),
    _other(
        "remasking", _over("rounds", (1, 2, 4, 8, 16)),
        "one answer, random tokens hidden and denoised again, no verifier (ReMDM-style)",
        "baseline", remask="random",
    ),
    _other("best_of_k", TRAJECTORIES, "K samples, majority vote"),
    _other("tilting", TRAJECTORIES, "K samples, vote weighted by exp(λ·score)"),
    _other("top_n", POPULATIONS, "the paper's ablation without the tilt"),
    _other("s3", POPULATIONS, "the paper's method"),
    _other("s3_verified", POPULATIONS, "s3 that ends with the text of the best score"),
    _other("twisted", POPULATIONS, "s3 with telescoping weights"),
    _other("fk_difference", TRAJECTORIES, "FK steering, difference potential"),
    _other("fk_max", TRAJECTORIES, "FK steering, max potential"),
    _other("fk_sum", TRAJECTORIES, "FK steering, sum potential"),
    _other("self_rewarding", TRAJECTORIES, "self-rewarding SMC, as its authors run it"),
    _other("path_likelihood", POPULATIONS, "SMC with the path's log-likelihood as value"),
    _other("particle_gibbs", POPULATIONS, "particle Gibbs, two sweeps"),
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
