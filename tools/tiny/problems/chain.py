"""A running calculation of two to ten steps: the longer it is, the likelier one step goes wrong.

Accuracy over the number of steps shows what search is worth: a decoder that must get every step right
at once falls off exponentially. Terms grow from step to step, and all numbers are below 100, so that
the bundled model's tokenizer gives each the same length.
"""

from __future__ import annotations

import random

from tools.tiny.problems.base import Problem, equation_key

LEAST_STEPS, MOST_STEPS = 2, 10
LARGEST_VALUE = 99
ANY_TERM = range(1, LARGEST_VALUE)  # added or subtracted
LARGEST_FACTOR = 9

WORDS = {"+": "Add", "-": "Subtract", "*": "Multiply by", "/": "Divide by"}


def terms_of(number: int) -> range:
    """What may be added or subtracted in a step of this number."""
    return range(3 * number, 9 * number + 1)


def _operands(value: int, terms: range) -> dict[str, list[int]]:
    """For each sign, the operands that keep the value a whole number from 1 to 99."""
    factors = range(2, LARGEST_FACTOR + 1)
    return {
        "+": [term for term in terms if value + term <= LARGEST_VALUE],
        "-": [term for term in terms if value - term >= 1],
        "*": [factor for factor in factors if value * factor <= LARGEST_VALUE],
        "/": [factor for factor in factors if value % factor == 0 and value > factor],
    }


def step(rng: random.Random, value: int, terms: range = ANY_TERM) -> tuple[str, int, int]:
    """A sign, an operand and what the value becomes; sums are twice as likely as products."""
    possible = {sign: numbers for sign, numbers in _operands(value, terms).items() if numbers}
    sign = rng.choice([sign for sign in "++--*/" if sign in possible])
    operand = rng.choice(possible[sign])
    result = {
        "+": value + operand,
        "-": value - operand,
        "*": value * operand,
        "/": value // operand,
    }[sign]
    return sign, operand, result


def generate(rng: random.Random) -> Problem:
    """One chain; every number of steps is equally likely."""
    steps = rng.randint(LEAST_STEPS, MOST_STEPS)
    value = rng.randint(2, 30)
    sentences, lines, equations = [f"Start with {value}."], [], []
    for number in range(1, steps + 1):
        sign, operand, result = step(rng, value, terms_of(number))
        sentences.append(f"Step {number}: {WORDS[sign]} {operand}.")
        lines.append(f"Step {number}: {value} {sign} {operand} = {result}")
        equations.append((value, sign, operand))
        value = result
    lines.append(f"Therefore the answer is \\boxed{{{value}}}.")
    return Problem(
        task="chain",
        question=" ".join(sentences),
        response="\n".join(lines),
        gold=str(value),
        key=equation_key(equations),
        group=f"n={steps}",
    )
