"""The `plus` profile: sharper views of the same six kinds, weighted by what they proved worth.

A part is a weighted mean of a few features, each in [0, 1] and each such that more of it can only be
better. The weights come from `tools/fit_verifier.py`: a pairwise logistic fit, never negative, on
real outputs, judged by cross-validation over questions. No feature looks at the question alone:
that would lift the AUC and could order no two answers to one question. Confidence and the paper's
non-degeneracy keep a fixed share, since those outputs carry no probabilities and none is degenerate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from s3dlm.answers import grids
from s3dlm.answers.extract import extract, options
from s3dlm.verifier import components
from s3dlm.verifier.base import PARTS, Score, Verifier
from s3dlm.verifier.composite import from_profile
from s3dlm.verifier.constraints import CONSTRAINTS as PAPER_CONSTRAINTS
from s3dlm.verifier.constraints import countdown_expression, countdown_puzzle
from s3dlm.verifier.evidence import Evidence, evidence, same
from s3dlm.verifier.profiles import PLUS, PLUS_RULES
from s3dlm.verifier.reading import Reading

# What a diffusion model leaves behind when it fills a place twice, or not at all.
_GARBLED = re.compile(r"[a-z][A-Z]|[,.;:][,;:]|\s[,;]|\b([A-Za-z]{2,20}) \1\b")


def equations_true(reading: Reading, known: Evidence) -> float:
    """The share of equations that hold; 0.5 without any."""
    count = len(known.equations)
    return 1 - known.wrong / count if count else 0.5


def no_wrong_equation(reading: Reading, known: Evidence) -> float:
    """1 without a wrong equation, 1/2 with one, 1/3 with two, …"""
    return 1 / (1 + known.wrong)


def enough_steps(reading: Reading, known: Evidence) -> float:
    """True equations against the operations that the question's numbers call for."""
    true = len(known.equations) - known.wrong
    return min(true / max(len(known.question) - 1, 1), 1.0)


def answer_is_last_result(reading: Reading, known: Evidence) -> float:
    """The answer is what the last equation comes to, and that equation holds."""
    if known.answer is None or not known.equations:
        return 0.0
    last = known.equations[-1]
    return float(last.holds and same(last.right.value, known.answer))


def answer_computed(reading: Reading, known: Evidence) -> float:
    """The answer is the result of an equation, or one operation away from results."""
    return float(known.source is not None)


def answer_just_named(reading: Reading, known: Evidence) -> float:
    """The answer is among the last three numbers before its delimiter, or computed."""
    if known.answer is None:
        return 0.0
    named = any(same(number, known.answer) for number in known.numbers[-3:])
    return 1.0 if named else answer_computed(reading, known)


def answer_named(reading: Reading, known: Evidence) -> float:
    """The paper's reachability, as yes or no."""
    return float(components.reachability(reading) == 1.0)


def answer_traced(reading: Reading, known: Evidence) -> float:
    """The share of the question's numbers that the answer can be traced back to."""
    if known.source is None or not known.question:
        return 0.0
    return len(known.source.numbers) / len(known.question)


def answer_boxed(reading: Reading, known: Evidence) -> float:
    """A closed box with something in it, as the prompts ask for."""
    return float(reading.answer is not None and reading.answer.delimiter == "boxed")


def one_answer(reading: Reading, known: Evidence) -> float:
    """One box: a second one is a second thought, or a text that did not know how to end."""
    return float(reading.text.count("boxed{") == 1)


def braces_closed(reading: Reading, known: Evidence) -> float:
    """As many braces closed as opened."""
    return float(reading.text.count("{") == reading.text.count("}"))


def keywords(reading: Reading, known: Evidence) -> float:
    """The reasoning words of the paper's S1."""
    return components.keyword_share(reading.lower, components.KEYWORDS)


def answer_fits(reading: Reading, known: Evidence) -> float:
    """A number; better one that is not negative; best one that is whole."""
    if known.answer is None or known.answer < 0:
        return 0.0
    return 1.0 if known.answer == int(known.answer) else 0.5


def question_numbers_used(reading: Reading, known: Evidence) -> float:
    """The share of the question's numbers that the reasoning names."""
    if not known.question:
        return 1.0
    named = set(known.numbers)
    return sum(number in named for number in known.question) / len(known.question)


def answer_not_copied(reading: Reading, known: Evidence) -> float:
    """The answer is not just a number of the question."""
    answer = known.answer
    return float(answer is None or not any(same(number, answer) for number in known.question))


