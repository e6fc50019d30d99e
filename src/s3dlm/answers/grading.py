"""Is an output right? The only file that reads gold answers; the search never imports it.

Three gradings. `fixed` is ours: the answer by the verifier's own cascade (a number may also be the
last one of the text), formulas by math-verify, numbers by value (commas, signs and units handled). `d1` repeats the d1 evaluation, quirks kept; `d1_whole`
is the same but for Sudoku, where a grid is right or wrong as a whole.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from s3dlm.answers import d1, delimiters, expressions, mathverify
from s3dlm.answers.grids import is_solution
from s3dlm.answers.kinds import extract, find_kind, kind_of, normalise
from s3dlm.answers.numbers import to_fraction
from s3dlm.answers.spelling import is_choice_of_values, number_in
from s3dlm.errors import SettingsError, unknown_name
from s3dlm.inputs import Registry

GRADINGS = ("fixed", "d1", "d1_whole")
LABELS = "ABCDEFGH"


def grade(task: str, text: str, gold: object, grading: str = "fixed", question: str = "") -> float:
    """1.0 for a right output, 0.0 for a wrong one; Sudoku under `d1` gets its share of cells."""
    check_grading(grading)
    if gold is None:  # a data set's own gap: nothing can be right
        return 0.0
    kind = kind_of(task)
    grader, runs = grader_of(kind), find_kind(kind).runs
    text = text if runs else text[-delimiters.MAX_TEXT :]
    if grading == "fixed" or grader.d1 is None:
        return float(grader.fixed(text, gold, question))
    share = grader.d1(text, gold, question)
    return float(share == 1.0) if grading == "d1_whole" else float(share)


def check_grading(name: str) -> None:
    if name not in GRADINGS:
        raise SettingsError(unknown_name("grading", name, GRADINGS))


def notes() -> list[str]:
    """What a reader of `fixed` grades should know about this installation."""
    return [] if mathverify.available() else [mathverify.NOT_INSTALLED]


def gold_in_words(gold: object) -> str:
    """A gold answer for readers; Countdown's is a puzzle, which more than one expression solves."""
    match gold:
        case str():
            return gold
        case float() if gold.is_integer():
            return str(int(gold))
        case [[*numbers], int() | float() as target] if numbers and all(
            isinstance(number, int | float) for number in numbers
        ):
            *first, last = map(gold_in_words, numbers)
            listed = f"{', '.join(first)} and {last}" if first else last
            return f"any expression of {listed} that makes {gold_in_words(target)}"
    return json.dumps(gold, ensure_ascii=False)


def gold_number(gold: object) -> Fraction | None:
    """A gold number given as a number, a numeral, or a solution that ends in `#### numeral`."""
    if isinstance(gold, (int, float)):
        return Fraction(gold) if abs(gold) < 1e300 else None
    return number_in(str(gold).rpartition("####")[2])


def _fixed_number(text: str, gold: object, question: str) -> bool:
    answer, wanted = extract("number", text), gold_number(gold)
    value = number_in(answer) if answer else None
    if not answer or wanted is None or value is None or "\\sqrt" in answer or "\\pi" in answer:
        return False
    return abs(value - wanted) <= max(Fraction(1), abs(wanted)) / 10**6


def _fixed_math(text: str, gold: object, question: str) -> bool:
    answer = extract("math", text)
    if answer is None:
        return False
    wanted = f"{gold:g}" if isinstance(gold, float) else str(gold)
    one, other = normalise("math", answer), normalise("math", wanted)
    if one == other:
        return True
    if is_choice_of_values(answer) and not is_choice_of_values(wanted):
        return False
    if d1.is_equiv(answer, wanted):
        return True
    values = [v for v in (to_fraction(one), to_fraction(other)) if v is not None]
    if len(values) == 2 and abs(values[0] - values[1]) > max(map(abs, values)) / 1000:
        return False  # two plain numbers that no rounding makes equal: no need to ask
    return mathverify.equal(wanted, answer)


def _fixed_choice(text: str, gold: object, question: str) -> bool:
    label = str(gold).strip().upper()
    answer = extract("choice", text, question)
    if label.isdigit() and 0 < int(label[:3]) <= len(LABELS):
        # A data set with numeric labels: its prompt may show them as letters or as they are.
        return answer == LABELS[int(label) - 1] or extract("math", text) == label
    return answer == label


