"""The methods, side by side: a row says how a method fills the blanks of the loop.

`uses` names the settings that a method reads; any other one is refused (settings.py). `defaults` are
the values that differ from the defaults of all. A row holds no other values: those are `Settings`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from s3dlm.errors import SettingsError, check_registration, unknown_name
from s3dlm.inputs import find_entry_points, load_entry_point
from s3dlm.search.remask import BY_DOUBT, BY_SCORE, BY_WEIGHT, MOVES
from s3dlm.search.weigh import WEIGHTS

Population = Literal["one", "particles", "product"]
Scored = Literal["never", "at the end", "every step"]
ENSEMBLES = {  # what makes a population otherwise than by one search; imported when a row names it
    "block_lengths": "s3dlm.search.ensembles:block_lengths",
    "sweeps": "s3dlm.search.ensembles:sweeps",
    "prism": "s3dlm.diffusion.published:prism",
    "order_token": "s3dlm.diffusion.published:order_token",
    "unmaskfork": "s3dlm.diffusion.trees:unmaskfork",
    "vgb": "s3dlm.diffusion.trees:vgb",
}
GROUP = "s3dlm.methods"  # the entry-point group through which other packages add methods

Beside = Mapping[str, Mapping[str, Collection[Any]]]
"""A setting → the other settings of which one must have one of these values (or, of none, any value
but nothing) for it to count."""

# --- groups of settings that rows use
TRAJECTORIES = frozenset({"particles", "branching", "child_sampling", "selection"})
SCORES = frozenset({"verifier", "lam"})
RESAMPLES = frozenset({"resampling", "ess_threshold", "cadence"})
ROUNDS = frozenset(
    {"budget", "stop_when", "decided_at", "rounds", "patience", "accept", "careless"}
    | {"remask", "remask_fraction", "remask_floor", "remask_below", "restart_fraction"}
)
SEARCH = TRAJECTORIES | SCORES | RESAMPLES | ROUNDS | {"look_aheads", "screen"}
"""Every setting of the search; the others say how to decode, and every method uses them."""

SCHEDULED = frozenset(  # settings that a method fixes if it reveals by the schedule alone
    {"reveal", "reveal_threshold", "reveal_factor", "reveal_bound", "edit_threshold"}
)

# --- what counts in some rows only beside a move, which hides part of a text and denoises it again
_JUDGED = {"remask": BY_DOUBT, "accept": tuple(sorted(BY_SCORE)), "patience": ()}
MOVING: Beside = {
    "stop_when": {"budget": (), "stop_when": ("agreed",)},
    "decided_at": {"stop_when": ("agreed",)},
    "remask": {"budget": (), "rounds": ()},
    "remask_floor": {"remask": BY_WEIGHT},
    **{name: {"remask": MOVES} for name in ("remask_fraction", "restart_fraction", "remask_below")},
    **{name: {"remask": MOVES} for name in ("careless", "patience", "accept")},
}
_BY_SCORE = {"accept": tuple(sorted(BY_SCORE))}
_STOPPED = {**_JUDGED, "stop_when": ("agreed",)}
UNSEEN: Beside = {"verifier": _JUDGED, "stop_when": _STOPPED, "lam": _BY_SCORE}
ONE_TEXT: Beside = {**UNSEEN, "rounds": {"remask": MOVES}}  # decoded again in full it is the same
# … or beside screening, which reads partial texts and weighs by λ whatever else the row does
UNTILTED: Beside = {"lam": {**_BY_SCORE, "screen": ()}}
UNSCORED: Beside = {**UNSEEN, "verifier": {**_JUDGED, "screen": ()}, **UNTILTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A row of the table of methods."""

    name: str = "custom"
    summary: str = field(default="", compare=False)
    source: str = field(default="", compare=False)  # the paper it comes from
    population: Population = "particles"  # 1, N or N·b particles
    branches: bool = False  # b children per particle, or one
    scored: Scored = "every step"
    weight: str = "none"  # a name in weigh.py
    ensemble: str = "none"  # of searches, a name in `ENSEMBLES`
    like: str = ""  # the method whose recommendations and calibrations count for it, too
    uses: frozenset[str] = SEARCH
    fixed: frozenset[str] = frozenset()  # settings of decoding that it does not leave open
    defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    beside: Beside = field(default_factory=dict, compare=False)  # for its settings, see `Beside`

    def __post_init__(self) -> None:
        choices = {
            "population": get_args(Population), "scored": get_args(Scored),
            "weight": tuple(WEIGHTS), "ensemble": ("none", *ENSEMBLES),
        }  # fmt: skip
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise SettingsError(unknown_name(name, getattr(self, name), allowed))
        for name in self.uses - SEARCH:
            raise SettingsError(unknown_name("uses", name, SEARCH))
        needed, order = WEIGHTS[self.weight].scored, get_args(Scored)
        if order.index(self.scored) < order.index(needed):
            raise SettingsError(
                f"weight={self.weight!r} needs scores, and method={self.name!r} has "
                f"scored={self.scored!r}; give scored={needed!r}, or weight='none', 'confidence' or 'path'"
            )

    @property
    def independent(self) -> bool:
        """Whether its trajectories are independent samples, each with a vote of its own."""
        alone = self.ensemble == "none" and "resampling" not in self.uses
        return alone and self.population == "product"

    @property
    def needs_chance(self) -> bool:
        """Whether it compares answers that differ by chance alone."""
        return self.population != "one" and "temperature" not in self.fixed

    @property
    def has_target(self) -> bool:
        """Whether its survivors, with their weights, sample p·exp(λ·f)."""
        once = self.weight == "tilt" and self.scored == "at the end"
        return once or WEIGHTS[self.weight].telescopes

    @property
    def kin(self) -> str:
        """The name under which models recommend settings for it, and calibrations are kept."""
        return self.like or self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which a model's file recommends settings for it."""
        return (self.kin,)

    def to_json(self) -> dict[str, Any]:
        """What makes the row, as plain data; `Method(**data)` is equal to it."""
        names = [x.name for x in dataclasses.fields(self) if x.compare and x.name != "name"]
        plain = {name: getattr(self, name) for name in names}
        return {n: sorted(v) if isinstance(v, frozenset) else v for n, v in plain.items()}


