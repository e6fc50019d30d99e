"""Multiple choice over facts about numbers and words, answered with a reason and a letter."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.tiny.problems.base import Problem

LETTERS = "ABCD"

KINDS: dict[str, tuple[str, ...]] = {
    "an animal": (
        "cat",
        "dog",
        "horse",
        "lion",
        "mouse",
        "rabbit",
        "tiger",
        "sheep",
        "frog",
        "bear",
    ),
    "a colour": (
        "red",
        "blue",
        "green",
        "yellow",
        "black",
        "white",
        "purple",
        "brown",
        "grey",
        "pink",
    ),
    "a fruit": (
        "apple",
        "pear",
        "grape",
        "lemon",
        "banana",
        "cherry",
        "peach",
        "plum",
        "melon",
        "fig",
    ),
    "a tool": (
        "hammer",
        "saw",
        "drill",
        "knife",
        "spade",
        "axe",
        "needle",
        "brush",
        "rake",
        "file",
    ),
}
OPPOSITES = (
    ("hot", "cold"),
    ("big", "small"),
    ("fast", "slow"),
    ("light", "dark"),
    ("old", "new"),
    ("open", "shut"),
    ("happy", "sad"),
    ("full", "empty"),
    ("wet", "dry"),
    ("high", "low"),
)
WORDS = tuple(word for words in KINDS.values() for word in words)


@dataclass(frozen=True, slots=True)
class Item:
    """What is asked, the right option, the wrong ones and why the right one is right."""

    asked: str
    right: str
    wrong: Sequence[str]
    reason: str


def _numbers(rng: random.Random, count: int, fits: Callable[[int], bool] = bool) -> list[int]:
    return rng.sample([number for number in range(10, 100) if fits(number)], count)


def _extreme(rng: random.Random) -> Item:
    word, pick = rng.choice((("largest", max), ("smallest", min)))
    numbers = _numbers(rng, 4)
    right = pick(numbers)
    numbers.remove(right)
    asked = rng.choice((f"Which number is the {word}?", f"Which of these is the {word}?"))
    return Item(asked, str(right), list(map(str, numbers)), f"{right} is the {word}")


def _parity(rng: random.Random) -> Item:
    word, rest = rng.choice((("even", 0), ("odd", 1)))
    right = _numbers(rng, 1, lambda number: number % 2 == rest)[0]
    wrong = _numbers(rng, 3, lambda number: number % 2 != rest)
    return Item(f"Which number is {word}?", str(right), list(map(str, wrong)), f"{right} is {word}")


def _multiple(rng: random.Random) -> Item:
    base = rng.choice((3, 4, 5, 6, 7, 8, 9))
    right = _numbers(rng, 1, lambda number: number % base == 0)[0]
    wrong = _numbers(rng, 3, lambda number: number % base != 0)
    asked = f"Which number is a multiple of {base}?"
    return Item(asked, str(right), list(map(str, wrong)), f"{right} = {base} * {right // base}")


def _sum(rng: random.Random) -> Item:
    """Three sums near the wanted one."""
    total = rng.randint(20, 90)
    near = rng.sample((-10, -9, -2, -1, 1, 2, 9, 10), 3)
    parts = [rng.randint(5, total - 12) for _ in range(4)]
    wrong = [f"{part} + {total + off - part}" for part, off in zip(parts, near, strict=False)]
    right = f"{parts[3]} + {total - parts[3]}"
    return Item(f"Which sum is {total}?", right, wrong, f"{right} = {total}")


def _kind(rng: random.Random) -> Item:
    kind = rng.choice(list(KINDS))
    right = rng.choice(KINDS[kind])
    wrong = rng.sample([word for other in KINDS if other != kind for word in KINDS[other]], 3)
    asked = rng.choice((f"Which word is {kind}?", f"Which of these is {kind}?"))
    return Item(asked, right, wrong, f"{right} is {kind}")


def _opposite(rng: random.Random) -> Item:
    pair = rng.choice(OPPOSITES)
    left, right = rng.sample(pair, 2)
    others = [word for other in OPPOSITES if other != pair for word in other]
    asked = f"Which word is the opposite of {left}?"
    return Item(asked, right, rng.sample(others, 3), f"{right} is the opposite of {left}")


def _first_letter(rng: random.Random) -> Item:
    right = rng.choice(WORDS)
    wrong = rng.sample([word for word in WORDS if word[0] != right[0]], 3)
    return Item(
        f"Which word starts with {right[0]}?", right, wrong, f"{right} starts with {right[0]}"
    )


def _longest(rng: random.Random) -> Item:
    word, sign = rng.choice((("longest", 1), ("shortest", -1)))
    right = rng.choice([word for word in WORDS if len(word) * sign > (5 if sign > 0 else -5)])
    shorter = [word for word in WORDS if len(word) * sign < len(right) * sign]
    return Item(
        f"Which word is the {word}?",
        right,
        rng.sample(shorter, 3),
        f"{right} has {len(right)} letters",
    )


_ITEMS = (
    _extreme,
    _parity,
    _multiple,
    _multiple,
    _sum,
    _sum,
    _kind,
    _opposite,
    _first_letter,
    _longest,
)


def _kind_asked(asked: str) -> str:
    """What is asked without the wording: "Which of these is …" asks what "Which number is …" asks."""
    return re.sub(r"^Which (?:of these|number|word|sum) ", "", asked)


def generate(rng: random.Random) -> Problem:
    """One question with four options, each on its own line."""
    item = rng.choice(_ITEMS)(rng)
    options = [item.right, *item.wrong]
    rng.shuffle(options)
    letter = LETTERS[options.index(item.right)]
    lines = [f"{label}. {option}" for label, option in zip(LETTERS, options, strict=True)]
    start = "Note that" if item.asked.startswith("Which of these") else "Because"
    return Problem(
        task="choice",
        question="\n".join([item.asked, *lines]),
        response=f"{start} {item.reason} and {item.right} is {letter}. Therefore the answer is {letter}.",
        gold=letter,
        key=f"{_kind_asked(item.asked)}|{','.join(sorted(options))}",
    )
