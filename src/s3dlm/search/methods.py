"""The methods, side by side: a method is one frozen value, and the loop reads nothing else.

A row fills the blanks of the loop and carries its own settings; overriding a setting replaces it in
the row. A setting that a method would ignore is refused, with the reason, when the row is changed.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from s3dlm.declare import Declaration, declared, setting
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.inputs import find_entry_points, load_entry_point
from s3dlm.search.expand import CHILD_SAMPLINGS
from s3dlm.search.moves import BY_DOUBT, HIDINGS, KEEP_RULES, SCORED_KEEPS
from s3dlm.search.resample import RESAMPLERS
from s3dlm.search.select import SELECTIONS
from s3dlm.search.weigh import WEIGHTS

UNVERIFIED = "it never calls the verifier"
KEEPS = "it keeps all trajectories to the end"
Population = Literal["one", "particles", "product"]
Scored = Literal["never", "at the end", "every step"]
Ensemble = Literal["none", "block_lengths", "sweeps"]
SCORED = get_args(Scored)  # from none to all
GROUP = "s3dlm.methods"  # the entry-point group through which other packages add methods


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How one method fills the blanks of the loop, and the settings it runs with."""

    name: str = "custom"
    summary: str = ""
    source: str = ""  # the paper it comes from
    population: Population = "particles"  # 1, N or N·b particles
    branches: bool = False  # b children per particle, or one
    scored: Scored = "every step"
    weight: str = "none"  # a name in weigh.py
    ensemble: Ensemble = "none"  # of searches; see ensemble.py
    pruned: bool = False  # the population is halved again and again in the first half of the run

    particles: int = setting(
        4, "partly denoised answers kept after every step (N)", low=1, high=65536
    )
    branching: int = setting(2, "children per particle and step (b)", low=1, high=1024)
    lam: float = setting(1.0, "how strongly scores tilt the weights: λ in exp(λ·score)", low=0)
    verifier: str = setting(
        "paper", "the verifier: paper, plus, a TOML file of weights, or an installed verifier"
    )
    resampling: str | None = setting(
        None, "how survivors are drawn from the weights", choices=lambda: RESAMPLERS
    )
    ess_threshold: float | None = setting(
        None, "resample only when the effective sample size falls below this share", low=0, high=1
    )
    cadence: str = setting(
        "step",
        "branch, score and resample at every step or only at the end of a block",
        choices=lambda: ("step", "block"),
    )
    child_sampling: str = setting(
        "independent", "whether the children of a step must differ", choices=lambda: CHILD_SAMPLINGS
    )
    look_aheads: int = setting(
        1,
        "texts looked at per child: the likeliest, and others drawn from the same forward pass; the "
        "best counts",
        low=1,
        high=1000,
    )
    selection: str = setting(
        "majority", "how the answer is chosen among the survivors", choices=lambda: SELECTIONS
    )
    budget: int | None = setting(
        None,
        "the most forward passes: a greedy answer first where there is a verifier, then rounds of "
        "search until the verifier is satisfied or the budget is spent",
        low=2,
        high=10**9,
    )
    stop_when: str = setting(
        "satisfied",
        "with a budget: stop once the verifier is satisfied, if it says when it is, or never before",
        choices=lambda: ("satisfied", "never"),
    )
    rounds: int = setting(
        0, "searches after the first, each begun as `remask` says", low=0, high=1000
    )
    remask: str = setting(
        "all",
        "what a later round hides of a finished text and denoises again: all of it, the rest from "
        "where the verifier doubts it (or from an earlier place), some of what it doubts, the "
        "least sure tokens, or random ones",
        choices=lambda: HIDINGS,
    )
    remask_fraction: float = setting(
        0.5,
        "the share of a text that unsure and random hide, on average; doubted hides at most twice "
        "that",
        low=0,
        high=1,
    )
    restart_fraction: float = setting(
        0.0,
        "the share of a later round's particles that begin on an empty canvas all the same, on average",
        low=0,
        high=1,
    )
    accept: str = setting(
        "replace",
        "which texts the next round begins with: those that moved, by Metropolis' rule, or drawn "
        "from all by score",
        choices=lambda: KEEP_RULES,
    )

    def __post_init__(self) -> None:
        for name, one in method_settings().items():
            object.__setattr__(self, name, one.check(getattr(self, name)))
        for name, allowed in (
            ("weight", WEIGHTS),
            ("population", get_args(Population)),
            ("scored", SCORED),
            ("ensemble", get_args(Ensemble)),
        ):
            if getattr(self, name) not in allowed:
                raise SettingsError(unknown_name(name, getattr(self, name), allowed))
        needed = WEIGHTS[self.weight].scored
        if SCORED.index(self.scored) < SCORED.index(needed):
            raise SettingsError(
                f"weight={self.weight!r} needs scores, and method={self.name!r} has "
                f"scored={self.scored!r}; give scored={needed!r}, or weight='none', 'confidence' or 'path'"
            )
        if self.child_sampling == "filled" and self.ess_threshold is not None:
            raise SettingsError(
                f"child_sampling='filled' and ess_threshold={self.ess_threshold:g} exclude each "
                "other: below the threshold every particle continues as one of its own children, "
                "and 'filled' may leave it none; choose child_sampling='distinct' or no threshold"
            )
        if self.branches and self.resampling is None:
            raise SettingsError(
                f"resampling=None is not allowed in method={self.name!r}: it branches at every step "
                f"and must choose survivors; choose one of: {', '.join(RESAMPLERS)}"
            )
        if SELECTIONS[self.selection].needs_scores and self.scored == "never":
            raise SettingsError(
                f"selection={self.selection!r} needs scores, and method={self.name!r} never calls "
                "the verifier; choose another selection, or verified_best_of_k or s3 as method"
            )

    @property
    def size(self) -> int:
        """Particles at the start of a search."""
        sizes = {
            "one": 1,
            "particles": self.particles,
            "product": self.particles * self.branching,
        }
        return sizes[self.population]

    @property
    def children(self) -> int:
        """Children of each particle in a step that branches."""
        return self.branching if self.branches else 1

    @property
    def sweeps(self) -> int:
        """How often the whole search is run."""
        return self.branching if self.ensemble == "sweeps" else 1

    def survivors(self, step: int, steps: int) -> int:
        """Particles kept after a step, counted from 0."""
        if not self.pruned:
            return self.size
        halvings = max(0, self.size.bit_length() - 2)  # at least two are left to vote
        return self.size >> min(halvings, halvings * 2 * (step + 1) // steps)

    def configure(self, **changes: Any) -> Method:
        """The method with some settings changed; a setting that it ignores is refused."""
        for name in changes:
            if name not in method_settings():
                raise SettingsError(unknown_name("setting", name, method_settings()))
        changed = dataclasses.replace(self, **changes)
        reasons = changed.unused()
        if self.resampling is None:
            reasons["resampling"] = KEEPS
        elif changed.resampling is None:
            raise SettingsError(
                f"resampling=None is not allowed in method={self.name!r}, which resamples; choose one "
                f"of: {', '.join(RESAMPLERS)}, or method='tilting', which keeps all to the end"
            )
        for name, value in changes.items():
            if name in reasons:
                raise SettingsError(
                    f"{name}={value!r} changes nothing in method={self.name!r}: {reasons[name]}; "
                    "leave it out"
                )
        return changed

    def settings(self) -> dict[str, Any]:
        """The settings that change what it does, with their values."""
        unused = self.unused()
        return {name: getattr(self, name) for name in method_settings() if name not in unused}

    def unused(self) -> dict[str, str]:
        """The settings that change nothing here, each with the reason."""
        one = "it decodes one answer" if self.population == "one" else ""
        keeps = "" if self.resampling else KEEPS
        reasons = {
            "particles": one,
            "branching": "" if self._uses_branching() else "every particle has one child",
            "lam": self._ignores_lam(),
            "verifier": "" if self._asks_verifier() else UNVERIFIED,
            "resampling": keeps,
            "ess_threshold": keeps or ("its population shrinks on schedule" if self.pruned else ""),
            "cadence": keeps if self.scored != "every step" else "",
            "look_aheads": self._ignores_look_aheads(),
            "child_sampling": one or self._ignores_child_sampling(),
            "selection": self._ignores_selection(),
            **self._ignores_in_rounds(),
        }
        return {name: reason for name, reason in reasons.items() if reason}

    def _asks_verifier(self) -> bool:
        moves = self.has_rounds and self.remask != "all"
        by_score = moves and (self.remask in BY_DOUBT or self.accept in SCORED_KEEPS)
        return self.scored != "never" or by_score

    @property
    def has_rounds(self) -> bool:
        """Whether it goes on after its first search; one answer decoded again would be the same."""
        if self.remask == "all" and self.population == "one":
            return False
        return self.budget is not None or self.rounds > 0

    def _ignores_in_rounds(self) -> dict[str, str]:
        """Why settings of the rounds change nothing; empty where they do."""
        more = self.budget is not None or self.rounds > 0
        none = "" if more else "it has one round; give a budget, or rounds above 0"
        fresh = "every round begins on empty canvases" if self.remask == "all" else ""
        again = "one answer that is decoded again in full is the same"
        return {
            "stop_when": self._ignores_stop(),
            "rounds": again if fresh and self.population == "one" else "",
            "remask": none,
            "remask_fraction": none or fresh or self._ignores_hidden(),
            "restart_fraction": none or fresh,
            "accept": none or fresh,
        }

    def _ignores_hidden(self) -> str:
        whole = self.budget is None and self.remask in ("rest", "earlier")
        return f"remask={self.remask!r} hides all from a place on" if whole else ""

    def _ignores_stop(self) -> str:
        if self.budget is None:
            return "without a budget it runs to its end"
        return "" if self._asks_verifier() else UNVERIFIED

    def _uses_branching(self) -> bool:
        return self.branches or self.population == "product" or self.ensemble == "sweeps"

    def _ignores_look_aheads(self) -> str:
        return {
            "never": UNVERIFIED,
            "at the end": "it scores complete texts only",
            "every step": "",
        }[self.scored]

    def _ignores_child_sampling(self) -> str:
        if self.child_sampling == "filled" and self.children == 1:
            return "only a method that branches can fill a step"
        return ""

    def _ignores_selection(self) -> str:
        selection = SELECTIONS[self.selection]
        if self.population == "one" and not selection.from_steps:
            return "it decodes one answer"
        carried = self.resampling is None or self.ess_threshold is not None
        if selection.needs_weights and not (carried and self.weight != "none"):
            return "its survivors carry equal weights"
        moves = self.has_rounds and self.remask != "all"
        if selection.from_all_seen and self.scored != "every step" and not moves:
            return "it scores no other texts than the survivors; 'verified' does the same"
        return ""

    def _ignores_lam(self) -> str:
        if self.has_rounds and self.remask != "all" and self.accept in SCORED_KEEPS:
            return ""
        if not WEIGHTS[self.weight].uses_lam:
            return UNVERIFIED if self.scored == "never" else "its weights do not use λ"
        return ""

    def nfe_formula(self) -> str:
        """A formula for the most forward passes in T steps; equal and finished answers are saved."""
        formula = {
            "none": "1 + T" if self.size * self.children == 1 else "1 + T·N·b",
            "sweeps": "b·(1 + T·N)",
            "block_lengths": "5 + T·N·b",
        }[self.ensemble]
        if self.budget is not None:
            return str(self.budget)
        return f"{self.rounds + 1}·({formula})" if self.rounds else formula


@cache
def method_settings() -> dict[str, Declaration]:
    """The settings that belong to a method, by name."""
    return declared(Method, "method")


_FK = Method(
    source="FK steering, Singhal et al. 2025",
    population="product",
    resampling="multinomial",
    ess_threshold=0.5,
    selection="verified",
)

METHODS: dict[str, Method] = {}


def register_method(name: str, method: Method) -> Method:
    """Make a method known by name, to Python, the command line, the server and evaluation alike."""
    if not isinstance(method, Method):
        raise SettingsError(
            f"register_method({name!r}, …) got a {type(method).__name__}; give a s3dlm.Method"
        )
    if not isinstance(name, str) or not name.isidentifier():
        raise SettingsError(f"method name {name!r} is not allowed; use letters, digits and _")
    METHODS[name] = dataclasses.replace(method, name=name)
    return METHODS[name]


for _name, _method in {
    "baseline": Method(
        summary="one trajectory, as the model's authors decode",
        population="one",
        scored="never",
        selection="first",
    ),
    "best_of_k": Method(
        summary="K = N·b independent trajectories, majority vote",
        population="product",
        scored="never",
    ),
    "tilting": Method(
        summary="K = N·b independent trajectories, a vote weighted by exp(λ·score)",
        source="S³, ablation",
        population="product",
        scored="at the end",
        weight="tilt",
        selection="weighted",
    ),
    "look_ahead": Method(
        summary="search with look-ahead scores; the N best are kept at every step",
        source="S³, ablation",
        branches=True,
        weight="rank",
        resampling="top",
    ),
    "s3": Method(
        summary="the paper's search: look-ahead scores, exp(λ·score) weights, SSP resampling",
        source="S³, Bilal et al. 2026",
        branches=True,
        weight="tilt",
        resampling="ssp",
    ),
    "twisted": Method(
        summary="s3 whose weights divide by the parent's, so that it samples p·exp(λ·score)",
        source="ours",
        branches=True,
        weight="twist",
        resampling="ssp",
        selection="weighted",
    ),
    "verified_best_of_k": Method(
        summary="K = N·b independent trajectories, the one with the best score",
        population="product",
        scored="at the end",
        selection="verified",
    ),
    "fk_difference": dataclasses.replace(
        _FK, summary="Feynman–Kac steering of K particles by the gain in score", weight="twist"
    ),
    "fk_max": dataclasses.replace(
        _FK,
        summary="Feynman–Kac steering of K particles by the highest score so far",
        weight="fk_max",
    ),
    "fk_sum": dataclasses.replace(
        _FK, summary="Feynman–Kac steering of K particles by the sum of scores", weight="fk_sum"
    ),
    "self_rewarding": Method(
        summary="K particles weighted by the model's own confidence, resampled at block ends",
        source="self-rewarding SMC, 2026",
        population="product",
        scored="never",
        weight="confidence",
        resampling="systematic",
        ess_threshold=0.5,
        cadence="block",
    ),
    "path_likelihood": Method(
        summary="s3 with the path's log-likelihood as value and no verifier: it samples p·exp(λ·log p)",
        source="path log-likelihood, Liu et al. 2026",
        branches=True,
        scored="never",
        weight="path",
        resampling="ssp",
    ),
    "temporal_vote": Method(
        summary="one trajectory, a vote of the look-ahead texts of all its steps, later ones heavier",
        source="temporal self-consistency, Wang et al. 2025",
        population="one",
        scored="never",
        selection="temporal",
    ),
    "particle_gibbs": Method(
        summary="b conditional sweeps of N particles around a kept trajectory",
        source="particle Gibbs, Dang et al. 2025",
        weight="twist",
        resampling="multinomial",
        selection="verified",
        ensemble="sweeps",
    ),
    "hex": Method(
        summary="K trajectories spread over block lengths, majority vote",
        source="HEX, Lee et al. 2025",
        population="product",
        scored="never",
        ensemble="block_lengths",
    ),
    "prism": Method(
        summary="K trajectories, halved by score in the first half of the run",
        source="Prism-style pruning, Bai et al. 2026",
        population="product",
        weight="rank",
        resampling="top",
        pruned=True,
    ),
    # It can branch, tilt and resample as s3 does; that showed no gain
    # (docs/frontier.md), so by default every particle has one child and all weigh the same.
    "best": Method(
        summary="different samples, several look-aheads per forward pass, the plus verifier, a second "
        "round that denoises again what it doubts or begins afresh, and the best text seen",
        source="ours",
        branches=True,
        branching=1,
        weight="tilt",
        lam=0.0,
        resampling="ssp",
        child_sampling="filled",
        look_aheads=16,
        selection="best_seen",
        verifier="plus",
        rounds=1,
        remask="earlier",
        restart_fraction=0.25,
    ),
}.items():
    register_method(_name, _method)


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
