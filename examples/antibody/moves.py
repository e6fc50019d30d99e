"""A method of these examples: one text, of which little is re-masked at a time.

A move that lowers the score is taken back (Metropolis' rule of `mend`). What is re-masked is one of the
registered rules, where `mend` itself goes by how doubtful each position is.
"""

from __future__ import annotations

from typing import Annotated

from s3dlm.extras.grids.mend import Mend
from s3dlm.search.options import OneOf, setting
from s3dlm.search.remask import REMASKINGS, Remasking


class Moves(Mend):
    name = "moves"
    summary = "one text; re-masks little of it at a time, and takes back what lowers the score"

    remask: Annotated[str, OneOf("remask", REMASKINGS)] = setting("doubted", "what is re-masked")  # type: ignore[assignment]
    lam: float = setting(1000.0, "λ of Metropolis' rule", ge=0)
    patience: int = setting(0, "rounds without a better score until it starts over", ge=0)
    look_aheads: int = setting(1, "texts read per forward pass", ge=1)

    @property
    def rule(self) -> Remasking:
        return REMASKINGS.find(self.remask)
