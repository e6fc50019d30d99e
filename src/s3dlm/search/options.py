"""The settings of the search, and what a setting is: a field with a default, a meaning and bounds.

The settings of decoding are in diffusion/decoding.py; settings.py makes both one.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypedDict

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from s3dlm.search.methods import Method

FROZEN = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def setting(default: Any, description: str, *, shown: bool = True, **bounds: Any) -> Any:
    """A setting: `shown` in forms and help, or one that few need, which is documented apart."""
    extra: Any = {"shown": shown}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


more = partial(setting, shown=False)
Size = Annotated[int, Field(ge=1, le=65536)]
Share = Annotated[float, Field(ge=0, le=1)]


class SearchKwargs(TypedDict, total=False):
    """The settings of the search as keywords; a verifier may also be a function, see settings.py."""

    particles: int
    branching: int
    lam: float
    resampling: str | None
    ess_threshold: float | None
    cadence: str
    child_sampling: str
    look_aheads: int
    screen: int
    selection: str
    budget: int | None
    stop_when: str
    decided_at: float
    rounds: int
    remask: str
    remask_fraction: float
    remask_floor: float
    restart_fraction: float
    remask_below: float
    careless: float
    patience: int
    accept: str


class SearchOptions(BaseModel):
    """What a method reads (its row says which), and the numbers that follow."""

    model_config = FROZEN

    method: str = setting("s3", "the search method")
    particles: Size = setting(4, "partly denoised answers kept after every step (N)")
    branching: int = setting(2, "children per particle and step (b)", ge=1, le=1024)
    lam: float = setting(1.0, "how strongly scores tilt the weights: λ in exp(λ·score)", ge=0)
    verifier: Annotated[str, Field(min_length=1)] = setting(
        "paper",
        "paper, plus, self (the model as judge), a TOML file of weights, or an installed verifier",
    )
    resampling: str | None = setting(None, "how survivors are drawn from the weights")
    ess_threshold: Share | None = more(
        None, "resample only when the effective sample size falls below this share"
    )
    cadence: str = more("step", "branch, score and resample at every step or at block ends")
    child_sampling: str = more("independent", "whether the children of a step must differ")
    look_aheads: int = setting(
        1, "texts looked at per child, from one forward pass; the best counts", ge=1, le=1000
    )
    screen: int = more(
        0,
        "children drawn per particle and step, of which as many are forwarded as otherwise, drawn by "
        "exp(λ·score) of their partial texts; 0: all are forwarded unread",
        ge=0,
        le=1000,
    )
    selection: str = setting("majority", "how the answer is chosen among the survivors")
    budget: int | None = setting(
        None,
        "the most forward passes: a greedy answer first where there is a verifier, then "
        "rounds of search until the verifier is satisfied or the budget is spent",
        ge=2,
        le=10**9,
    )
    stop_when: str = more(
        "satisfied",
        "with a budget: stop once the verifier is satisfied, if it says when it is, or never before; "
        "agreed, also without a budget: fresh samples until the vote is decided",
    )
    decided_at: float = more(
        0.95, "how likely the leading answer must be to stay ahead of the second", ge=0.5, le=0.9999
    )
    rounds: int = setting(0, "searches after the first, begun as `remask` says", ge=0, le=1000)
    remask: str = setting(
        "all",
        "what a later round hides of a finished text and denoises again: all of it, the rest "
        "from where the verifier doubts it (or from an earlier place), what was revealed since "
        "(or from sooner on), some of what it doubts, each token as it doubts it (weighted), the "
        "least sure tokens, the latest, or random ones",
    )
    remask_fraction: Share = more(
        0.5, "the mean share of a text that unsure, latest and random hide; doubted: half the most"
    )
    remask_floor: Share = more(0.1, "weighted: the least probability with which a token is hidden")
    restart_fraction: Share = more(
        0.0, "the mean share of a later round's particles that begin on an empty canvas"
    )
    remask_below: Share = more(
        1.0,
        "re-mask only where the first look-ahead is less sure than this, as the mean probability of its "
        "tokens; else later rounds begin on empty canvases",
    )
    careless: float = more(
        0.0,
        "where rounds re-mask: the reveal threshold, as a multiple of how sure the first look-ahead is; "
        "0: reveal_threshold",
        ge=0,
        le=100,
    )
    patience: int = more(
        0,
        "rounds without a better score after which a particle begins on an empty canvas; 0: never",
        ge=0,
        le=1000,
    )
    accept: str = more(
        "replace",
        "which texts the next round begins with: those that moved, by Metropolis' rule, or drawn "
        "from all by score",
    )
    _row: Method = PrivateAttr()

    @property
    def row(self) -> Method:
        """The method's row."""
        return self._row

    @property
    def size(self) -> int:
        """Particles at the start of a search."""
        product = self.particles * self.branching
        return {"one": 1, "particles": self.particles, "product": product}[self._row.population]

    @property
    def children(self) -> int:
        """Children of each particle in a step that branches."""
        return self.branching if self._row.branches else 1

    @property
    def sweeps(self) -> int:
        """How often the whole search is run."""
        return self.branching if self._row.ensemble == "sweeps" else 1

    @property
    def has_rounds(self) -> bool:
        """Whether it goes on after its first search; one answer decoded again would be the same."""
        same = self.remask == "all" and not self._row.needs_chance
        return not same and (self.budget is not None or self.rounds > 0)

    def mistakes_in_stopping(self, votes: bool) -> dict[str, bool]:
        """What `stop_when="agreed"` cannot run with, and whether it is given."""
        agreed, where = self.stop_when == "agreed", f"method={self.method!r}"
        return {
            f"stop_when='agreed' needs a vote, and selection={self.selection!r} is none; choose "
            "'majority', 'weighted' or 'agreement'": agreed and not votes,
            f"stop_when='agreed' needs a budget in {where}, where a whole search has one vote; give "
            "one, or choose a method of independent samples": (
                agreed and self.budget is None and not self._row.independent
            ),
            f"stop_when='agreed' changes nothing in {where}, which always finds the same answers; leave "
            "it out": agreed and votes and not self._row.needs_chance,
            "stop_when='agreed' takes fresh samples; give rounds=0 and remask='all'": (
                agreed and (self.rounds > 0 or self.remask != "all")
            ),
        }

    def mistakes_in_screening(self) -> dict[str, bool]:
        """What is wrong with screening, and whether it is."""
        return {
            f"screen={self.screen} changes nothing with lam=0: all candidates weigh the same; give "
            "lam=10 or another number above 0, or leave screen out": (
                self.screen > 0 and self.lam == 0
            ),
            "screen=1 changes nothing: one candidate leaves no choice; give 2 or more": (
                self.screen == 1
            ),
        }