METHODS: dict[str, Method] = {}


def register_method(name: str, method: Method, *, replace: bool = False) -> Method:
    """Make a method known by name, to Python, the command line, the server and evaluation alike."""
    check_registration("method", name, method, Method, METHODS, replace)
    METHODS[name] = dataclasses.replace(method, name=name)
    return METHODS[name]


def _row(name: str, base: Method, summary: str, source: str = "", **changes: Any) -> None:
    register_method(name, dataclasses.replace(base, summary=summary, source=source, **changes))


_ONE = Method(
    population="one", scored="never", uses=ROUNDS | SCORES, beside=ONE_TEXT,
    defaults={"selection": "first"},
)  # fmt: skip
_K = Method(population="product", uses=TRAJECTORIES | ROUNDS | SCORES | {"screen"})
_S3 = Method(branches=True, weight="tilt", defaults={"resampling": "ssp"})
_FK = Method(
    population="product",
    defaults={"resampling": "multinomial", "ess_threshold": 0.5, "selection": "verified"},
)
_PAPER, _ABLATION = "S³, Bilal et al. 2026", "S³, ablation"
_STEERING = "FK steering, Singhal et al. 2025"

_row("baseline", _ONE, "one trajectory, as the model's authors decode")
_row(
    "greedy", _ONE, "the baseline without sampling, which is LLaDA's own decoding by default",
    like="baseline", fixed=frozenset({"temperature"}),
    defaults={"selection": "first", "temperature": 0.0},
)  # fmt: skip
_row(
    "best_of_k", _K, "K = N·b independent trajectories, majority vote",
    scored="never", beside=UNSCORED,
)  # fmt: skip
_row(
    "tilting", _K, "K = N·b independent trajectories, a vote weighted by exp(λ·score)", _ABLATION,
    scored="at the end", weight="tilt", defaults={"selection": "weighted"},
)  # fmt: skip
_row(
    "look_ahead", _S3, "search with look-ahead scores; the N best are kept at every step", _ABLATION,
    weight="rank", beside=UNTILTED, defaults={"resampling": "top"},
)  # fmt: skip
_row(
    "s3", _S3, "the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling", _PAPER
)
# It can branch, tilt and resample as s3 does; that showed no gain
# (docs/frontier.md), so by default every particle has one child and all weigh the same.
_row(
    "revise", _S3,
    "drafts that differ, several look-aheads per forward pass, the plus verifier, rounds that mask "
    "again what it doubts or begin afresh, and the best text seen",
    "ours",
    defaults={
        "branching": 1, "lam": 0.0, "resampling": "ssp", "child_sampling": "filled",
        "look_aheads": 16, "selection": "best_seen", "verifier": "plus", "rounds": 1,
        "remask": "earlier", "restart_fraction": 0.25,
    },
)  # fmt: skip
_row(
    "s3_paper", _S3, "s3 with the paper's λ = 1, whatever the model recommends", _PAPER,
    like="s3", uses=SEARCH - {"lam"},
)  # fmt: skip
_row(
    "s3_verified", _S3, "s3 that ends with the text of the best score instead of a vote", "ours",
    defaults={"resampling": "ssp", "selection": "verified"},
)  # fmt: skip
_row(
    "twisted", _S3, "s3 whose weights divide by the parent's, so that it samples p·exp(λ·score)",
    "ours", weight="twist", defaults={"resampling": "ssp", "selection": "weighted"},
)  # fmt: skip
_row(
    "verified_best_of_k", _K, "K = N·b independent trajectories, the one with the best score",
    scored="at the end", beside=UNTILTED, defaults={"selection": "verified"},
)  # fmt: skip
_BY = "Feynman–Kac steering of K particles by the "
_row("fk_difference", _FK, _BY + "gain in score", _STEERING, weight="twist")
_row("fk_max", _FK, _BY + "highest score so far", _STEERING, weight="fk_max")
_row("fk_sum", _FK, _BY + "sum of scores", _STEERING, weight="fk_sum")
_row(
    "self_rewarding", _FK,
    "K particles weighted by the log p of what they revealed, resampled at block ends when the "
    "ESS is below half; the answer with the largest total log p",
    "as in self-rewarding SMC, Luo et al. 2026", scored="never", weight="confidence",
    uses=SEARCH - {"look_aheads", "screen"}, beside=UNSEEN,
    defaults={
        "branching": 1, "resampling": "multinomial", "ess_threshold": 0.5, "cadence": "block",
        "selection": "likeliest",
    },
)  # fmt: skip
_row(
    "path_likelihood", _S3,
    "s3 with the path's log-likelihood as value and no verifier: it samples p·exp(λ·log p)",
    "path log-likelihood, Liu et al. 2026", scored="never", weight="path",
    uses=SEARCH - {"look_aheads", "screen"}, beside={"verifier": _JUDGED, "stop_when": _STOPPED},
)  # fmt: skip
_row(
    "temporal_vote", _ONE,
    "one trajectory, a vote of the look-ahead texts of all its steps, later ones heavier",
    "temporal self-consistency, Wang et al. 2025", defaults={"selection": "temporal"},
)  # fmt: skip
_row(
    "particle_gibbs", Method(), "b conditional sweeps of N particles around a kept trajectory",
    "particle Gibbs, Dang et al. 2025", weight="twist", ensemble="sweeps",
    uses=SEARCH - {"screen"},  # its pinned trajectory would need candidates of its own
    defaults={"resampling": "multinomial", "selection": "verified"},
)  # fmt: skip
_row(
    "hex", _K, "K trajectories spread over block lengths, majority vote", "HEX, Lee et al. 2025",
    scored="never", ensemble="block_lengths", fixed=frozenset({"block_length"}), beside=UNSCORED,
)  # fmt: skip
_row(
    "lookum", _S3,
    "at every step b sets of positions out of the five surest; one is drawn by how sure the model "
    "then is of the rest",
    "after LookUM, Lee et al. 2025", scored="never", weight="certainty", fixed=SCHEDULED | {"policy"},
    uses=SEARCH - {"look_aheads", "screen", "careless"},
    beside={"verifier": _JUDGED, "stop_when": _STOPPED},
    defaults={"particles": 1, "resampling": "multinomial", "policy": "pool"},
)  # fmt: skip
_row(
    "prism", Method(),
    "N trajectories that the model judges itself; early in a block they become N/4: copies of the "
    "best different ones, most with two unsure tokens masked again",
    "as in Prism, Bai et al. 2026", ensemble="prism",
    uses=frozenset({"particles", "verifier", "selection", "budget", "stop_when", "decided_at"}),
    defaults={"particles": 16, "verifier": "self", "selection": "verified"},
)  # fmt: skip
_row(
    "order_token", Method(),
    "N beams; where a block begins, of N draws of a whole text by each the likeliest in that block",
    "after Order-Token Search, Shen et al. 2026", scored="never", weight="path",
    ensemble="order_token", beside={"stop_when": {"stop_when": ("agreed",)}},
    uses=frozenset({"particles", "selection", "budget", "stop_when", "decided_at"}),
    defaults={"selection": "first"},
)  # fmt: skip
_row(
    "unmaskfork", Method(),
    "N texts from a tree search whose branches are policies and block lengths, all without chance",
    "after UnMaskFork, Misaki and Akiba 2026", ensemble="unmaskfork",
    fixed=SCHEDULED
    | {"policy", "temperature", "position_temperature", "top_k", "top_p", "probabilities"},
    uses=frozenset({"particles", "verifier", "selection", "budget", "stop_when"}),
    defaults={"particles": 8, "temperature": 0.0, "selection": "verified"},
)  # fmt: skip
_row(
    "vgb", Method(),
    "N walks that reveal a token or mask one again, by the scores of the partial texts, and keep "
    "their direction unless the other one promises more",
    "as in MDM-VGB with momentum, 2026", ensemble="vgb",
    fixed=SCHEDULED | {"steps", "block_length", "policy", "position_temperature"},
    uses=frozenset({"particles", "verifier", "selection", "budget", "stop_when", "decided_at"}),
    defaults={"particles": 1, "verifier": "plus", "selection": "verified"},
)  # fmt: skip


def all_methods() -> dict[str, Method]:
    """The built-in methods, those registered, and those that installed packages offer."""
    for name, entry in find_entry_points(GROUP).items():
        if name not in METHODS:
            register_method(name, load_entry_point(entry, Method))
    return METHODS


def find_method(method: str | Method) -> Method:
    """A method by name, or itself."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise SettingsError(
            f"method={method!r} is not allowed; give a name such as 's3', or a s3dlm.Method"
        )
    if method not in METHODS and method not in all_methods():
        raise SettingsError(unknown_name("method", method, METHODS))
    return METHODS[method]
