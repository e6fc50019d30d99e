"""The weighted sum f(x) = Σ αₖ sₖ(x) + α_c s_c(x), Eq. (verifier), built from named parts.

By `compose` with weights of one's own, by `for_task` with a task's. Weights that are negative or do not
add up to 1 are refused: the tilt exp(λ·f) has a meaning only for f in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any

from s3dlm.errors import SettingsError, short_repr, unknown_name
from s3dlm.verifier import components
from s3dlm.verifier.base import PARTS, Score, ScoreFunction, Span, Verifier, adapt, checked
from s3dlm.verifier.constraints import CONSTRAINTS
from s3dlm.verifier.equations import wrong_equalities
from s3dlm.verifier.parsed import ParsedText
from s3dlm.verifier.weights import TaskWeights

Part = Callable[[ParsedText], float]
SpanFinder = Callable[[str, str], Sequence[Span]]
"""(prompt, text) -> the suspicious character ranges of the text, in any order."""
PartialRule = Callable[[str, str], Score]
"""(prompt, partial text) -> what is wrong already; see partial.py."""

REMEMBERED, LONGEST_REMEMBERED = 1 << 11, 1 << 14  # texts that a composite has read, and characters
STRUCTURES: dict[str, Part] = {
    "math": components.structure,
    "choice": components.structure_of_choice,
}


class SuspiciousSpans(Sequence[Span]):
    """What looks wrong in a text, in order; found when first looked at: few users of a score need it."""

    def __init__(self, find: SpanFinder, prompt: str, text: str) -> None:
        self.find, self.prompt, self.text = find, prompt, text

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        return tuple(sorted(set(self.find(self.prompt, self.text))))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: Any) -> Any:
        return self.spans[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.spans == tuple(other)

    def __repr__(self) -> str:
        return repr(self.spans)


def false_equalities(prompt: str, text: str) -> list[Span]:
    """The equalities that do not hold; a function with a name, so that a Score can be pickled."""
    return [*wrong_equalities(text)]


@dataclass(frozen=True, slots=True)
class Composite(Verifier):
    """Parts and their weights; every part is reported, also those of weight 0."""

    parts: tuple[tuple[str, Part, float], ...]
    satisfied_at: float | None = None  # the total with which a search may stop
    suspicious_spans: SpanFinder = false_equalities
    score_partial: PartialRule | None = None  # there are no weights
    reader: type[ParsedText] = ParsedText
    _read: Callable[[str, str], tuple[dict[str, float], SuspiciousSpans]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_read", lru_cache(REMEMBERED)(self._without_confidence))

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The weighted sum of the parts, in [0, 1], and what is suspicious. A text that comes again with
        another confidence is not read again."""
        short = len(prompt) + len(text) <= LONGEST_REMEMBERED
        known, spans = (self._read if short else self._without_confidence)(prompt, text)
        parsed = self.reader(prompt, text, confidence)
        values = {n: known[n] if n in known else part(parsed) for n, part, _ in self.parts}
        total = sum(weight * values[name] for name, _, weight in self.parts)
        return Score(min(max(total, 0.0), 1.0), values, spans)

    def _without_confidence(
        self, prompt: str, text: str
    ) -> tuple[dict[str, float], SuspiciousSpans]:
        """The parts that no confidence changes, and what is suspicious."""
        parsed = self.reader(prompt, text)
        known = {
            name: part(parsed)
            for name, part, _ in self.parts
            if name != "confidence" and not isinstance(part, JudgedPart)
        }
        return known, SuspiciousSpans(self.suspicious_spans, prompt, text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Composite, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @property
    def weights(self) -> dict[str, float]:
        return {name: weight for name, _, weight in self.parts}


def compose(
    weights: Mapping[str, float],
    *,
    form: str = "math",
    constraint: str | Part = "none",
    judges: Mapping[str, ScoreFunction | Verifier] | None = None,
) -> Composite:
    """A verifier from named parts and weights that add up to 1.

    Args:
        weights: By part; the bundled ones are those of the paper.
        form: Of the structure part: math or choice.
        constraint: Of the constraint part: none, countdown, sudoku or choice, or a part of one's own.
        judges: Parts of one's own, each a function (prompt, text, confidence) -> value in [0, 1] or
            another verifier.
    """
    if form not in STRUCTURES:
        raise SettingsError(unknown_name("form", form, STRUCTURES))
    if isinstance(constraint, str):
        if constraint not in CONSTRAINTS:
            raise SettingsError(unknown_name("constraint", constraint, CONSTRAINTS))
        constraint = CONSTRAINTS[constraint]
    parts: dict[str, Part] = {name: getattr(components, name) for name in PARTS[:-1]}
    parts |= {"structure": STRUCTURES[form], "constraint": constraint}
    parts |= {name: JudgedPart(name, adapt(judge)) for name, judge in (judges or {}).items()}
    _check(weights, parts)
    return Composite(tuple((name, part, weights.get(name, 0.0)) for name, part in parts.items()))


def from_row(row: TaskWeights, constraint: Part | None = None) -> Composite:
    """The composite of a table's row, by the paper's constraint unless another is given."""
    return compose(row.by_part, form=row.form, constraint=constraint or row.constraint)


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A user's judge as a part, which may read the confidence; its value is clipped, since a sum of parts
    must stay in [0, 1]."""

    name: str
    judge: Verifier

    def __call__(self, parsed: ParsedText) -> float:
        value = self.judge.score(parsed.prompt, parsed.text, parsed.confidence).total
        return min(max(checked(value, self.name), 0.0), 1.0)


def _check(weights: Mapping[str, float], parts: Mapping[str, Part]) -> None:
    for name, weight in weights.items():
        if name not in parts:
            raise SettingsError(unknown_name("part", name, parts))
        number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not number or not 0 <= weight < 1e300:
            raise SettingsError(
                f"weight of {name!r} is {short_repr(weight)}; give a number of 0 or more"
            )
    total = math.fsum(weights.values())
    if not abs(total - 1) <= 1e-6:
        raise SettingsError(
            f"the weights add up to {total:g}; they must add up to 1: {dict(weights)}"
        )
