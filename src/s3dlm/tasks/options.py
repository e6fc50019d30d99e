"""Multiple-choice questions as text: lettered options, whatever labels the data set uses."""

from __future__ import annotations

import random
from collections.abc import Sequence

LETTERS = "ABCDEFGH"  # the verifier and the answers know these eight


def lettered(stem: str, options: Sequence[str]) -> str:
    """Stem, options and the demand for one letter, in the layout d1 and HEX use."""
    lines = [f"{letter}. {text}" for letter, text in zip(LETTERS, options, strict=False)]
    return "\n".join([stem, "", "Options:", *lines, "", "Choose ONE letter."])


def shuffled(correct: str, wrong: Sequence[str], key: str) -> tuple[list[str], str]:
    """Options in an order that depends on `key` alone, and the letter of the correct one."""
    options = [correct, *wrong]
    order = list(range(len(options)))
    random.Random(key).shuffle(order)
    return [options[i] for i in order], LETTERS[order.index(0)]
