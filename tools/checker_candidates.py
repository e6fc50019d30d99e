"""Features that were tried for the `checker` verifier beside those it has, in groups.

`fit_verifier.py` decides about whole groups by cross-validation inside the half of the questions that
it fits on. None was chosen; they stay here so that the choice can be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from s3dlm.verifier.parsed import ParsedText, same

_OPERATION = re.compile(r"[0-9]\s*(?:\\times|\\cdot|[*+])\s*[0-9]|\.\.\.|\\ldots|\\approx")


def results_used(parsed: ParsedText) -> float:
    """The share of results that a later equation uses, or that are the answer; 0.5 without any."""
    known = parsed.derivation
    steps = known.equations
    if not steps:
        return 0.5
    used = 0
    for at, step in enumerate(steps):
        later = [operand for other in steps[at + 1 :] for operand in other.left.operands]
        wanted = later if known.answer is None else [*later, known.answer]
        used += any(same(step.right.value, value) for value in wanted)
    return used / len(steps)


def operands_known(parsed: ParsedText) -> float:
    """The share of operands that are numbers of the question or earlier results; 0.5 without any."""
    known = parsed.derivation
    seen, found, count = set(known.question), 0, 0
    for step in known.equations:
        count += len(step.left.operands)
        found += sum(any(same(value, other) for other in seen) for value in step.left.operands)
        seen.add(step.right.value)
    return found / count if count else 0.5


def magnitude(parsed: ParsedText) -> float:
    """The answer is not more than a hundred times the largest number of the question."""
    known = parsed.derivation
    if known.answer is None:
        return 0.0
    return float(abs(known.answer) <= 100 * max(1.0, *map(abs, (*known.question, 1.0))))


def unit_asked(parsed: ParsedText) -> float:
    """ "How many" is answered by a whole number, "what percent" by one from 0 to 100."""
    answer, question = parsed.derivation.answer, parsed.prompt.lower()
    if answer is None:
        return 0.0
    if "how many" in question:
        return float(answer >= 0 and answer == int(answer))
    return float("percent" not in question.rpartition(".")[2] or 0 <= answer <= 100)


def answer_plain(parsed: ParsedText) -> float:
    """No equation and no words in the answer."""
    content = parsed.answer.content if parsed.answer else "="
    return float("=" not in content and "\\text" not in content)


def answer_evaluated(parsed: ParsedText) -> float:
    """Nothing left to compute in the answer."""
    return float(parsed.answer is not None and not _OPERATION.search(parsed.answer.content))


def answer_is_last_number(parsed: ParsedText) -> float:
    """The answer is the last number before its delimiter."""
    known = parsed.derivation
    return float(bool(known.numbers) and known.answer == known.numbers[-1])


GROUPS: dict[str, tuple[Callable[[ParsedText], float], ...]] = {
    "consistent results": (results_used, operands_known),
    "units and magnitudes": (magnitude, unit_asked),
    "form of the answer": (answer_plain, answer_evaluated),
    "last number": (answer_is_last_number,),
}
