"""Grade-school word problems of two to four steps, with the steps worked out.

A story is a start and a few events. Each adds its sentence and the equations that answer it, so the
worked response cannot disagree with the story.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.tiny.problems.base import Problem, equation_key

LARGEST_VALUE = 99
LARGEST_FACTOR = 9

HE = ("Tom", "Sam", "Ben", "Max", "Leo")
SHE = ("Ann", "Mia", "Eva", "Zoe", "Ida")
THINGS = ("apples", "books", "coins", "cards", "pens", "shells", "stamps", "eggs", "cups", "balls")
HOLDERS = ("boxes", "bags", "packs")


@dataclass(slots=True)
class Story:
    """A story in the making: who, what, and how many there are by now."""

    rng: random.Random
    name: str
    friend: str
    thing: str
    sentences: list[str] = field(default_factory=list)
    equations: list[tuple[int, str, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    total: int = 0

    @property
    def pronoun(self) -> str:
        return "He" if self.name in HE else "She"

    def tell(self, *wordings: str) -> None:
        """Add one of several wordings."""
        self.sentences.append(self.rng.choice(wordings))

    def work(self, a: int, sign: str, b: int) -> int:
        """Add one equation and return its value."""
        value = {"+": a + b, "-": a - b, "*": a * b, "/": a // b}[sign]
        self.equations.append((a, sign, b))
        self.lines.append(f"{a} {sign} {b} = {value}")
        return value

    def room(self) -> int:
        return LARGEST_VALUE - self.total


def _product(rng: random.Random, limit: int) -> tuple[int, int]:
    a = rng.randint(2, min(LARGEST_FACTOR, limit // 2))
    return a, rng.randint(2, min(LARGEST_FACTOR, limit // a))


def _start_with(story: Story) -> None:
    story.total = story.rng.randint(3, LARGEST_VALUE * 3 // 5)
    story.tell(f"{story.name} has {story.total} {story.thing}.")


def _start_in_holders(story: Story) -> None:
    a, b = _product(story.rng, LARGEST_VALUE)
    holder = story.rng.choice(HOLDERS)
    story.tell(
        f"{story.name} has {a} {holder} with {b} {story.thing} each.",
        f"{story.name} has {a} {holder} of {b} {story.thing}.",
    )
    story.total = story.work(a, "*", b)


def _start_together(story: Story) -> None:
    a, more = story.rng.randint(2, LARGEST_VALUE // 3), story.rng.randint(2, LARGEST_VALUE // 4)
    story.tell(f"{story.name} has {a} {story.thing} and {story.friend} has {more} more.")
    other = story.work(a, "+", more)
    story.total = story.work(a, "+", other)
    story.tell(
        f"{story.friend} gives all to {story.name}.", f"{story.name} gets all from {story.friend}."
    )


def _start_at_shop(story: Story) -> None:
    p, a = _product(story.rng, LARGEST_VALUE // 2)
    q, b = _product(story.rng, LARGEST_VALUE // 2)
    holder = story.rng.choice(HOLDERS)
    story.tell(
        f"{story.name} buys {a} {holder} of {p} {story.thing} and {b} {holder} of {q}.",
        f"{story.name} has {a} {holder} of {p} {story.thing} and {b} {holder} of {q}.",
    )
    story.total = story.work(story.work(a, "*", p), "+", story.work(b, "*", q))


def _gain(story: Story) -> None:
    more = story.rng.randint(2, max(2, min(LARGEST_VALUE // 2, story.room())))
    who = story.pronoun
    story.tell(
        f"{who} buys {more} more.",
        f"{who} finds {more} more.",
        f"{who} gets {more} from {story.friend}.",
    )
    story.total = story.work(story.total, "+", more)


def _loss(story: Story) -> None:
    fewer = story.rng.randint(1, story.total - 1)
    who = story.pronoun
    story.tell(
        f"{who} gives {fewer} to {story.friend}.",
        f"{who} loses {fewer}.",
        f"{who} sells {fewer} of them.",
    )
    story.total = story.work(story.total, "-", fewer)


def _multiply(story: Story) -> None:
    times = story.rng.randint(2, min(5, LARGEST_VALUE // story.total))
    if times == 2 and story.rng.random() < 0.5:
        story.tell("Then the number doubles.")
    else:
        story.tell(f"Then {story.pronoun.lower()} has {times} times as many.")
    story.total = story.work(story.total, "*", times)


def _gain_packs(story: Story) -> None:
    a, b = _product(story.rng, story.room())
    story.tell(f"{story.pronoun} buys {a} {story.rng.choice(HOLDERS)} of {b}.")
    story.total = story.work(story.total, "+", story.work(a, "*", b))


def _divisors(total: int) -> list[int]:
    return [k for k in range(2, LARGEST_FACTOR + 1) if total % k == 0 and total > k]


def _next_event(story: Story, left: int) -> Callable[[Story], None]:
    """An event that fits the value so far and the steps that are left."""
    events: list[Callable[[Story], None]] = []
    if story.room() >= 2:
        events += [_gain] * 3
    if story.total >= 3:
        events += [_loss] * 3
    if story.total * 2 <= LARGEST_VALUE:
        events += [_multiply]
    if left >= 2 and story.room() >= 4:
        events += [_gain_packs] * 2
    return story.rng.choice(events)


def _ask(story: Story, left: int) -> None:
    """End with a question, or with an equal share where one step is left and it comes out even."""
    divisors = _divisors(story.total)
    if left and divisors:
        friends = story.rng.choice(divisors)
        story.tell(f"{story.pronoun} shares them equally among {friends} friends.")
        story.total = story.work(story.total, "/", friends)
        story.tell(f"How many {story.thing} does each friend get?", "How many does each get?")
        return
    if left:
        _next_event(story, left)(story)
    story.tell(
        f"How many {story.thing} does {story.name} have now?",
        f"How many {story.thing} does {story.pronoun.lower()} have in the end?",
    )


def _response(story: Story) -> str:
    """The steps worked out, in the style that the wording of the question calls for."""
    asked = story.sentences[-1]
    numbered = enumerate(story.lines, 1)
    if asked.endswith("in the end?"):
        steps = [f"{'First,' if n == 1 else 'Then'} {line}." for n, line in numbered]
    elif asked.startswith("How many does"):
        steps = [f"Step {n}: compute {line}." for n, line in numbered]
    else:
        steps = [f"Step {n}: {line}." for n, line in numbered]
    return f"{' '.join(steps)} Therefore the answer is \\boxed{{{story.total}}}."


def generate(rng: random.Random) -> Problem:
    """One word problem."""
    name, friend = rng.sample(HE + SHE, 2)
    story = Story(rng, name, friend, rng.choice(THINGS))
    starts = (_start_with, _start_with, _start_in_holders, _start_together, _start_at_shop)
    rng.choice(starts)(story)
    steps = rng.choice((2, 2, 2, 3, 3, 4))
    share = rng.random() < 0.25
    while steps - len(story.equations) > int(share):
        _next_event(story, steps - len(story.equations) - int(share))(story)
    _ask(story, max(0, steps - len(story.equations)))
    question = " ".join(story.sentences)
    key = equation_key(story.equations)
    return Problem("arithmetic", question, _response(story), str(story.total), key)
