"""Drills for tiny: the parts of its tasks, many in one row, so that each can be learned on its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tools.tiny.problems import Problem, chain, choice


def equation_drills(rng: random.Random) -> Problem:
    """Bare equations: in the form of a chain, or of the other tasks."""
    return _lines(rng) if rng.random() < 0.6 else _equations(rng)


def _lines(rng: random.Random) -> Problem:
    """Equations in the form of a chain, each independent of the one before."""
    lines = []
    for number in range(1, 6):
        value = rng.randint(2, chain.LARGEST_VALUE)
        sign, operand, result = chain.step(rng, value)
        lines.append(f"Step {number}: {value} {sign} {operand} = {result}")
    return Problem("drill", "Start with", "\n".join(lines), "", "")


def _equations(rng: random.Random) -> Problem:
    lines = enumerate((_equation(rng) for _ in range(5)), 1)
    text = " ".join(f"Step {number}: {line}." for number, line in lines)
    return Problem("drill", "Step", text, "", "")


def letter_drills(rng: random.Random) -> Problem:
    """One to four options whose letters may repeat.

    With the letters A to D in order nothing short of a full look-up beats chance, so nothing is
    learned; where letters repeat, every part of the look-up pays on its own.
    """
    count = rng.choice((1, 2, 2, 2, 2, 3, 3, 4, 4, 4))
    numbers = [str(number) for number in rng.sample(range(10, 100), count)]
    options = numbers if rng.random() < 0.4 else rng.sample(choice.WORDS, count)
    if rng.random() < 0.15:
        options = [f"{number} + {rng.randint(5, 60)}" for number in numbers]
    ordered = rng.random() < 0.3
    pairs = [
        (choice.LETTERS[n] if ordered else rng.choice(choice.LETTERS), option)
        for n, option in enumerate(options)
    ]
    question = "\n".join(["Which", *(f"{letter}. {option}" for letter, option in pairs)])
    rng.shuffle(pairs)
    text = " and ".join(f"{option} is {letter}" for letter, option in pairs)
    return Problem("drill", question, f"Because {text}.", "", "")


def repeat_drills(rng: random.Random) -> Problem:
    """Something to be said again, from some place on: to answer is to find the place and copy.

    All tasks need to look something up in the question; here every token teaches it.
    """
    makers = (
        lambda: str(rng.randint(1, 99)),
        lambda: rng.choice(choice.WORDS),
        lambda: f"{rng.choice(list(chain.WORDS.values()))} {rng.randint(1, 20)}.",
        lambda: f"{rng.choice(choice.LETTERS)}. {rng.randint(10, 99)}",
    )
    maker = rng.choice(makers)
    items = [maker() for _ in range(rng.randint(6, 14))]
    if rng.random() < 0.5:
        items = [f"Step {number}: {item}" for number, item in enumerate(items[:10], 1)]
    first = rng.randrange(len(items))
    again = items[first:] + items[:first]
    return Problem("drill", " ".join(items), " ".join(again), "", "")


def _equation(rng: random.Random) -> str:
    sign = rng.choice("++--*/")
    if sign in "+-":
        total = rng.randint(3, 99)
        part = rng.randint(1, total - 1)
        return (
            f"{part} + {total - part} = {total}"
            if sign == "+"
            else f"{total} - {part} = {total - part}"
        )
    a = rng.randint(2, 12)
    b = rng.randint(2, min(12, 99 // a))
    return f"{a} * {b} = {a * b}" if sign == "*" else f"{a * b} / {a} = {b}"


# What the tasks need, many times in a row; no split, since a drill asks nothing that a task asks.
DRILLS: dict[str, Callable[[random.Random], Problem]] = {
    "equations": equation_drills,
    "letters": letter_drills,
    "repeat": repeat_drills,
}


def drills(kind: str, seed: str) -> Iterator[Problem]:
    """One kind of drill without end."""
    rng = random.Random(f"{kind}|{seed}")
    while True:
        yield DRILLS[kind](rng)
