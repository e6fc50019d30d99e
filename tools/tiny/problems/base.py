"""What a generated problem is, and how problems are kept apart.

The shipped model is trained on generated problems, so the split must be a property of the problem
itself and not of the draw: it is read off a hash of what the problem asks, freed of its wording. No
seed, count, order or other wording can then put a test problem into training.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

SPLITS = ("train", "validation", "test")
# One problem in twenty is a test problem and one in twenty a validation problem.
_PARTS = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, a worked response and the gold answer, all plain text."""

    task: str
    question: str
    response: str
    gold: str
    key: str  # what is asked, freed of wording: names, order of options, names of digits
    group: str = ""  # the kind of problem within its task ("n=8"), by which a report can split

    @property
    def split(self) -> str:
        """Where this problem belongs, for ever."""
        return split_of(f"{self.task}|{self.key}")


def split_of(key: str) -> str:
    """The split of a key: the same on every machine and in every version."""
    part = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % _PARTS
    return {0: "test", 1: "validation"}.get(part, "train")


def equation_key(equations: Iterable[tuple[int, str, int]]) -> str:
    """The key of worked equations: `3 * 4` and `4 * 3` ask the same, as do `3 + 4` and `4 + 3`."""
    ordered = (
        (*sorted((a, b)), sign) if sign in "+*" else (a, b, sign) for a, sign, b in equations
    )
    return "|".join(f"{a}{sign}{b}" for a, b, sign in ordered)
