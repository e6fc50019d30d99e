"""From scores to log-potentials (Eq. 8): the factor by which a step multiplies each child's weight.

`tilt` is the paper's exp(λ·s), anew at every step. `twist` divides by the parent's own exp(λ·s), so
that the factors of a lineage telescope and the population targets p·exp(λ·f) (Eq. 3); it is also the
difference potential of Feynman–Kac steering, whose max and sum potentials pay back in the last step
what they overpaid. `confidence` and `path` need no verifier: they are the model's own probability of what
the step revealed, so that over a whole path they add up to its log-likelihood; `path` raises it to the
power λ. `certainty` is how sure the model is of what is still hidden. `rank` only orders. Add a row to
`WEIGHTS` to try another one (examples/own_method.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from s3dlm.errors import SettingsError
from s3dlm.search.particles import Children, Floats, Lineage


@dataclass(frozen=True, slots=True)
class WeightInputs:
    """All that a weighting may look at; arrays are (children,)."""

    score: Floats  # of this step; NaN where the method never scores
    parent_score: Floats
    lineage: Lineage  # with this step's score, before this step's potential is applied
    step_logp: Floats  # log-probability of what this step revealed
    certainty: Floats | None  # minus the mean entropy of what is hidden, if the policy asks for it
    lam: float
    done: float  # how much of the search is, from 0 to 1
    last: bool  # whether this is the last step


@dataclass(frozen=True, slots=True)
class Weighting:
    """A log-potential, and when it needs scores."""

    log_potential: Callable[[WeightInputs], Floats]
    scored: str = "at the end"
    telescopes: bool = False  # whether those of a whole path add up to λ times its last score


def _settle(given: WeightInputs, summary: Floats) -> Floats:
    """λ times a summary of the scores; in the last step the final score, less all that was applied."""
    if given.last:
        return given.lam * given.score - given.lineage.applied
    return given.lam * summary


def _certainty(given: WeightInputs) -> Floats:
    if given.certainty is None:
        raise SettingsError(
            "weight='certainty' needs the entropies of what is hidden; choose reveal='schedule' and one "
            "of the policies pool, margin or entropy"
        )
    return given.lam * given.certainty


WEIGHTS: dict[str, Weighting] = {
    "none": Weighting(lambda x: np.zeros_like(x.step_logp), scored="never"),
    "rank": Weighting(lambda x: x.score),
    "confidence": Weighting(lambda x: x.step_logp, scored="never"),
    "path": Weighting(lambda x: x.lam * x.step_logp, scored="never"),
    "certainty": Weighting(_certainty, scored="never"),
    "tilt": Weighting(lambda x: x.lam * x.score),
    "twist": Weighting(lambda x: x.lam * (x.score - x.parent_score), "every step", telescopes=True),
    "fk_max": Weighting(lambda x: _settle(x, x.lineage.max_score), telescopes=True),
    "fk_sum": Weighting(lambda x: _settle(x, x.lineage.sum_score), telescopes=True),
}


def weigh(
    weight: str,
    lam: float,
    children: Children,
    score: Floats,
    certainty: Floats | None,
    *,
    done: float,
    last: bool,
) -> tuple[Floats, Lineage]:
    """Each child's log-weight after this step, and its lineage."""
    lineage = children.lineage.after(score)
    potential = WEIGHTS[weight].log_potential(
        WeightInputs(
            score, children.parent_score, lineage, children.step_logp, certainty, lam, done, last
        )
    )
    owed = lam * lineage.partial if last else 0.0  # what screening multiplied in
    return children.log_weight + potential - owed, lineage.apply(potential)