def fluent(reading: Reading, known: Evidence) -> float:
    """1 without doubled words or glued-together pieces, 1/2 with one, 1/3 with two, …"""
    return 1 / (1 + len(_GARBLED.findall(reading.text)))


Feature = Callable[[Reading, Evidence], float]

FEATURES: dict[str, tuple[Feature, ...]] = {
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
class PlusMath:
    """The fitted composite for problems whose answer is a number or a formula."""

    features: tuple[tuple[str, Feature, float], ...]  # part, feature, weight
    weights: Mapping[str, float]  # by part; they add up to 1

    def score(self, prompt: str, text: str, confidence: float | None = None) -> Score:
        """The weighted sum of all features, reported by the six parts they belong to."""
        reading = Reading(prompt, text, confidence)
        known = evidence(reading)
        parts = dict.fromkeys(PARTS, 0.0)
        for part, feature, weight in self.features:
            parts[part] += weight * feature(reading, known)
        parts["confidence"] = self.weights["confidence"] * components.confidence(reading)
        parts["non_degeneracy"] += NOT_DEGENERATE * components.non_degeneracy(reading)
        total = min(max(sum(parts.values()), 0.0), 1.0)
        shares = {p: v / self.weights[p] if self.weights[p] else 0.0 for p, v in parts.items()}
        return Score(total, shares)


CONFIDENCE = 0.10
NOT_DEGENERATE = 0.05


def plus_math(fitted: Mapping[str, float]) -> PlusMath:
    """A composite from fitted feature weights, scaled to what the fixed shares leave."""
    scale = (1 - CONFIDENCE - NOT_DEGENERATE) / sum(fitted.values())
    features = tuple(
        (part, feature, fitted[feature.__name__] * scale)
        for part, group in FEATURES.items()
        for feature in group
        if fitted.get(feature.__name__)
    )
    weights = dict.fromkeys(PARTS, 0.0)
    weights |= {"confidence": CONFIDENCE, "non_degeneracy": NOT_DEGENERATE}
    for part, _, weight in features:
        weights[part] += weight
    return PlusMath(features, weights)


def plus_countdown(reading: Reading) -> float:
    """As the paper's, but the numbers count in full only when each is used exactly once."""
    parsed = countdown_expression(reading)
    value = parsed.value() if parsed else None
    target, pool = countdown_puzzle(reading.prompt)
    if parsed is None or value is None:
        return 0.0
    if target is None or pool is None:
        return 0.7
    used = Counter(parsed.operands)
    numbers = 0.4 if used == pool else 0.25 if used <= pool else 0.1
    distance = abs(value - target)
    return numbers + (0.6 if distance <= 1e-6 else 0.1 + 0.2 / (1 + distance))


def plus_sudoku(reading: Reading) -> float:
    """The paper's share of complete units, and a share for units that at least hold no digit twice."""
    cells, puzzle = extract("grid", reading.text), grids.puzzle_in(reading.prompt)
    if cells is None or (puzzle is None and len(cells) not in grids.ORDERS):
        return 0.0
    if puzzle is not None:
        whole = len(cells) == len(puzzle)
        cells = cells[: len(puzzle)].ljust(len(puzzle), "0")
        clues = grids.clues_kept(cells, puzzle)
    else:
        whole, clues = True, 1.0
    return (
        0.45 * grids.satisfied(cells)
        + 0.25 * grids.free_of_doubles(cells)
        + 0.25 * clues
        + 0.05 * whole
    )


def plus_choice(reading: Reading) -> float:
    """The paper's share, and more for a letter whose option the reasoning speaks of last."""
    paper = PAPER_CONSTRAINTS["choice"](reading)
    letter = extract("choice", reading.text, reading.prompt)
    last = {letter: reading.lower.rfind(text.lower()) for letter, text in options(reading.prompt)}
    spoken = max(last.values(), default=-1)
    if letter not in last or spoken < 0:
        return 0.5 * paper
    named = 1.0 if last[letter] == spoken else 0.4 if last[letter] >= 0 else 0.0
    return 0.5 * paper + 0.5 * named


CONSTRAINTS: dict[str, Callable[[Reading], float]] = {
    **PAPER_CONSTRAINTS,
    "choice": plus_choice,
    "countdown": plus_countdown,
    "sudoku": plus_sudoku,
}


def plus(task: str) -> Verifier:
    """The `plus` verifier of a task: fitted for maths, sharper rules for the others."""
    if task in PLUS:
        return plus_math(PLUS[task])
    return from_profile(PLUS_RULES[task], CONSTRAINTS)
