"""The weighted sum f(x) = Σ αₖ sₖ(x) + α_c s_c(x), Eq. (verifier), built from named parts.

In Python by `compose`, from a TOML file by `from_toml`, for a task by `for_task`. Weights that are
negative or do not add up to 1 are refused: the tilt exp(λ·f) has a meaning only for f in [0, 1].
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from s3dlm.errors import SettingsError, unknown_name
from s3dlm.verifier import components
from s3dlm.verifier.base import PARTS, Score, ScoreFunction, Verifier, adapt, checked
from s3dlm.verifier.constraints import CONSTRAINTS
from s3dlm.verifier.doubts import Doubts, Finder, equalities
from s3dlm.verifier.reading import Reading
from s3dlm.verifier.weights import PAPER, Row

Part = Callable[[Reading], float]

FORMS: dict[str, Part] = {
    "math": components.structure,
    "choice": components.structure_of_choice,
}


@dataclass(frozen=True, slots=True)
class Composite(Verifier):
    """Parts and their weights; every part is reported, also those of weight 0."""

    parts: tuple[tuple[str, Part, float], ...]
    satisfied_at: float | None = None  # the total with which a search may stop
    doubts: Finder = equalities  # says where a text looks wrong
    rescores: bool = True  # of bundled parts only that of confidence looks at the confidence

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The weighted sum of the parts, in [0, 1], and what is in doubt."""
        reading = Reading(prompt, text, confidence)
        total, values = 0.0, {}
        for name, part, weight in self.parts:
            values[name] = value = part(reading)
            total += weight * value
        return Score(min(max(total, 0.0), 1.0), values, Doubts(self.doubts, prompt, text))

    def rescore(self, score: Score, confidence: float | None) -> Score:
        """The score of the same text at another confidence, without reading it again."""
        values = {**score.parts, "confidence": components.confidence(Reading("", "", confidence))}
        total = sum(weight * values[name] for name, _, weight in self.parts)
        return Score(min(max(total, 0.0), 1.0), values, score.spans)

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each part."""
        return {name: weight for name, _, weight in self.parts}


def compose(
    weights: Mapping[str, float],
    *,
    form: str = "math",
    constraint: str = "none",
    judges: Mapping[str, ScoreFunction | Verifier] | None = None,
) -> Composite:
    """A verifier from named parts and weights that add up to 1.

    `form` is that of the structure part (math or choice), `constraint` that of the constraint part
    (none, countdown, sudoku or choice), and `judges` gives parts of one's own, each a function
    (prompt, text, confidence) -> value in [0, 1] or another verifier.
    """
    if form not in FORMS:
        raise SettingsError(unknown_name("form", form, FORMS))
    if constraint not in CONSTRAINTS:
        raise SettingsError(unknown_name("constraint", constraint, CONSTRAINTS))
    table = _built_in(FORMS[form], CONSTRAINTS[constraint])
    table |= {name: _own(name, judge) for name, judge in (judges or {}).items()}
    for name in weights:
        if name not in table:
            raise SettingsError(unknown_name("part", name, table))
    _check(weights)
    parts = tuple((name, part, weights.get(name, 0.0)) for name, part in table.items())
    return Composite(parts, rescores=not judges)  # a judge may read the confidence itself


def _built_in(form: Part, constraint: Part) -> dict[str, Part]:
    parts = (
        form,
        components.arithmetic,
        components.reachability,
        components.confidence,
        components.non_degeneracy,
        constraint,
    )
    return dict(zip(PARTS, parts, strict=True))


def _own(name: str, judge: ScoreFunction | Verifier) -> Part:
    """A user's judge as a part; its value is clipped, since a sum of parts must stay in [0, 1]."""
    verifier = adapt(judge)

    def part(reading: Reading) -> float:
        value = verifier.score(reading.prompt, reading.text, reading.confidence).total
        return min(max(checked(value, name), 0.0), 1.0)

    return part


def _check(weights: Mapping[str, float]) -> None:
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not weight >= 0:
            raise SettingsError(f"weight of {name!r} is {weight!r}; give a number of 0 or more")
    total = math.fsum(weights.values())
    if not abs(total - 1) <= 1e-6:
        raise SettingsError(
            f"the weights add up to {total:g}; they must add up to 1: {dict(weights)}"
        )


def from_row(row: Row, constraints: Mapping[str, Part] = CONSTRAINTS) -> Composite:
    """The composite of one row of a table of weights."""
    _check(row.by_part)
    table = _built_in(FORMS[row.form], constraints[row.constraint])
    return Composite(tuple((name, part, row.by_part[name]) for name, part in table.items()))


def from_toml(path: str | Path, task: str | None = None) -> Composite:
    """A composite from a file with a `[weights]` table and, if need be, `form` and `constraint`.

    A key the file leaves out is the task's own when a task is given.
    """
    if task is not None and task not in PAPER:
        raise SettingsError(unknown_name("task", task, PAPER))
    row = PAPER[task] if task is not None else Row((0.0,) * len(PARTS))
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"weights file {str(path)!r} cannot be read: {error.strerror}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"weights file {str(path)!r} is not TOML: {error}") from error
    allowed = {"weights", "form", "constraint"}
    for key in data:
        if key not in allowed:
            raise SettingsError(f"in {str(path)!r}: {unknown_name('key', key, allowed)}")
    weights = data.get("weights", None if task is None else row.by_part)
    if not isinstance(weights, dict):
        raise SettingsError(f"weights file {str(path)!r} has no [weights] table; add one")
    form, constraint = data.get("form", row.form), data.get("constraint", row.constraint)
    return compose(weights, form=str(form), constraint=str(constraint))
