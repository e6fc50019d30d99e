"""Which stretches of a text look wrong: where a search that re-masks begins.

A doubt changes no score, but a text that is doubted does not end a search. One that is false costs
forward passes; one that is missing leaves the search blind, so `plus` names all it can: equalities
that do not hold, words in the place of numbers, numbers from nowhere where all work is shown, and for
Countdown and Sudoku what breaks the puzzle's rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from s3dlm.answers import delimiters, grids
from s3dlm.answers.extract import extract
from s3dlm.verifier.constraints import plus_countdown
from s3dlm.verifier.equations import equations_in, tokens_of, wrong_equalities
from s3dlm.verifier.reading import Reading, garbled_spans, question_numbers

Span = tuple[int, int]
Finder = Callable[[str, str], Sequence[Span]]
"""(prompt, text) -> what is in doubt, in any order."""


class Doubts(Sequence[Span]):
    """The doubts of one finder, in order; found when first looked at: few users of a score need them."""

    def __init__(self, finder: Finder, prompt: str, text: str) -> None:
        self.finder, self.prompt, self.text = finder, prompt, text

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The spans themselves."""
        return tuple(sorted(set(self.finder(self.prompt, self.text))))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, index: Any) -> Any:
        return self.spans[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.spans == tuple(other)

    def __repr__(self) -> str:
        return repr(self.spans)


def equalities(prompt: str, text: str) -> list[Span]:
    """The equalities that do not hold."""
    return wrong_equalities(text)


def reasoning(prompt: str, text: str) -> list[Span]:
    """Equalities that do not hold, and words where a number should be."""
    return [*equalities(prompt, text), *garbled_spans(prompt, text)]


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


def countdown(prompt: str, text: str) -> list[Span]:
    """A false or garbled step; without one, all of a text whose expression misses the puzzle."""
    found = reasoning(prompt, text)
    if found or plus_countdown(Reading(prompt, text)) >= 1:
        return found
    return [(0, len(text))] if text else []


def sudoku(prompt: str, text: str) -> list[Span]:
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


PLUS_DOUBTS: dict[str, Finder] = {
    "arithmetic": worked_steps,
    "chain": worked_steps,
    "countdown": countdown,
    "sudoku": sudoku,
    "sudoku9": sudoku,
}