def _fixed_expression(text: str, gold: object, question: str) -> bool:
    numbers, target = _pool(gold)
    answer = extract("expression", text)
    parsed = expressions.parse(answer) if answer else None
    value = parsed.value() if parsed else None
    if parsed is None or value is None or abs(value - target) >= 1e-5:
        return False
    return sorted(parsed.operands) == sorted(map(float, numbers))


def _fixed_grid(text: str, gold: object, question: str) -> bool:
    """The gold grid, or any other filled grid that keeps the puzzle's clues and the rules."""
    cells, wanted = extract("grid", text, question), normalise("grid", str(gold))
    if cells is None or len(cells) != len(wanted):
        return False
    return cells == wanted or is_solution(cells, question)


def _pool(gold: object) -> tuple[list[int], float]:
    """Countdown's gold: the numbers, each to be used exactly once, and the target."""
    if isinstance(gold, str) and "|" in gold:  # generated problems: target|numbers
        target, _, numbers = gold.partition("|")
        gold = [numbers.split(","), target]
    elif isinstance(gold, str):
        integers = [int(numeral) for numeral in re.findall(r"-?[0-9]{1,15}", gold)]
        gold = [integers[:-1], integers[-1]] if len(integers) > 1 else gold
    if isinstance(gold, Sequence) and len(gold) == 2 and isinstance(gold[0], Sequence):
        return [int(number) for number in gold[0]], float(gold[1])
    raise SettingsError(f"gold={gold!r} is no Countdown gold; give [[numbers], target]")


def _d1_grid(text: str, gold: object, question: str) -> float:
    """Without a puzzle in the question every cell counts as originally empty."""
    solution = normalise("grid", str(gold))
    puzzle = d1.puzzle_digits(question, 81 if len(solution) == 81 else 16)
    return d1.sudoku_share(text, solution, puzzle or "0" * len(solution))


GradeText = Callable[[str, object, str], float]  # (text, gold, question) → 1.0 if it is right


@dataclass(frozen=True, slots=True)
class Grader:
    """How answers of a kind are graded.

    Args:
        fixed: Our grading.
        d1: That of the d1 evaluation; None: the same.
        gold: What a gold answer must be, in words.
        fits: Whether it is that.
    """

    fixed: GradeText
    d1: GradeText | None = None
    gold: str = ""
    fits: Callable[[Any], bool] = lambda gold: True


GRADERS: Registry[Grader] = Registry("grading", "s3dlm.graders", Grader)
for _name, _grader in {
    "number": Grader(
        _fixed_number,
        lambda text, gold, question: (
            (wanted := gold_number(gold)) is not None and d1.gsm8k_number(text) == float(wanted)
        ),
        "a number",
        lambda gold: gold_number(gold) is not None,
    ),
    "math": Grader(
        _fixed_math,
        lambda text, gold, question: d1.is_equiv(d1.boxed_or_everything(text), str(gold)),
    ),
    "choice": Grader(
        _fixed_choice,
        lambda text, gold, question: d1.is_equiv(d1.boxed_or_everything(text), str(gold)),
        "a letter from A to H or a number from 1 to 8",
        lambda gold: str(gold).strip().upper() in {*LABELS, *"12345678"},
    ),
    "expression": Grader(
        _fixed_expression,
        lambda text, gold, question: d1.countdown_right(text, *_pool(gold)),
        "[[numbers], target]",
        lambda gold: bool(_pool(gold)),
    ),
    "grid": Grader(
        _fixed_grid,
        _d1_grid,
        "a string of digits",
        lambda gold: str(gold).isascii() and str(gold).isdigit(),
    ),
}.items():
    GRADERS.register(_name, _grader)


def grader_of(kind: str) -> Grader:
    """How a kind of answer is graded: by its own grader, or by its spelling."""
    if kind in GRADERS:
        return GRADERS.find(kind)

    def same(text: str, gold: object, question: str) -> bool:
        answer = extract(kind, text, question)
        return answer is not None and normalise(kind, answer) == normalise(kind, str(gold))

    return Grader(same)


def wrong_gold(kind_or_task: str, gold: object) -> str | None:
    """What a gold answer should have been, if no text could ever be graded by it."""
    grader = grader_of(kind_of(kind_or_task))
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        if grader.fits(gold):
            return None
    return grader.gold
