"""The settings of the search, and what a setting is: a field with a default, a meaning and bounds.

The settings of decoding are in diffusion/decoding.py; settings.py makes both one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypedDict

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import core_schema

from s3dlm.search.expand import CHILD_SAMPLINGS
from s3dlm.search.remask import ACCEPT_RULES, REMASKINGS
from s3dlm.search.resample import RESAMPLERS
from s3dlm.search.select import SELECTIONS

FROZEN = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class OneOf:
    """The type of a setting that is a name in a table, to which names may be added."""

    table: Collection[str]

    def check(self, name: str | None) -> str | None:
        if name is not None and name not in self.table:
            raise ValueError("unknown name")
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {**handler(schema), "enum": list(self.table)}


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
    selection: str
    budget: int | None
    stop_when: str
    rounds: int
    remask: str
    remask_fraction: float
    restart_fraction: float
    accept: str


class SearchOptions(BaseModel):
    """What a method reads; search/methods.py says which reads what."""

    model_config = FROZEN

    particles: Size = setting(4, "partly denoised answers kept after every step (N)")
    branching: int = setting(2, "children per particle and step (b)", ge=1, le=1024)
    lam: float = setting(1.0, "how strongly scores tilt the weights: λ in exp(λ·score)", ge=0)
    verifier: Annotated[str, Field(min_length=1)] = setting(
        "paper", "paper, plus, a TOML file of weights, or an installed verifier"
    )
    resampling: Annotated[str | None, OneOf(RESAMPLERS)] = setting(
        None, "how survivors are drawn from the weights"
    )
    ess_threshold: Share | None = more(
        None, "resample only when the effective sample size falls below this share"
    )
    cadence: Annotated[str, OneOf(("step", "block"))] = more(
        "step", "branch, score and resample at every step or at block ends"
    )
    child_sampling: Annotated[str, OneOf(CHILD_SAMPLINGS)] = more(
        "independent", "whether the children of a step must differ"
    )
    look_aheads: int = setting(
        1, "texts looked at per child, from one forward pass; the best counts", ge=1, le=1000
    )
    selection: Annotated[str, OneOf(SELECTIONS)] = setting(
        "majority", "how the answer is chosen among the survivors"
    )
    budget: int | None = setting(
        None,
        "the most forward passes: a greedy answer first where there is a verifier, then "
        "rounds of search until the verifier is satisfied or the budget is spent",
        ge=2,
        le=10**9,
    )
    stop_when: Annotated[str, OneOf(("satisfied", "never"))] = more(
        "satisfied",
        "with a budget: stop once the verifier is satisfied, if it says when it is, or never before",
    )
    rounds: int = setting(0, "searches after the first, begun as `remask` says", ge=0, le=1000)
    remask: Annotated[str, OneOf(REMASKINGS)] = setting(
        "all",
        "what a later round hides of a finished text and denoises again: all of it, the rest "
        "from where the verifier doubts it (or from an earlier place), some of what it "
        "doubts, the least sure tokens, or random ones",
    )
    remask_fraction: Share = more(
        0.5, "the mean share of a text that unsure and random hide; doubted: half the most"
    )
    restart_fraction: Share = more(
        0.0, "the mean share of a later round's particles that begin on an empty canvas"
    )
    accept: Annotated[str, OneOf(ACCEPT_RULES)] = more(
        "replace",
        "which texts the next round begins with: those that moved, by Metropolis' rule, or drawn "
        "from all by score",
    )
