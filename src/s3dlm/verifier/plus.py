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
from dataclasses import replace
from functools import partial

from s3dlm.answers import delimiters, grids
from s3dlm.answers.extract import extract
from s3dlm.verifier import components
from s3dlm.verifier.base import PARTS
from s3dlm.verifier.composite import Composite, Part, Span, SpanFinder, from_row
from s3dlm.verifier.constraints import PLUS_CONSTRAINTS, plus_countdown
from s3dlm.verifier.equations import equations_in, tokens_of, wrong_equalities
from s3dlm.verifier.parsed import ParsedText, garbled_spans, question_numbers, same
from s3dlm.verifier.weights import PLUS, PLUS_RULES

CONFIDENCE = 0.10
NOT_DEGENERATE = 0.05

# What a diffusion model leaves behind when it fills a place twice, or not at all.
_GARBLED = re.compile(r"[a-z][A-Z]|[,.;:][,;:]|\s[,;]|\b([A-Za-z]{2,20}) \1\b")


def equations_true(parsed: ParsedText) -> float:
    """The share of equations that hold; 0.5 without any."""
    derivation = parsed.derivation
    return 1 - derivation.wrong / derivation.claims if derivation.claims else 0.5


def no_wrong_equation(parsed: ParsedText) -> float:
    """1 without a wrong equation, 1/2 with one, 1/3 with two, …"""
    return 1 / (1 + parsed.derivation.wrong)


def enough_steps(parsed: ParsedText) -> float:
    """True equations against the operations that the question's numbers call for."""
    derivation = parsed.derivation
    true = derivation.claims - derivation.wrong
    return min(true / max(len(derivation.question) - 1, 1), 1.0)


def answer_is_last_result(parsed: ParsedText) -> float:
    """The answer is what the last equation comes to, and that equation holds."""
    derivation = parsed.derivation
    if derivation.answer is None or not derivation.equations:
        return 0.0
    last = derivation.equations[-1]
    return float(last.holds and same(last.right.value, derivation.answer))


def answer_computed(parsed: ParsedText) -> float:
    """The answer is the result of an equation, or one operation away from results."""
    return float(parsed.derivation.source is not None)


def answer_just_named(parsed: ParsedText) -> float:
    """The answer is among the last three numbers before its delimiter, or computed."""
    derivation = parsed.derivation
    if derivation.answer is None:
        return 0.0
    named = any(same(number, derivation.answer) for number in derivation.numbers[-3:])
    return 1.0 if named else answer_computed(parsed)


def answer_named(parsed: ParsedText) -> float:
    """The paper's reachability, as yes or no."""
    return float(components.reachability(parsed) == 1.0)


def answer_traced(parsed: ParsedText) -> float:
    """The share of the question's numbers that the answer can be traced back to."""
    derivation = parsed.derivation
    if derivation.source is None or not derivation.question:
        return 0.0
    return len(derivation.source.numbers) / len(derivation.question)


def answer_boxed(parsed: ParsedText) -> float:
    """A closed box with something in it, as the prompts ask for."""
    return float(parsed.answer is not None and parsed.answer.delimiter == "boxed")


def one_answer(parsed: ParsedText) -> float:
    """One box: a second one is a second thought, or a text that did not know how to end."""
    return float(parsed.text.count("boxed{") == 1)


def braces_closed(parsed: ParsedText) -> float:
    """As many braces closed as opened."""
    return float(parsed.text.count("{") == parsed.text.count("}"))


def keywords(parsed: ParsedText) -> float:
    """The reasoning words of the paper's S1."""
    return components.keyword_share(parsed.lower, components.KEYWORDS)


def answer_fits(parsed: ParsedText) -> float:
    """A number; better one that is not negative; best one that is whole."""
    answer = parsed.derivation.answer
    if answer is None or answer < 0:
        return 0.0
    return 1.0 if answer == int(answer) else 0.5


def question_numbers_used(parsed: ParsedText) -> float:
    """The share of the question's numbers that the reasoning names."""
    derivation = parsed.derivation
    if not derivation.question:
        return 1.0
    named = set(derivation.numbers)
    return sum(number in named for number in derivation.question) / len(derivation.question)


def answer_not_copied(parsed: ParsedText) -> float:
    """The answer is not just a number of the question."""
    answer = parsed.derivation.answer
    if answer is None:
        return 1.0
    return float(not any(same(number, answer) for number in parsed.derivation.question))


