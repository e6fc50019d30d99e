"""The `plus` verifier: sharper views of the same six kinds, weighted by what they proved worth.

For maths a part is a weighted mean of a few features, each in [0, 1] and each such that more of it can
only be better. Their weights come from `tools/fit_verifier.py`: a pairwise logistic fit on real outputs,
never negative. No feature looks at the question alone: that would raise the AUC and could order no two
answers to one question. Confidence and the paper's non-degeneracy keep a fixed share, since those
outputs carry no probabilities and none is degenerate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from s3dlm.verifier import components
from s3dlm.verifier.base import PARTS
from s3dlm.verifier.composite import Composite, Part, from_row
from s3dlm.verifier.constraints import PLUS_CONSTRAINTS
from s3dlm.verifier.doubts import PLUS_DOUBTS, reasoning
from s3dlm.verifier.reading import Reading, same
from s3dlm.verifier.weights import PLUS, PLUS_RULES

CONFIDENCE = 0.10
NOT_DEGENERATE = 0.05

# What a diffusion model leaves behind when it fills a place twice, or not at all.
_GARBLED = re.compile(r"[a-z][A-Z]|[,.;:][,;:]|\s[,;]|\b([A-Za-z]{2,20}) \1\b")


def equations_true(reading: Reading) -> float:
    """The share of equations that hold; 0.5 without any."""
    known = reading.evidence
    return 1 - known.wrong / known.claims if known.claims else 0.5


def no_wrong_equation(reading: Reading) -> float:
    """1 without a wrong equation, 1/2 with one, 1/3 with two, …"""
    return 1 / (1 + reading.evidence.wrong)


def enough_steps(reading: Reading) -> float:
    """True equations against the operations that the question's numbers call for."""
    known = reading.evidence
    true = known.claims - known.wrong
    return min(true / max(len(known.question) - 1, 1), 1.0)


def answer_is_last_result(reading: Reading) -> float:
    """The answer is what the last equation comes to, and that equation holds."""
    known = reading.evidence
    if known.answer is None or not known.equations:
        return 0.0
    last = known.equations[-1]
    return float(last.holds and same(last.right.value, known.answer))


def answer_computed(reading: Reading) -> float:
    """The answer is the result of an equation, or one operation away from results."""
    return float(reading.evidence.source is not None)


def answer_just_named(reading: Reading) -> float:
    """The answer is among the last three numbers before its delimiter, or computed."""
    known = reading.evidence
    if known.answer is None:
        return 0.0
    named = any(same(number, known.answer) for number in known.numbers[-3:])
    return 1.0 if named else answer_computed(reading)


def answer_named(reading: Reading) -> float:
    """The paper's reachability, as yes or no."""
    return float(components.reachability(reading) == 1.0)


def answer_traced(reading: Reading) -> float:
    """The share of the question's numbers that the answer can be traced back to."""
    known = reading.evidence
    if known.source is None or not known.question:
        return 0.0
    return len(known.source.numbers) / len(known.question)


def answer_boxed(reading: Reading) -> float:
    """A closed box with something in it, as the prompts ask for."""
    return float(reading.answer is not None and reading.answer.delimiter == "boxed")


def one_answer(reading: Reading) -> float:
    """One box: a second one is a second thought, or a text that did not know how to end."""
    return float(reading.text.count("boxed{") == 1)


def braces_closed(reading: Reading) -> float:
    """As many braces closed as opened."""
    return float(reading.text.count("{") == reading.text.count("}"))


def keywords(reading: Reading) -> float:
    """The reasoning words of the paper's S1."""
    return components.keyword_share(reading.lower, components.KEYWORDS)


def answer_fits(reading: Reading) -> float:
    """A number; better one that is not negative; best one that is whole."""
    answer = reading.evidence.answer
    if answer is None or answer < 0:
        return 0.0
    return 1.0 if answer == int(answer) else 0.5


def question_numbers_used(reading: Reading) -> float:
    """The share of the question's numbers that the reasoning names."""
    known = reading.evidence
    if not known.question:
        return 1.0
    named = set(known.numbers)
    return sum(number in named for number in known.question) / len(known.question)


def answer_not_copied(reading: Reading) -> float:
    """The answer is not just a number of the question."""
    answer = reading.evidence.answer
    if answer is None:
        return 1.0
    return float(not any(same(number, answer) for number in reading.evidence.question))


def fluent(reading: Reading) -> float:
    """1 without doubled words or glued-together pieces, 1/2 with one, 1/3 with two, …"""
    return 1 / (1 + len(_GARBLED.findall(reading.text)))


FEATURES: dict[str, tuple[Part, ...]] = {
    "structure": (answer_boxed, one_answer, braces_closed, keywords),
    "arithmetic": (equations_true, no_wrong_equation, enough_steps),
    "reachability": (
        answer_is_last_result,
        answer_computed,
        answer_just_named,
        answer_named,
        answer_traced,
    ),
    "non_degeneracy": (fluent,),
    "constraint": (answer_fits, question_numbers_used, answer_not_copied),
}


@dataclass(frozen=True, slots=True)
class Mean:
    """A part made of features; their weights add up to 1, or there are none."""

    features: tuple[tuple[Part, float], ...]

    def __call__(self, reading: Reading) -> float:
        """The weighted mean of the features."""
        return sum(weight * feature(reading) for feature, weight in self.features)


def plus_math(fitted: Mapping[str, float]) -> Composite:
    """The composite of fitted feature weights, scaled to what the fixed shares leave."""
    scale = (1 - CONFIDENCE - NOT_DEGENERATE) / sum(fitted.values())
    groups: dict[str, list[tuple[Part, float]]] = {part: [] for part in PARTS}
    groups["confidence"].append((components.confidence, CONFIDENCE))
    groups["non_degeneracy"].append((components.non_degeneracy, NOT_DEGENERATE))
    for part, features in FEATURES.items():
        groups[part] += [(f, fitted[f.__name__] * scale) for f in features if f.__name__ in fitted]
    return Composite(tuple(_part(name, group) for name, group in groups.items()))


def _part(name: str, group: list[tuple[Part, float]]) -> tuple[str, Part, float]:
    weight = sum(weight for _, weight in group)
    return name, Mean(tuple((feature, share / weight) for feature, share in group)), weight


def plus(task: str) -> Composite:
    """The `plus` verifier of a task: fitted for maths, sharper rules for the others."""
    made = plus_math(PLUS[task]) if task in PLUS else from_row(PLUS_RULES[task], PLUS_CONSTRAINTS)
    return replace(made, doubts=PLUS_DOUBTS.get(task, reasoning))
