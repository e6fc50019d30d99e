"""The `checker` verifier: sharper views of the same six kinds, weighted by what they proved worth.

For maths a part is a weighted mean of a few features, each in [0, 1] and each such that more of it can
only be better. Their weights come from `tools/fit_verifier.py`: a pairwise logistic fit on real outputs,
never negative. No feature looks at the question alone: that would raise the AUC and could order no two
answers to one question. Confidence and the paper's non-degeneracy keep a fixed share, since those
outputs carry no probabilities and none is degenerate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from s3dlm.answers import delimiters, grids
from s3dlm.answers.kinds import extract
from s3dlm.verifier import components, constraints
from s3dlm.verifier import partial as unfinished
from s3dlm.verifier.base import CHECKABLE, PARTS, Span
from s3dlm.verifier.composite import Composite, Part, PartialRule, SpanFinder, from_row
from s3dlm.verifier.equations import equations_in, tokens_of, wrong_equalities
from s3dlm.verifier.parsed import (
    Derivation,
    FreeText,
    ParsedText,
    garbled_spans,
    question_numbers,
)
from s3dlm.verifier.weights import CHECKER

Feature = Callable[[ParsedText, Derivation], float]
FIXED_SHARES = {"confidence": 0.10, "not_degenerate": 0.05}

_ENDS = tuple(".!?}>)]")

# What a diffusion model leaves behind when it fills a place twice, or not at all.
_GARBLED = re.compile(r"[a-z][A-Z]|[,.;:][,;:]|\s[,;]|\b([A-Za-z]{2,20}) \1\b")


def _delimiter(parsed: ParsedText) -> str:
    return parsed.answer.delimiter if parsed.answer else ""


FEATURES: dict[str, dict[str, Feature]] = {
    "structure": {
        # A closed box with something in it, as the prompts ask for.
        "answer_boxed": lambda p, d: p.answer is not None and p.answer.delimiter == "boxed",
        # A second box is a second thought, or a text that did not know how to end.
        "one_answer": lambda p, d: p.text.count("boxed{") == 1,
        # In free text: by any delimiter; half for a box that was left open.
        "answer_given": lambda p, d: {"": 0.0, "open": 0.5}.get(_delimiter(p), 1.0),
        # 1 for one answer, however often it is given, 1/2 for two of them, …
        "answers_agree": lambda p, d: 1 / len(p.answers) if p.answers else 0.5,
        "ended": lambda p, d: p.text[-1:] in _ENDS or _delimiter(p) in ("hashes", "phrase", "tag"),
        "braces_closed": lambda p, d: p.text.count("{") == p.text.count("}"),
        "keywords": lambda p, d: components.keyword_share(p.lower, components.KEYWORDS),
    },
    "arithmetic": {
        "equations_true": lambda p, d: 1 - d.wrong / d.claims if d.claims else 0.5,
        # 1 without a wrong equation, 1/2 with one, 1/3 with two, …
        "no_wrong_equation": lambda p, d: 1 / (1 + d.wrong),
        # True equations against the operations that the question's numbers call for.
        "enough_steps": lambda p, d: min((d.claims - d.wrong) / max(len(d.question) - 1, 1), 1.0),
    },
    "reachability": {
        "results_used": lambda p, d: d.results_used,
        # A number of the question is no sign of a derivation.
        "answer_found": lambda p, d: (
            d.computed or (d.answer_in(d.numbers) and not d.answer_in(d.question))
        ),
        # If it is computed, or one left-out step away and the step needs all of the question's numbers.
        "answer_traced_back": lambda p, d: d.traced if d.computed or d.traced == 1 else 0.0,
        "answer_is_last_result": lambda p, d: d.answer_in(
            step.right.value for step in d.equations[-1:] if step.holds
        ),
        "answer_computed": lambda p, d: d.source is not None,
        # Among the last three numbers before its delimiter, or computed.
        "answer_just_named": lambda p, d: d.source is not None or d.answer_in(d.numbers[-3:]),
        "answer_named": lambda p, d: components.reachability(p) == 1.0,
        # The share of the question's numbers that the answer can be traced back to.
        "answer_traced": lambda p, d: d.traced,
    },
    "confidence": {"confidence": lambda p, d: components.confidence(p)},
    "non_degeneracy": {
        "not_degenerate": lambda p, d: components.non_degeneracy(p),
        # 1 without doubled words or glued-together pieces, 1/2 with one, 1/3 with two, …
        "fluent": lambda p, d: 1 / (1 + len(_GARBLED.findall(p.text))),
    },
    "constraint": {
        # A number that is not negative; better one that is whole.
        "answer_fits": lambda p, d: (
            0.0 if d.answer is None or d.answer < 0 else 1.0 if d.answer == int(d.answer) else 0.5
        ),
        # The share of the question's numbers that the reasoning names.
        "question_numbers_used": lambda p, d: (
            len(set(d.question).intersection(d.numbers)) / len(d.question) if d.question else 1.0
        ),
        "answer_not_copied": lambda p, d: not d.answer_in(d.question),
    },
}


def checker(task: str, *, solver: bool = False) -> Composite:
    """The `checker` verifier of a task: fitted for maths, sharper rules for the others. It reads partial
    texts by what is written in them; with a `solver`, those of grids by one of its steps, too."""
    row = CHECKER[task]
    rules = TASK_RULES[row.rules]
    composite = from_row(row.parts, rules.constraint) if row.parts else fitted(row.features)
    if row.from_models:  # a text without an equation is outside what the weights know
        checkable = partial(_mean, [(lambda p, d: d.claims > 0, 1.0)])
        composite = replace(composite, parts=(*composite.parts, (CHECKABLE, checkable, 0.0)))
    return replace(
        composite,
        satisfied_at=row.satisfied_at,
        suspicious_spans=rules.spans,
        score_partial=(solver and rules.with_solver) or rules.partial,
        reader=FreeText if row.any_format else ParsedText,
    )


def fitted(weights: Mapping[str, float]) -> Composite:
    """The composite of fitted feature weights, scaled to what the fixed shares leave."""
    scale = (1 - FIXED_SHARES["confidence"] - FIXED_SHARES["not_degenerate"]) / sum(
        weights.values()
    )
    weights = {name: weight * scale for name, weight in weights.items()} | FIXED_SHARES
    parts = []
    for part in PARTS:
        group = [(f, weights[name]) for name, f in FEATURES[part].items() if name in weights]
        total = sum(weight for _, weight in group)
        shares = [(feature, weight / total) for feature, weight in group]
        parts.append((part, partial(_mean, shares), total))
    return Composite(tuple(parts))


def _mean(shares: list[tuple[Feature, float]], parsed: ParsedText) -> float:
    return sum(share * feature(parsed, parsed.derivation) for feature, share in shares)


# Which stretches of a text look wrong: where a search that re-masks begins. They change no score, but a
# text with such a stretch does not end a search. One that is named wrongly costs forward passes; one
# that is missing leaves the search blind, so all are named.


# How doubtful they are. What is above a half is where `from_doubt` and the like begin.
DOUBLED, BESIDE_DOUBLED = 0.9, 0.5  # cells that break a rule, and the others of their units
FROM_NOWHERE, DERIVED = 0.6, 0.3  # operands from nowhere, and steps that use a wrong result
SOMEWHERE = 0.6  # all of a text that looks right and misses the goal


def reasoning(prompt: str, text: str) -> list[Span]:
    """Equalities that do not hold, and words where a number should be."""
    return [*wrong_equalities(text), *garbled_spans(prompt, text)]


def worked_steps(prompt: str, text: str) -> list[Span]:
    """The same, operands that are no number of the question and no earlier result, and steps that
    use the result of a wrong one.

    Only for tasks that show all their work: of LLaDA-8B's GSM8K outputs half use a number from
    nowhere, right and wrong ones alike.
    """
    known, found = set(question_numbers(prompt)), reasoning(prompt, text)
    wrong = set[float]()
    for step in equations_in(text):
        tokens = tokens_of(text, step.left.start, step.left.end)
        numbers = [token for token in tokens if token.kind == "number"]
        nowhere = [token for token in numbers if token.value not in known]
        found += [(token.start, token.end, FROM_NOWHERE) for token in nowhere]
        if not step.holds:
            wrong.add(step.right.value)
        elif any(token.value in wrong for token in numbers):
            found.append((*step.span, DERIVED))
            wrong.add(step.right.value)
        known.add(step.right.value)
    return found


def countdown_spans(prompt: str, text: str) -> list[Span]:
    """A false or garbled step; without one, all of a text whose expression misses the puzzle."""
    found = reasoning(prompt, text)
    if found or constraints.checker_countdown(ParsedText(prompt, text)) >= 1:
        return found
    return [(0, len(text), SOMEWHERE)] if text else []


def sudoku_spans(prompt: str, text: str) -> list[Span]:
    """Cells that break a rule or a clue, and less so the others that were filled in of a row, column or
    box with such a cell; all of a grid that has the wrong size."""
    cells, puzzle = extract("grid", text), grids.puzzle_in(prompt)
    if not cells:
        return []
    # Where each cell stands in the answer; anything but digits may stand between them.
    found = delimiters.find_tagged(text) or delimiters.find_boxed(text)
    start = text.find(found.content, found.start) if found else max(text.rfind("<answer>"), 0)
    places = [at for at in range(start, len(text)) if text[at] in "0123456789."]
    first = "".join(text[at] for at in places).replace(".", "0").find(cells)
    if first < 0:
        return []
    places = places[first : first + len(cells)]
    if len(cells) not in grids.ORDERS or (puzzle is not None and len(puzzle) != len(cells)):
        return [(places[0], places[-1] + 1)]
    wrong = set(grids.broken(cells, puzzle))
    units = grids.units(grids.ORDERS[len(cells)])
    beside = {cell for unit in units if wrong.intersection(unit) for cell in unit} - wrong
    beside = {cell for cell in beside if puzzle is None or puzzle[cell] == "0"}
    doubted = [(cell, DOUBLED) for cell in wrong] + [(cell, BESIDE_DOUBLED) for cell in beside]
    return [(places[cell], places[cell] + 1, weight) for cell, weight in doubted]


@dataclass(frozen=True, slots=True)
class Rules:
    """How texts for a kind of task are read: whole, where they look wrong, and in part."""

    constraint: Part
    spans: SpanFinder = reasoning
    partial: PartialRule = unfinished.equations_so_far
    with_solver: PartialRule | None = None  # where a solver can say more of a partial text


TASK_RULES = {
    "none": Rules(constraints.nothing),
    "steps": Rules(constraints.nothing, worked_steps, unfinished.steps_so_far),
    "countdown": Rules(constraints.checker_countdown, countdown_spans, unfinished.countdown_so_far),
    "sudoku": Rules(
        constraints.checker_sudoku,
        sudoku_spans,
        unfinished.sudoku_so_far,
        unfinished.sudoku_with_solver,
    ),
    "choice": Rules(constraints.checker_choice, partial=unfinished.choice_so_far),
}