def fluent(parsed: ParsedText) -> float:
    """1 without doubled words or glued-together pieces, 1/2 with one, 1/3 with two, …"""
    return 1 / (1 + len(_GARBLED.findall(parsed.text)))


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


def plus(task: str) -> Composite:
    """The `plus` verifier of a task: fitted for maths, sharper rules for the others."""
    made = fitted(PLUS[task]) if task in PLUS else from_row(PLUS_RULES[task], PLUS_CONSTRAINTS)
    return replace(made, suspicious_spans=SUSPICIOUS_SPANS.get(task, reasoning))


def fitted(weights: Mapping[str, float]) -> Composite:
    """The composite of fitted feature weights, scaled to what the fixed shares leave."""
    scale = (1 - CONFIDENCE - NOT_DEGENERATE) / sum(weights.values())
    groups: dict[str, list[tuple[Part, float]]] = {part: [] for part in PARTS}
    groups["confidence"].append((components.confidence, CONFIDENCE))
    groups["non_degeneracy"].append((components.non_degeneracy, NOT_DEGENERATE))
    for part, features in FEATURES.items():
        groups[part] += [
            (feature, weights[feature.__name__] * scale)
            for feature in features
            if feature.__name__ in weights
        ]
    return Composite(tuple(_mean(name, group) for name, group in groups.items()))


def _mean(name: str, group: list[tuple[Part, float]]) -> tuple[str, Part, float]:
    total = sum(weight for _, weight in group)
    shares = [(feature, weight / total) for feature, weight in group]
    return name, partial(_weighted_mean, shares), total


def _weighted_mean(shares: list[tuple[Part, float]], parsed: ParsedText) -> float:
    return sum(share * feature(parsed) for feature, share in shares)


# Which stretches of a text look wrong: where a search that re-masks begins. They change no score, but a
# text with such a stretch does not end a search. One that is named wrongly costs forward passes; one
# that is missing leaves the search blind, so all are named.


def reasoning(prompt: str, text: str) -> list[Span]:
    """Equalities that do not hold, and words where a number should be."""
    return [*wrong_equalities(text), *garbled_spans(prompt, text)]


def worked_steps(prompt: str, text: str) -> list[Span]:
    """The same, and operands that are no number of the question and no earlier result.

    Only for tasks that show all their work: of LLaDA-8B's GSM8K outputs half use a number from
    nowhere, right and wrong ones alike.
    """
    known = set(question_numbers(prompt))
    found = reasoning(prompt, text)
    for step in equations_in(text):
        operands = tokens_of(text, step.left.start, step.left.end)
        found += [
            (token.start, token.end)
            for token in operands
            if token.kind == "number" and token.value not in known
        ]
        known.add(step.right.value)
    return found


def countdown_spans(prompt: str, text: str) -> list[Span]:
    """A false or garbled step; without one, all of a text whose expression misses the puzzle."""
    found = reasoning(prompt, text)
    if found or plus_countdown(ParsedText(prompt, text)) >= 1:
        return found
    return [(0, len(text))] if text else []


def sudoku_spans(prompt: str, text: str) -> list[Span]:
    """Cells that break a rule or a clue; all of a grid that has the wrong size."""
    cells, puzzle = extract("grid", text), grids.puzzle_in(prompt)
    place = _places(text, cells) if cells else []
    if cells is None or not place:
        return []
    if len(cells) not in grids.ORDERS or (puzzle is not None and len(puzzle) != len(cells)):
        return [(place[0], place[-1] + 1)]
    return [(place[cell], place[cell] + 1) for cell in grids.broken(cells, puzzle)]


def _places(text: str, cells: str) -> list[int]:
    """Where each cell of the grid stands in the answer; anything but digits may stand between them."""
    start = max(text.rfind("<answer>"), 0)
    found = delimiters.find_tagged(text) or delimiters.find_boxed(text)
    start = text.find(found.content, found.start) if found else start
    digits = [at for at in range(start, len(text)) if text[at] in "0123456789."]
    written = "".join(text[at] for at in digits).replace(".", "0")
    at = written.find(cells)
    return digits[at : at + len(cells)] if at >= 0 else []


SUSPICIOUS_SPANS: dict[str, SpanFinder] = {
    "arithmetic": worked_steps,
    "chain": worked_steps,
    "countdown": countdown_spans,
    "sudoku": sudoku_spans,
    "sudoku9": sudoku_spans,
}
